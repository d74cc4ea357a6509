"""A real Prometheus rings each alert for its cause, and stops after the runbook's remedy. ``make proof-alerts``.

The rules are those that ship, thirty times as quick: windows, waits and thresholds are divided by ``SCALE``.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.deployment.moods import PAUSED_JOB_BOX, Stand
from tests.deployment.scene import CUT
from tests.eventually import eventually
from tests.servers.kafka import KafkaFromJars

RULES = Path(__file__).parents[2] / "boxengine" / "kits" / "monitoring" / "alerts.yml"
SCALE = 30
PATIENCE = 240.0
"""Seconds for all alerts of a scene to ring, and as many for all of them to stop."""
FALL_SILENT = (
    "UPDATE report_jobs SET status = 'running', attempt = 1, token = 1, lease_expires_at = now() WHERE status = 'queued' AND"
    " available_at > now()"
)
INSERT = "INSERT INTO {}s ({}uuid, event_key, bucket, payload) VALUES ({}gen_random_uuid(), 'k', {}, 'x')"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why alerts ring, and the remedy that the runbook has for it."""

    what: str
    alerts: frozenset[str]
    begin: Callable[[Stand], None]
    remedy: Callable[[Stand], None]
    go_on: Callable[[Stand], None] = lambda _stand: None
    """Once a second until they ring."""


