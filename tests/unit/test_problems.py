from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from boxengine.app.overview.facts import Facts, Problem, Severity, Stuck
from boxengine.app.overview.problems import problems, reason_of
from boxengine.domain.box import Box, BoxType, StrictOrder
from boxengine.domain.item import Status
from boxengine.ports import Count, Counts, ItemRow, OpenCircuit, Precision, WorkerInfo

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items")
WORKER = WorkerInfo(id="w", host="node-1", pid=41, boxes=(BOX.name,), threads=4, started_at=NOW)
NONE = Count(0)
COUNTS = Counts(pending=NONE, retrying=NONE, failed=NONE, delivered=NONE, discarded=NONE)
WELL = Facts(
    box=BOX,
    now=NOW,
    counts=COUNTS,
    waits_since=None,
    paused=False,
    workers=(WORKER,),
    circuits=(),
    stuck=(),
    stranded=None,
    held_back=None,
    broken=None,
)


def row(number: int, status: Status = Status.FAILED, **columns: Any) -> ItemRow:
    plain = ItemRow(
        id=number,
        uuid="",
        event_name=None,
        event_key="a",
        bucket=3,
        status=status,
        errors_count=2,
        created_at=NOW,
        processed_at=None,
        available_at=None,
        dedup_key=None,
        options=None,
        error_log="2026-01-01T00:00:00.000000Z http: 500 from the shop\nTraceback",
        payload=None,
    )
    return replace(plain, **columns)


def strict(order: StrictOrder, *stuck: Stuck, **facts: Any) -> Facts:
    return replace(WELL, box=replace(BOX, strict_order=order), stuck=stuck, **facts)


def only(facts: Facts) -> Problem:
    (found,) = problems(facts)
    return found


def test_of_a_box_that_is_well_nothing_is_told() -> None:
    assert problems(WELL) == ()


@pytest.mark.parametrize(
    ("pending", "severity", "sentence"),
    [
        (NONE, Severity.QUIET, "order_outbox_item is paused."),
        (Count(1), Severity.STUCK, "order_outbox_item is paused, and 1 item waits."),
        (Count(1, Precision.AT_LEAST), Severity.STUCK, "order_outbox_item is paused, and over 1 items wait."),
    ],
)
def test_a_pause_hurts_if_items_wait(pending: Count, severity: Severity, sentence: str) -> None:
    found = only(replace(WELL, paused=True, workers=(), counts=replace(COUNTS, pending=pending)))
    assert (found.kind, found.severity, found.sentence) == ("paused", severity, sentence)


@pytest.mark.parametrize(
    ("error_log", "reason"),
    [
        ("2026-01-01T00:00:00.000000Z http: 500 from the shop\nTraceback", "500 from the shop"),
        ("-----\n2026-01-31 12:00:00 +0300 \n broker: is down\n /app/produce.rb:12", "broker: is down"),
        ("2026-01-01T00:00:00Z discarded by hand\n-----\n2026-01-31 12:00:00 UTC \n boom\n ", "discarded by hand"),
        ("-----", "-----"),
        ("-----\n2026-01-31 12:00:00 UTC \n \n ", "no reason was kept"),
        (None, "no reason was kept"),
    ],
)
def test_the_reason_of_a_failure_is_found_whoever_wrote_it(error_log: str | None, reason: str) -> None:
    assert reason_of(error_log) == reason


@pytest.mark.parametrize(("pending", "severity"), [(NONE, Severity.SLOW), (Count(2), Severity.STOPPED)])
def test_a_box_without_a_worker_has_stopped_if_items_wait(pending: Count, severity: Severity) -> None:
    found = only(replace(WELL, workers=(), counts=replace(COUNTS, pending=pending)))
    assert (found.kind, found.severity) == ("no-worker", severity)


def test_a_receiver_that_several_workers_cannot_reach_is_told_once() -> None:
    circuit = OpenCircuit(
        box=BOX.name, transport="http", since=NOW - timedelta(minutes=5), next_try=None, reason="refused"
    )
    counts = replace(COUNTS, pending=Count(7))
    found = only(replace(WELL, circuits=(circuit, circuit), counts=counts, waits_since=NOW - timedelta(minutes=5)))
    assert found.sentence == "http of order_outbox_item has not reached its receiver for 5 min: refused. 7 items wait."
    alone = only(replace(WELL, circuits=(circuit,), counts=replace(COUNTS, pending=Count(1))))
    assert alone.sentence.endswith(" 1 item waits.")


@pytest.mark.parametrize(("order", "place"), [(StrictOrder.KEY, "of key a"), (StrictOrder.BUCKET, "of bucket 3")])
def test_a_failed_item_that_holds_others_back_is_named_with_its_reason(order: StrictOrder, place: str) -> None:
    found = only(strict(order, Stuck(row(8), Count(1), leads=True)))
    assert found.sentence == f"1 item {place} waits for item 8, which failed 2 times: 500 from the shop"
    assert (found.kind, found.severity, found.item) == ("parked", Severity.STUCK, 8)


def test_a_failed_item_is_named_before_one_that_is_retried_and_the_others_are_counted() -> None:
    retried = Stuck(row(1, Status.PENDING), Count(200, Precision.AT_LEAST), leads=True)
    few, many = Stuck(row(2), Count(1), leads=True), Stuck(row(3), Count(5), leads=True)
    alone, uncounted = Stuck(row(4), NONE, leads=True), Stuck(row(5), None)
    found = only(strict(StrictOrder.KEY, retried, few, many, alone, uncounted, more_leading=True))
    assert found.sentence.startswith("5 items of key a wait for item 3, ")
    assert found.sentence.endswith(" (and at least 2 other items hold others back)")


def test_items_without_strict_order_hold_nothing_back() -> None:
    assert problems(strict(StrictOrder.NONE, Stuck(row(1), None))) == ()


def test_of_a_table_that_is_unusable_nothing_else_is_told() -> None:
    found = only(replace(WELL, broken="table order_outbox_items lacks uuid", paused=True, workers=()))
    assert (found.kind, found.severity) == ("table", Severity.STOPPED)


def test_the_worst_problem_comes_first() -> None:
    facts = replace(
        WELL, paused=True, stranded="3 pending rows lie in buckets that it does not have", unread="too slow"
    )
    assert [each.kind for each in problems(facts)] == ["stranded", "unread", "paused"]
