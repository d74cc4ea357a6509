"""What ends the rest of a claimer that has found nothing."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Lock
from typing import TypeVar

from tests.unit.jobs.crew import Crew

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