def scaled() -> dict[str, Any]:
    """The rules that ship, thirty times as quick."""

    def seconds(found: re.Match[str]) -> str:
        number, unit = (each for each in found.groups() if each)
        return f"{int(number) * {'m': 60, 'h': 3600}[unit] // SCALE}s"

    rules: dict[str, Any] = yaml.safe_load(RULES.read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["expr"] = re.sub(r"(?<=\[)(\d+)([mh])(?=\])|(?<=offset )(\d+)([mh])", seconds, rule["expr"])
        rule["expr"] = re.sub(r"> (\d{2,})\b", lambda found: f"> {int(found[1]) // SCALE}", rule["expr"])
        if "for" in rule:
            rule["for"] = re.sub(r"(\d+)([mh])", seconds, rule["for"])
    return rules


# ── causes that are more than a line ─────────────────────────────────────────────────────────────────


def mood(box: str, mood: str, *, count: int = 1, keys: int = 1) -> Callable[[Stand], None]:
    def begin(stand: Stand) -> None:
        stand.mood(box, mood)
        stand.create(box, count, keys=keys)

    return begin


def repair(box: str) -> Callable[[Stand], None]:
    return lambda stand: stand.mood(box, "ok")


def overtake(stand: Stand) -> None:
    """A later item of the key is delivered while the first waits for its retry."""
    stand.mood("newest_item", "refuse")
    stand.create("newest_item")
    eventually(lambda: stand.number("SELECT count(*) FROM newest_items WHERE errors_count > 0"))
    stand.mood("newest_item", "ok")
    stand.create("newest_item")


def commit_late(stand: Stand) -> None:
    """Two transactions write items of one key, and the lower id is committed after the higher one was delivered."""
    stand.execute(INSERT.format("disorder_item", "id, ", "1010, ", 0))
    eventually(lambda: stand.number("SELECT count(*) FROM disorder_items WHERE status = 2"))
    stand.execute(INSERT.format("disorder_item", "id, ", "1005, ", 0))


def die(stand: Stand) -> None:
    """A job whose worker is gone in its last attempt."""
    stand.create_job(delay=3600)
    stand.execute(FALL_SILENT)


def lag(stand: Stand) -> None:
    stand.mood("arrived_item", "slow")
    stand.send(5000, key=b"good")


def rename(before: str, after: str) -> Callable[[Stand], None]:
    return lambda stand: stand.execute(f"ALTER TABLE {before} RENAME TO {after}")


SIDE_BY_SIDE = (
    Cause(
        "the receiver refuses everything",
        frozenset({"OutboxOldestPendingTooOld", "OutboxNoDelivery", "OutboxManyRetries"}),
        mood("late_item", "refuse", count=5),
        repair("late_item"),
    ),
    Cause(
        "items without retries are refused",
        frozenset({"OutboxItemsFailed"}),
        mood("failing_item", "refuse"),
        repair("failing_item"),
        go_on=lambda stand: stand.create("failing_item"),
    ),
    Cause(
        "an item is overtaken while it waits for a retry",
        frozenset({"OutboxItemsDiscarded"}),
        overtake,
        lambda _stand: None,  # the alert speaks of what has happened; it ends by itself
        go_on=overtake,
    ),
    Cause(
        "writers of one key do not lock it",
        frozenset({"OutboxOrderViolated"}),
        commit_late,
        lambda _stand: None,
    ),
    Cause(
        "another program chooses a bucket that the box does not have",
        frozenset({"BoxWorkerStrandedItems"}),
        lambda stand: stand.execute(INSERT.format("stranded_item", "", "", 999)),
        lambda stand: stand.execute("UPDATE stranded_items SET bucket = 0"),
    ),
    Cause(
        "a table has been renamed",
        frozenset({"OutboxFetchErrors", "BoxWorkerOutageLasts"}),
        rename("renamed_items", "gone_items"),
        rename("gone_items", "renamed_items"),
    ),
    Cause(
        "the receiver hangs",
        frozenset({"BoxWorkerQueueLag"}),
        mood("stuck_item", "hang", count=2000, keys=2000),
        repair("stuck_item"),
    ),
    Cause(
        "the receiver is slow",
        frozenset({"BoxWorkerJobTimeouts"}),
        mood("slow_item", "slow", count=100),
        repair("slow_item"),
        go_on=lambda stand: stand.create("slow_item", 5),
    ),
    Cause(
        "the receiver is away",
        frozenset({"BoxWorkerCircuitOpen"}),
        mood("away_item", "away", count=20),
        repair("away_item"),
    ),
    Cause(
        "a box of long jobs is paused",
        frozenset({"LongJobsWaitTooLong"}),
        lambda stand: stand.call("pause", PAUSED_JOB_BOX),
        lambda stand: stand.call("resume", PAUSED_JOB_BOX),
        # Again and again: the first may begin before the worker knows of the pause.
        go_on=lambda stand: stand.create_job(PAUSED_JOB_BOX),
    ),
    Cause(
        "the handler of a long job fails",
        frozenset({"LongJobsFailed"}),
        lambda stand: stand.create_job(),
        lambda _stand: None,  # these alerts, too, speak of what has happened
    ),
    Cause(
        "the worker of a long job dies in its last attempt",
        frozenset({"LongJobsLost"}),
        die,
        lambda _stand: None,
    ),
    Cause(
        "a message has a key that is not text",
        frozenset({"BoxConsumerDeadLetters"}),
        lambda _stand: None,
        lambda _stand: None,
        go_on=lambda stand: stand.send(1, key=b"\xff"),
    ),
)
SLOW = Cause(
    "the consumer stores too slowly",
    frozenset({"BoxConsumerLag"}),
    lag,
    repair("arrived_item"),
)
CONNECTIONS = Cause(
    "the database drops connections again and again",
    frozenset({"BoxWorkerOutages"}),
    lambda _stand: None,
    lambda _stand: None,
    go_on=lambda stand: stand.execute(CUT.text),
)


def play(stand: Stand, *causes: Cause) -> list[str]:
    """Bring the causes about together, then their remedies; sentences about alerts that did not ring, or did not stop."""
    wanted = frozenset[str]().union(*(cause.alerts for cause in causes))
    rung: set[str] = set()
    pace = threading.Event()

    def turn(done: Callable[[], bool], *, go_on: bool) -> None:
        until = time.monotonic() + PATIENCE
        while not done() and time.monotonic() < until:
            for cause in causes:
                if go_on and cause.alerts - rung:
                    cause.go_on(stand)
            pace.wait(1.0)  # as often as Prometheus looks
            now = {name for name, state in stand.alerts().items() if state == "firing"}
            for name in sorted((now & wanted) - rung):
                print(f"  rings: {name}", flush=True)
            rung.update(now & wanted)

    for cause in causes:
        print(f"cause: {cause.what}", flush=True)
        cause.begin(stand)
    turn(lambda: rung >= wanted, go_on=True)
    for cause in causes:
        cause.remedy(stand)
    turn(lambda: not wanted & stand.alerts().keys(), go_on=False)
    still = wanted & stand.alerts().keys()
    print(f"  stopped: {len(wanted - still)} of {len(wanted)}", flush=True)
    return [f"{name} did not ring" for name in sorted(wanted - rung)] + [
        f"{name} did not stop" for name in sorted(still)
    ]


def without(what: str, program: Callable[[], AbstractContextManager[None]], stand: Stand, *rings: str) -> None:
    """Waits for the alerts that the program does not run, and starts it."""
    print(f"cause: no {what} runs", flush=True)
    names = " and ".join(rings)

    def firing() -> set[str]:
        return {name for name, state in stand.alerts().items() if state == "firing"}

    eventually(lambda: firing() >= set(rings), patience=PATIENCE, what=f"{names} ring")
    with program():
        eventually(lambda: stand.alerts().keys().isdisjoint(rings), patience=PATIENCE, what=f"{names} stop")


def main() -> int:
    """1 if an alert did not ring for its cause, or did not stop."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = stack.enter_context(EmbeddedPostgres(folder / "postgres", durable=False))
        valkey = stack.enter_context(EmbeddedValkey(folder / "valkey", durable=False))
        kafka = KafkaFromJars(os.environ).start(folder, stack)
        if not kafka.address:
            raise SystemExit(f"a consumer needs a real Kafka: {kafka.detail}")
        rules = scaled()
        stand = Stand(
            folder / "project",
            postgres=postgres.create_database("alerts"),
            redis=valkey.url(),
            kafka=kafka.address,
            rules=rules,
        )
        names = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
        tried = {"OutboxNobodyMeasures", "BoxConsumerGone", "LongJobsNobodyWorks"}.union(
            *(cause.alerts for cause in (*SIDE_BY_SIDE, SLOW, CONNECTIONS))
        )
        wrong = [f"{name} has no cause here" for name in sorted(names - tried)]
        with stand.prometheus():
            with stand.worker(), stand.consumer():
                eventually(stand.scraped)
                wrong += play(stand, *SIDE_BY_SIDE)
                wrong += play(stand, SLOW)
                wrong += play(stand, CONNECTIONS)
            with stand.worker():
                without("consumer", stand.consumer, stand, "BoxConsumerGone")
            without("worker", stand.worker, stand, "LongJobsNobodyWorks", "OutboxNobodyMeasures")
    print(f"{len(names)} alerts, {len(wrong)} faults", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
