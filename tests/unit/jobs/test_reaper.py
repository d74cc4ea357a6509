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
