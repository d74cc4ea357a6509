"""What the threads that run jobs are at."""

from __future__ import annotations

from typing import Any

from boxengine.engine.jobs.at_work import JobsAtWork
from boxengine.ports import Engagement
from tests.unit.jobs.crew import BOX, Crew


def test_a_thread_is_at_work_from_the_moment_it_takes_a_job_until_the_handler_ends() -> None:
    seen: list[list[Engagement]] = []

    def handler(_job: Any) -> None:
        crew.pass_time(40)
        seen.append(at_work.engagements())

    crew = Crew(handler)
    at_work = JobsAtWork(crew.runs, clock=crew.clock)
    at_work.add(BOX, crew.handover)
    crew.create()
    crew.create()
    crew.claimer.turn()
    crew.pass_time(5)
    assert at_work.engagements() == [], "two are claimed, and none is begun"
    began = crew.clock.now()
    crew.runner.turn()
    assert seen == [[Engagement(box="report_job", threads=1, since=began)]]
    assert at_work.engagements() == []
