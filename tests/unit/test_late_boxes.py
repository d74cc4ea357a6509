"""What the overview says of a box whose items wait, and of servers that answer and take no writes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from boxengine.app.overview.facts import Facts, Problem, Severity, Stuck
from boxengine.app.overview.problems import problems, refusal
from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Status
from boxengine.ports import Count, Counts, Engagement, ItemRow, Precision, WorkerInfo
from boxengine.ports.people.history import Happened
from tests.conformance.coordination import make_box

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
BOX = make_box()


def worker(*at_work: Engagement, runs_for: timedelta = timedelta(hours=1)) -> WorkerInfo:
    return WorkerInfo(
        id="w", host="node-1", pid=41, boxes=(BOX.name,), threads=4, started_at=NOW - runs_for, at_work=at_work
    )


def late(*workers: WorkerInfo, lately: Happened | None) -> Problem:
    """The one problem of a box whose oldest item has waited for two minutes."""
    facts: dict[str, Any] = dict.fromkeys(("counts", "stranded", "held_back", "broken"))
    waits_since = NOW - timedelta(minutes=2)
    (found,) = problems(
        Facts(
            box=BOX,
            now=NOW,
            waits_since=waits_since,
            paused=False,
            workers=workers,
            circuits=(),
            stuck=(),
            lately=lately,
            **facts,
        )
    )
    return found


def test_a_box_of_which_some_is_delivered_is_slow() -> None:
    found = late(worker(), lately=Happened(delivered=1))
    assert (found.kind, found.severity) == ("late", Severity.SLOW)


def test_a_box_of_which_nothing_is_delivered_has_stopped_and_the_workers_log_says_why() -> None:
    found = late(worker(), lately=Happened())
    assert (found.kind, found.severity) == ("stalled", Severity.STOPPED)
    assert found.sentence.startswith(f"Nothing of {BOX.name} is delivered")
    assert "its log" in found.advice
    assert "boxengine doctor" in found.advice


def test_nothing_is_said_to_have_stopped_that_fails_is_unknown_or_has_just_begun() -> None:
    assert late(worker(), lately=Happened(failed=1)).kind == "late"
    assert late(worker(), lately=None).kind == "late"
    assert late(worker(runs_for=timedelta(seconds=20)), lately=Happened()).kind == "late"


def test_a_thread_that_does_not_come_back_is_named() -> None:
    hangs = Engagement(box=BOX.name, threads=3, since=NOW - timedelta(seconds=100))
    other = Engagement(box="other", threads=1, since=NOW - timedelta(hours=1))
    for lately, kind in ((Happened(), "stalled"), (Happened(delivered=9), "late")):
        found = late(worker(other, hangs), lately=lately)
        assert found.kind == kind
        assert "one batch for 1 min 40 s" in found.sentence
        assert "kill -USR1 41 on node-1" in found.advice
    busy = Engagement(box=BOX.name, threads=3, since=NOW - timedelta(seconds=1))
    assert "kill" not in late(worker(busy), lately=Happened()).advice


def test_a_redis_that_takes_no_writes_has_stopped_everything() -> None:
    found = refusal("Redis: cannot be used: the server takes no writes: it is full")
    assert (found.kind, found.severity) == ("redis", Severity.STOPPED)
    assert found.sentence == "Redis takes no jobs, so nothing is delivered: the server takes no writes: it is full."


def quiet(pending: Count, *stuck: Stuck, order: StrictOrder = StrictOrder.KEY, **facts: Any) -> list[Problem]:
    """What is wrong with a box of which nothing was delivered, and nothing failed, in the last minute."""
    none, tried = Count(0), sum(each.row.status == Status.PENDING for each in stuck)
    known: dict[str, Any] = {
        **dict.fromkeys(("stranded", "held_back", "broken")),
        "workers": (worker(),),
        "waits_since": NOW - timedelta(minutes=15),
        "counts": Counts(pending=pending, retrying=Count(tried), failed=none, delivered=none, discarded=none),
        **facts,
    }
    box = replace(BOX, strict_order=order)
    return list(problems(Facts(box=box, now=NOW, paused=False, circuits=(), stuck=stuck, lately=Happened(), **known)))


def stuck(status: Status, followers: Count | None, due_in: timedelta | None = None, *, leads: bool = True) -> Stuck:
    columns: dict[str, Any] = dict.fromkeys(
        ("uuid", "event_name", "processed_at", "available_at", "dedup_key", "options", "error_log", "payload")
    )
    row = ItemRow(id=7, event_key="a", bucket=3, status=status, errors_count=4, created_at=NOW, **columns)
    return Stuck(row, followers, leads=leads, due_at=None if due_in is None else NOW + due_in)


def kinds(found: list[Problem]) -> list[str]:
    return [each.kind for each in found]


def test_a_key_that_waits_for_a_failed_item_has_not_stopped_the_box() -> None:
    assert kinds(quiet(Count(42), stuck(Status.FAILED, Count(42)))) == ["parked"]


def test_items_that_nothing_holds_back_are_told_of_beside_a_parked_key() -> None:
    assert kinds(quiet(Count(43), stuck(Status.FAILED, Count(42)))) == ["stalled", "parked"]


def test_a_parked_key_with_more_followers_than_are_counted_comes_first() -> None:
    parked, late_box = quiet(Count(500), stuck(Status.FAILED, Count(200, Precision.AT_LEAST)))
    assert (parked.kind, late_box.kind, late_box.severity) == ("parked", "late", Severity.SLOW)
    assert "It may wait for an item that failed. If not, items may arrive" in late_box.advice


def test_items_that_wait_for_their_next_attempt_have_not_stopped() -> None:
    soon, over = timedelta(minutes=20), -timedelta(minutes=5)
    for order, alone in ((StrictOrder.NONE, None), (StrictOrder.KEY, Count(0)), (StrictOrder.BUCKET, Count(0))):
        leads = order is not StrictOrder.NONE
        assert kinds(quiet(Count(1), stuck(Status.PENDING, alone, soon, leads=leads), order=order)) == ["retrying"]
        overdue = quiet(Count(1), stuck(Status.PENDING, alone, over, leads=leads), order=order)
        assert kinds(overdue) == ["stalled", "retrying"]


def test_a_thread_that_hangs_is_named_although_all_else_waits_for_a_failed_item() -> None:
    hangs = worker(Engagement(box=BOX.name, threads=1, since=NOW - timedelta(minutes=2)))
    found = quiet(Count(42), stuck(Status.FAILED, Count(42)), workers=(hangs,))
    assert kinds(found) == ["parked", "late"]
    assert "kill -USR1 41" in found[1].advice


def test_without_redis_no_box_is_said_to_be_slow() -> None:
    assert kinds(quiet(Count(5), workers=None)) == []
