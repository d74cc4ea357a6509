"""All rows by name, in the order of the table."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tests.chaos.kafka import hostile_rows, inbox_rows, outbox_rows
from tests.chaos.kafka.plan import Plan
from tests.chaos.kafka.servers import Servers
from tests.chaos.report import Row

ROWS: Mapping[str, Callable[[Servers, Path, Plan], Row]] = {
    "normal": outbox_rows.normal,
    "broker-sigkill": outbox_rows.broker_sigkill,
    "broker-unreachable": outbox_rows.broker_unreachable,
    "worker-sigkill-transactional": outbox_rows.worker_sigkill_transactional,
    "consumer-sigkill": inbox_rows.consumer_sigkill,
    "poison": hostile_rows.poison,
    "dead-letter-topic-down": hostile_rows.dead_letter_topic_down,
    "oversized": hostile_rows.oversized,
    "topic-anew": hostile_rows.topic_anew,
}


def play(name: str, servers: Servers, folder: Path, plan: Plan) -> Row:
    """Plays one row and judges it.

    Args:
        folder: new; holds configuration and logs, and stays only if something was broken.
    """
    began = time.monotonic()
    try:
        row = ROWS[name](servers, folder, plan)
    except AssertionError as error:
        row = Row(fault=name, times=1, items=plan.items, problems=(str(error),))
    row = replace(row, seconds=round(time.monotonic() - began, 1), evidence=str(folder))
    if not row.broken:
        shutil.rmtree(folder)
    return row
