"""What ends the rest of a claimer that has found nothing, and the waits of the threads that have nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import Condition, Lock, Thread
from typing import TypeVar

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.jobs import MemoryJobs
from boxengine.domain.jobs import ClaimedJob, JobBox, JobState
from boxengine.engine.jobs.handover import Handover
from tests.unit.jobs.crew import TIMING, Crew

T = TypeVar("T")


def resting() -> tuple[Crew, list[float | None]]:
    """A box whose threads wait for no time, and how long each would have waited."""
    lock, waits = Lock(), list[float | None]()

    class Patient(Condition):
        def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
            found = predicate()
            if not found:
                waits.append(timeout)
            return found

    return Crew(lambda _job: None, condition=lambda: Patient(lock)), waits


def test_a_recorder_without_anything_to_record_does_not_wake_the_claimer() -> None:
    crew, waits = resting()
    crew.recorder.turn()
    waits.clear()
    crew.handover.rest(5.0)
    assert waits == [5.0]


def test_the_end_of_a_job_wakes_the_claimer_because_it_may_have_let_another_one_go() -> None:
    crew, waits = resting()
    crew.create()
    crew.work()
    waits.clear()
    crew.handover.rest(5.0)
    assert waits == []


class CountedClaims(MemoryJobs):
    """Counts how often jobs were to be claimed."""

    claims = 0

    def claim(self, box: JobBox, count: int, *, worker: str, oldest: int = 0) -> Sequence[ClaimedJob]:
        self.claims += 1
        return super().claim(box, count, worker=worker, oldest=oldest)


def test_a_rest_that_nobody_has_ended_is_followed_by_a_look_and_by_a_claim_only_if_that_finds_a_job() -> None:
    jobs = CountedClaims(ManualClock())
    crew = Crew(lambda _job: None, jobs=jobs)
    for _ in range(3):
        crew.claimer.turn()
    assert jobs.claims == 1
    crew.create()
    crew.claimer.turn()
    assert crew.row().status is JobState.RUNNING


def test_a_ring_is_followed_by_a_claim_at_once() -> None:
    jobs = CountedClaims(ManualClock())
    crew = Crew(lambda _job: None, jobs=jobs)
    crew.claimer.turn()
    crew.handover.ring()
    crew.claimer.turn()  # looks in vain, and hears the ring instead of resting
    crew.claimer.turn()
    assert jobs.claims == 2


def test_a_delayed_job_is_claimed_with_the_look_that_lets_it_go() -> None:
    crew = Crew(lambda _job: None)
    crew.create(delay=timedelta(seconds=3))
    crew.claimer.turn()
    crew.pass_time(3)
    crew.claimer.turn()
    assert crew.row().status is JobState.RUNNING


def test_a_keeper_waits_while_there_is_no_job_and_looks_again_soon_while_there_is_one() -> None:
    crew, waits = resting()
    crew.keeper.turn()
    assert waits == [TIMING.idle]
    crew.create()
    crew.claimer.turn()
    waits.clear()
    assert crew.keeper.turn() == timedelta(seconds=TIMING.watch)
    assert waits == []


@pytest.mark.parametrize("wake", ["a claim that brings a job", "the stop"])
def test_a_keeper_that_waits_is_woken_at_once(wake: str) -> None:
    crew, handover = Crew(lambda _job: None), Handover(2)
    crew.create()
    crew.claimer.turn()
    keeper = Thread(target=handover.await_jobs, daemon=True)
    keeper.start()
    if wake == "the stop":
        handover.close()
    else:
        handover.give(crew.runs.of(crew.box))
    keeper.join(30)  # half of what it would wait
    assert not keeper.is_alive()


def test_a_claim_between_the_look_of_a_keeper_and_its_wait_is_not_missed() -> None:
    crew, waits = resting()
    crew.create()
    crew.claimer.turn()
    waits.clear()
    crew.handover.await_jobs()
    assert waits == []
