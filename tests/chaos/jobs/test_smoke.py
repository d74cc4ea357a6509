"""A killed worker's jobs, on a small scale; ``make chaos-jobs`` plays all faults."""

from __future__ import annotations

from pathlib import Path

from boxengine.embedded import EmbeddedPostgres
from tests.chaos.database import PostgreSQL
from tests.chaos.jobs.faults import JobFault
from tests.chaos.jobs.play import Plan, play
from tests.chaos.scene import Ground, Scene
from tests.chaos.snapshot import copy_of_the_code


def _kill(scene: Scene) -> None:
    scene.wait_for_work()
    victim = scene.crew.running[0]
    with scene.injecting(victim.pid):
        scene.crew.kill(victim)


def test_the_jobs_of_a_killed_worker_are_done_by_another_and_none_runs_twice_at_once(
    tmp_path: Path, own_postgres: EmbeddedPostgres
) -> None:
    servers = Ground(PostgreSQL(own_postgres), copy_of_the_code(tmp_path / "code"))
    # How soon the jobs run again is measured by ``make chaos-jobs``, on a machine of its own.
    fault = JobFault(inject=_kill, times=1)
    plan = Plan(jobs=60, rate=200.0, seed=1, longest=2.0, workers=2)
    row = play("sigkill-worker", fault, servers, tmp_path / "stage", plan)
    assert (row.times, row.jobs >= 60, row.runs > row.jobs) == (1, True, True)
    assert (row.lost, row.at_once, row.zombies) == (0, 0, 0), row.problems
