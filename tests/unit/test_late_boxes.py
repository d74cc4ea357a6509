"""What the overview says of a box whose items wait, and of servers that answer and take no writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from boxengine.app.overview.problems import Facts, Problem, Severity, alarm, problems
from boxengine.ports import Engagement, WorkerInfo
from boxengine.ports.people.checkup import Remark
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
    found = alarm(Remark(area="redis", text="Redis is full.", advice="Raise maxmemory.", alarming=True))
    assert (found.kind, found.severity) == ("redis", Severity.STOPPED)
