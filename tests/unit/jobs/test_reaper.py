"""When the reaper comes back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.jobs import MemoryJobs
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.reaper import Reaper
from boxengine.engine.jobs.timing import JobTiming
from tests.unit.jobs.crew import BOX, Crew


def test_the_reaper_comes_when_the_next_lease_ends() -> None:
    crew = Crew(lambda _job: None)
    crew.create(lease_ttl=timedelta(seconds=4))
    crew.claimer.turn()
    assert crew.reaper.turn() == timedelta(seconds=4)


def test_a_lease_that_begins_after_a_look_ends_no_sooner_than_the_next_one() -> None:
    """However long the reaper's period is: the job may be claimed just after the look, by a worker that dies at once."""
    box = replace(BOX, lease_ttl=timedelta(seconds=3))
    reaper = Reaper(
        box,
        store=MemoryJobs(ManualClock()),
        handover=Handover(1),
        observer=Crew(lambda _job: None),
        timing=JobTiming(reaper=600.0),
    )
    assert reaper.turn() == timedelta(seconds=3)


def test_after_a_full_batch_of_deletions_the_reaper_comes_back_soon() -> None:
    """Else a box in which more jobs finish than one batch per period would grow for ever."""
    crew = Crew(lambda _job: None, box=replace(BOX, deletion_batch_size=2, retention=timedelta(hours=1)))
    for _ in range(5):
        crew.create()
        crew.work()
    crew.pass_time(3601)
    turns = [(crew.reaper.turn(), len(crew.jobs.tables[BOX.name])) for _ in range(3)]
    soon, later = timedelta(seconds=JobTiming().reaper_shortest), timedelta(seconds=JobTiming().reaper)
    assert turns == [(soon, 3), (soon, 1), (later, 0)]
