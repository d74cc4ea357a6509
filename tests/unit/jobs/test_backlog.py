"""What the metrics say of jobs that wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from prometheus_client import CollectorRegistry

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.jobs import MemoryJobs
from boxengine.adapters.telemetry.prometheus import PrometheusObserver
from boxengine.domain.jobs import JobBacklog, JobBox
from boxengine.engine.jobs.backlog import JobBacklogWatch
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.rounds import SOON
from boxengine.errors import StoreUnavailable
from tests.conformance.jobs import BOX, new

OTHER = replace(BOX, name="other_job", table="other_jobs")


class Jobs(MemoryJobs):
    """Raises an error for boxes that have one."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.errors: dict[str, Exception] = {}
        self.clock = clock
        self.seconds = 0.0
        """How long an answer takes."""

    def backlog(self, box: JobBox, *, limit: int) -> JobBacklog:
        self.clock.advance(timedelta(seconds=self.seconds))
        if box.name in self.errors:
            raise self.errors[box.name]
        return super().backlog(box, limit=limit)


class World:
    """Two boxes that one worker measures."""

    def __init__(self) -> None:
        self.clock, self.registry = ManualClock(), CollectorRegistry()
        self.jobs = Jobs(self.clock)
        observer = PrometheusObserver(clock=self.clock, partitions=1, registry=self.registry)
        outages = Outages(observer=observer, error_tracker=lambda *_a, **_c: None, clock=self.clock)
        self.watch = JobBacklogWatch(
            [BOX, OTHER], store=self.jobs, outages=outages, observer=observer, clock=self.clock
        )

    def value(self, metric: str, box: JobBox = BOX, **labels: str) -> float | None:
        named = {} if metric == "box_worker_outages_total" else {"type": "job", "name": box.label, "owner": ""}
        return self.registry.get_sample_value(metric, named | labels)


def test_jobs_that_wait_are_shown_by_state_and_the_oldest_ready_one_with_its_wait() -> None:
    world = World()
    world.jobs.insert(BOX, [new(), new(), new(delay=timedelta(hours=1))])
    world.clock.advance(timedelta(seconds=90))
    world.watch.turn()
    shown = {state: world.value("queue_jobs_waiting", state=state) for state in ("ready", "delayed", "blocked")}
    assert shown == {"ready": 2, "delayed": 1, "blocked": 0}
    assert world.value("queue_oldest_ready_age_seconds") == 90
    assert world.value("queue_oldest_ready_age_seconds", OTHER) == 0


def test_the_trouble_of_one_box_does_not_keep_others_from_being_measured() -> None:
    world = World()
    world.jobs.errors[BOX.name] = ValueError("a bug")
    world.watch.turn()
    assert world.value("queue_oldest_ready_age_seconds", OTHER) == 0
    assert world.value("box_worker_outages_total", what="measuring report_job") == 1


def test_while_the_database_is_away_nothing_is_measured_and_old_figures_go() -> None:
    world = World()
    world.watch.turn()
    world.jobs.errors = dict.fromkeys((BOX.name, OTHER.name), StoreUnavailable("away"))
    world.clock.advance(timedelta(seconds=61))
    world.watch.turn()
    assert world.value("queue_oldest_ready_age_seconds") is None
    assert world.value("box_worker_outages_total", what="measuring report_job") is None


def test_a_turn_over_boxes_that_answer_late_ends_in_time_and_the_next_goes_on_with_the_others() -> None:
    world = World()
    world.jobs.seconds = 60.0
    assert world.watch.turn() == SOON
    assert world.value("queue_oldest_ready_age_seconds", OTHER) is None
    assert world.watch.turn() == SOON
    assert world.value("queue_oldest_ready_age_seconds", OTHER) == 0
