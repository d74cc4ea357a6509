"""A box goes from table to log and back while applications write and workers deliver. ``make proof-convert``: more items."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from boxengine.adapters.sql.converting.conversion import Conversion
from boxengine.adapters.sql.converting.patience import Patience
from boxengine.adapters.sql.log.stage import Stage
from boxengine.adapters.sql.making import schema, sizes
from tests.integration.converting.writers import Accepting, Writers
from tests.integration.engine.rig import Rig
from tests.integration.engine.watcher import Watcher

ITEMS = int(os.environ.get("BOXENGINE_CONVERTED_ITEMS", "180"))
"""Committed meanwhile, at least."""
KEYS = max(10, ITEMS // 100)
POLICY = {"strict_order": "key", "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1, "max_retries": 1000}


@pytest.fixture
def servers(tmp_path: Path, postgres_url: str, redis_url: str) -> Iterator[tuple[Rig, Rig]]:
    """The configurations before and after."""
    with ExitStack() as stack:
        made = []
        for storage in ("table", "log"):
            folder = tmp_path / storage
            folder.mkdir()
            config = {"box": {**POLICY, "storage": storage}, "wakeup": "notify"}
            made.append(stack.enter_context(Rig(folder, database=postgres_url, redis=redis_url, **config)))
        made[0].create_tables()
        sizes.record(made[0].engine, [made[0].box()])
        yield made[0], made[1]


def conversion(rig: Rig, watcher: Watcher) -> Conversion:
    patience = Patience(attempts=600, lock_timeout=0.9, wait=watcher.listen, tell=lambda _line: None, pause=0.1)
    (table,) = schema.tables([rig.box()])
    return Conversion(rig.engine, rig.box(), table, patience)


def test_there_and_back_under_load(servers: tuple[Rig, Rig]) -> None:
    before, after = servers
    receiver, watcher = Accepting(), Watcher()
    for rig in servers:
        rig.carry(receiver)
    writers, part = Writers(before, keys=KEYS), ITEMS // 6
    command = conversion(before, watcher)
    with writers.at_work(8), ExitStack() as second:
        with before.worker(watcher):
            writers.more(part)
            command.prepare()
            second.enter_context(after.worker(watcher))
            writers.change_to(before, after)
            receiver.is_open.clear()
            writers.more(part)
            command.finish_to_log()
            writers.more(part)
            receiver.is_open.set()
        writers.more(part)
        command.back()
        with before.worker(watcher):
            writers.more(part)
            writers.change_to(before)
            second.close()
            command.finish_to_table()
            writers.more(part)
            writers.stop()
            watcher.wait_for(lambda: len(watcher.delivered) >= len(writers.committed))
    assert command.stage() is Stage.TABLE
    assert_complete_and_in_order(receiver, writers)


def assert_complete_and_in_order(receiver: Accepting, writers: Writers) -> None:
    """0 lost, 0 twice, and each key's items in the order of their row lock."""
    assert sorted(item for _, item in receiver.taken) == sorted(writers.committed)
    order: dict[str, list[int]] = defaultdict(list)
    for key, item in receiver.taken:
        order[key].append(writers.committed[item][1])
    assert {key: numbers for key, numbers in order.items() if numbers != sorted(numbers)} == {}
