"""Threads that boxes share: they help the box that is behind, and no job is claimed for a thread that has left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Condition, Lock

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.jobs import MemoryJobs
from boxengine.domain.jobs import JobBox, JobState
from boxengine.engine.jobs.sharing import Member, Sharing
from boxengine.errors import NotPermitted, StoreConflict, StoreUnavailable, TableMissing
from tests.unit.jobs.crew import BOX, Crew


class Meanwhile(Condition):
    """Nobody waits: instead the other threads of the box have a turn."""

    others: Callable[[], object] | None = None

    def wait(self, timeout: float | None = None) -> bool:
        others, Meanwhile.others = Meanwhile.others, None
        self.release()
        try:
            if others is not None:
                others()
        finally:
            self.acquire()
            Meanwhile.others = others
        return False


class House:
    """Boxes whose own threads are all at work, and one thread that they share. Jobs last for a second."""

    def __init__(self, **weights: int) -> None:
        self.jobs = MemoryJobs(ManualClock())
        self.crews: dict[str, Crew] = {}
        self.order: list[str] = []
        self.closed: set[str] = set()
        self.asked: list[str] = []
        """Boxes whose lag was asked for."""
        lock = Lock()
        for name, weight in weights.items():
            self.crews[name] = Crew(
                self._handler(name),
                jobs=self.jobs,
                box=replace(BOX, name=name, weight=weight, concurrency=1),
                condition=lambda: Meanwhile(lock),
            )
        self.sharing = Sharing(
            [Member(crew.box, crew.runner, partial(self._is_open, name)) for name, crew in self.crews.items()],
            store=self.jobs,
            look_every=1,
        )
        for name in self.crews:
            self.keep_busy(name)

    def _handler(self, name: str) -> Callable[[object], None]:
        def handle(_job: object) -> None:
            self.order.append(name)
            self.pass_time(1)

        return handle

    def _is_open(self, name: str) -> bool:
        self.asked.append(name)
        return name not in self.closed

    def keep_busy(self, name: str) -> None:
        """The box's own thread has a job, which takes for ever."""
        crew = self.crews[name]
        crew.create()
        crew.claimer.turn()
        assert crew.handover.take() is not None

    def pass_time(self, seconds: float) -> None:
        self.jobs._clock.advance(timedelta(seconds=seconds))  # type: ignore[attr-defined]

    def look(self) -> None:
        self.sharing.look()

    def turn(self) -> None:
        """The shared thread's; the claimers have theirs while it waits, and the recorders afterwards."""
        Meanwhile.others = self._claim
        try:
            self.sharing.turn()
        finally:
            Meanwhile.others = None
        for crew in self.crews.values():
            crew.recorder.turn(0.0)

    def _claim(self) -> None:
        for crew in self.crews.values():
            crew.claimer.turn()


def test_a_box_whose_own_threads_are_at_work_is_served_by_a_shared_one() -> None:
    house = House(a=1, b=1)
    starved = house.crews["a"].create()
    house.look()
    house.turn()
    assert house.order == ["a"]
    assert house.crews["a"].row(starved).status is JobState.SUCCEEDED


@pytest.mark.parametrize("error", [StoreConflict, TableMissing, NotPermitted])
def test_a_box_whose_table_cannot_be_read_keeps_no_shared_thread_from_the_others(
    monkeypatch: pytest.MonkeyPatch, error: type[StoreUnavailable]
) -> None:
    house = House(a=1, b=1)
    lag = house.jobs.lag

    def answer(box: JobBox) -> timedelta | None:
        if box.name == "a":
            raise error("the table")
        return lag(box)

    monkeypatch.setattr(house.jobs, "lag", answer)
    house.crews["b"].create()
    house.look()
    house.turn()
    assert house.order == ["b"]


def test_no_job_is_claimed_for_a_shared_thread_that_has_left() -> None:
    house = House(a=1, b=1)
    crew = house.crews["a"]
    jobs = [crew.create() for _ in range(3)]
    house.look()
    house.turn()
    assert crew.handover.threads == 1
    crew.claimer.turn()
    assert [crew.row(each).status for each in jobs].count(JobState.QUEUED) == 2


def test_boxes_that_are_as_far_behind_take_turns_by_weight() -> None:
    house = House(a=3, b=1)
    for _ in range(30):
        house.crews["a"].create()
        house.crews["b"].create()
    house.pass_time(100)
    for _ in range(20):
        house.look()
        house.turn()
    assert Counter(house.order) == {"a": 15, "b": 5}


def test_a_box_that_is_behind_has_most_of_the_turns_and_the_other_is_not_starved() -> None:
    house = House(a=1, b=1)
    for _ in range(40):
        house.crews["a"].create()
    house.pass_time(90)
    for _ in range(40):
        house.crews["b"].create()
    house.pass_time(10)
    for _ in range(22):
        house.look()
        house.turn()
    assert house.order.count("a") > 3 * house.order.count("b") > 0


def test_a_paused_box_gets_no_thread() -> None:
    house = House(a=1, b=1)
    house.crews["a"].create()
    house.crews["b"].create()
    house.closed.add("a")
    house.look()
    house.turn()
    house.turn()
    assert house.order == ["b"]


def test_a_box_that_has_nothing_any_more_is_left_alone_until_the_next_look() -> None:
    house = House(a=1, b=1)
    house.crews["a"].create()
    house.pass_time(100)
    house.crews["b"].create()
    house.look()
    for _ in range(3):
        house.turn()
    assert sorted(house.order) == ["a", "b"]
    assert [crew.handover.threads for crew in house.crews.values()] == [1, 1]


def test_the_store_is_asked_for_lags_only_if_a_shared_thread_has_wanted_a_box_since() -> None:
    house = House(a=1)
    house.crews["a"].create()
    house.look()
    house.look()
    assert house.asked == ["a"]
    house.turn()
    house.look()
    assert house.asked == ["a", "a"]


def test_a_thread_that_gets_no_more_jobs_pauses_until_it_is_asked_to_stop() -> None:
    house = House(a=1)
    house.sharing.stop()
    assert house.sharing.turn() > timedelta(0)
    crew = house.crews["a"]
    crew.claimer.stop()
    assert crew.runner.turn() > timedelta(0)
