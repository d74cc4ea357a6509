"""A look at many boxes waits once for a server that does not answer, not once for each box."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.app.overview import Lookout, Overview, look_at_jobs
from boxengine.domain.box import Box, BoxType
from boxengine.domain.jobs import JobBox
from boxengine.errors import NotPermitted, QueueUnavailable, StoreConflict, StoreTooSlow, StoreUnavailable, TableMissing
from boxengine.ports import Count, Counts, QueueState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOXES = [Box(name=f"box_{number}", type=BoxType.OUTBOX, table=f"boxes_{number}") for number in range(20)]
NONE = Count(0)
COUNTS = Counts(pending=NONE, retrying=NONE, failed=NONE, delivered=NONE, discarded=NONE)
LONG = timedelta(seconds=5)


class Servers:
    """A database and a Redis, of which either may fail after a while."""

    def __init__(
        self, *, database: Exception | None = None, redis: Exception | None = None, after: timedelta = LONG
    ) -> None:
        self.clock = ManualClock(NOW)
        self.asked = {"database": 0, "redis": 0}
        self._after = after
        self._faults = {"database": database, "redis": redis}
        self.census = SimpleNamespace(take=self._of("database", COUNTS))
        self.store = SimpleNamespace(oldest_pending=self._of("database", None), stranded=self._of("database", None))
        self.workers = SimpleNamespace(living=self._of("redis", []))
        self.pauses = SimpleNamespace(polling_enabled=self._of("redis", {}))
        self.history = SimpleNamespace(lately=self._of("redis", {}))
        self.queue = SimpleNamespace(
            state=self._of("redis", QueueState(length=0, oldest_pushed_at=None)), ping=self._of("redis", None)
        )

    def _of(self, server: str, answer: object) -> Callable[..., Any]:
        def ask(*_: object, **__: object) -> Any:
            self.asked[server] += 1
            fault = self._faults[server]
            if fault is None:
                return answer
            self.clock.advance(self._after)
            raise fault

        return ask

    def look(self) -> Overview:
        sources: Any = self
        return Lookout(sources, BOXES, auto_disabled=False).look()


def test_a_redis_that_lets_a_look_wait_is_asked_once() -> None:
    servers = Servers(redis=QueueUnavailable("Redis: no answer"))
    look = servers.look()
    assert servers.asked["redis"] == 1
    assert look.outages == ("Redis: no answer",)
    assert [(view.counts, view.queue_length, view.paused, view.workers) for view in look.boxes] == [
        (COUNTS, None, None, None)
    ] * len(BOXES)


def test_a_database_that_lets_a_look_wait_is_asked_once() -> None:
    servers = Servers(database=StoreUnavailable("the database: no answer"))
    look = servers.look()
    assert servers.asked["database"] == 1
    assert look.outages == ("the database: no answer",)
    assert [(view.counts, view.queue_length, view.paused) for view in look.boxes] == [(None, 0, False)] * len(BOXES)


def test_a_server_that_refuses_at_once_is_asked_about_every_box() -> None:
    servers = Servers(database=StoreUnavailable("refused"), after=timedelta(0))
    servers.look()
    assert servers.asked["database"] == len(BOXES)


@pytest.mark.parametrize("kind", [TableMissing, StoreTooSlow, StoreConflict, NotPermitted])
def test_what_is_wrong_with_one_table_says_nothing_of_the_others(kind: type[StoreUnavailable]) -> None:
    servers = Servers(database=kind("one table"))
    look = servers.look()
    assert servers.asked["database"] == len(BOXES)
    assert look.outages == ()


def test_boxes_of_long_jobs_are_not_waited_for_one_by_one() -> None:
    clock, asked = ManualClock(NOW), 0

    def running(_: JobBox) -> bool | None:
        nonlocal asked
        asked += 1
        clock.advance(LONG)
        raise StoreUnavailable("the database: no answer")

    boxes = [JobBox(name=f"job_{number}", table=f"jobs_{number}") for number in range(20)]
    inspector: Any = None
    pauses: Any = SimpleNamespace(running=running)
    views, outages = look_at_jobs(inspector, pauses, boxes, auto_disabled=False, clock=clock)
    assert (asked, len(views), outages) == (1, 20, ("the database: no answer",))


@pytest.mark.parametrize("ahead", [timedelta(minutes=10), timedelta(minutes=-10)])
def test_how_long_an_item_has_waited_goes_by_the_clock_of_its_database(ahead: timedelta) -> None:
    servers = Servers()
    servers.store.oldest_pending = lambda _: NOW - timedelta(seconds=40)
    servers.store.now = lambda: NOW
    servers.clock.jump(ahead)
    look = servers.look()
    assert {(view.waits_since, view.waited) for view in look.boxes} == {
        (NOW - timedelta(seconds=40), timedelta(seconds=40))
    }
    assert "late" not in {problem.kind for problem in look.problems}
