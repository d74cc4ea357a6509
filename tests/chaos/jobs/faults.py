"""What happens to the workers of long jobs and to their database; most of it as to those of outboxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.chaos.crew import Kind
from tests.chaos.faults import mariadb, postgres, workers
from tests.chaos.scene import Scene

USUAL = Kind()
UNAWARE = Kind(program=("-m", "tests.chaos.jobs.unaware"))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFault:
    """One line of the table."""

    inject: Callable[[Scene], None]
    """Once; returns when the fault is over and, for most, a moment later."""
    times: int
    kills: bool = False
    """Whether workers die of it, so that their jobs begin again within a promised time."""
    kind: Kind = USUAL
    """Of the workers."""
    aware: bool = True
    """Whether workers notice that they were suspended. Else only what they write can be prevented."""
    note: str = ""


def _kill(scene: Scene) -> None:
    """Then time enough for the jobs of the dead to end their leases before the next one dies."""
    workers.kill(scene)
    scene.pause(3.0, 4.0)


WORKER_FAULTS: Mapping[str, JobFault] = {
    "sigkill-worker": JobFault(inject=_kill, times=10, kills=True),
    "sigstop-worker": JobFault(inject=workers.freeze, times=5, note="longer than the lease"),
    "zombie-worker": JobFault(
        inject=workers.freeze, times=5, kind=UNAWARE, aware=False, note="the same, and its clock does not notice"
    ),
}
CATALOGUES: Mapping[str, Mapping[str, JobFault]] = {
    "postgres": {
        **WORKER_FAULTS,
        "postgres-immediate": JobFault(inject=postgres.crash, times=5, note="pg_ctl stop -m immediate, start"),
        "terminate-connections": JobFault(inject=postgres.terminate, times=8),
    },
    "mariadb": {
        **WORKER_FAULTS,
        "mariadb-kill": JobFault(inject=mariadb.crash, times=5, note="SIGKILL, start"),
        "kill-connections": JobFault(inject=mariadb.kill_connections, times=8),
    },
}
"""By database, in the order of the table."""
