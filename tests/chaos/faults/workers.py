"""What happens to worker processes."""

from __future__ import annotations

from tests.chaos.fault import Fault
from tests.chaos.scene import Scene
from tests.chaos.stage import GENERAL_TIMEOUT, Stage

LEASE = 4.0
"""Seconds: how long a bucket stays with a worker that has died."""
SIGKILL_RECOVERY = 5.0
"""Seconds within which the buckets of a killed worker go on."""


def kill(stage: Scene) -> None:
    """One of two; the next one only when both are there again, for what is promised is that the other goes on."""
    stage.crew.wait_until_started()
    stage.wait_for_work()
    victim = stage.randomness.choice(stage.crew.running)
    with stage.injecting(victim.pid):
        stage.crew.kill(victim)
    stage.crew.hire()
    stage.pause(2.0, 7.0)


def freeze(stage: Scene) -> None:
    stage.wait_for_work()
    victim = stage.randomness.choice(stage.crew.running)
    with stage.injecting(victim.pid):
        victim.freeze()
        # Longer than the lease every time; now and then longer than the database keeps a silent transaction.
        stage.pause(*stage.randomness.choice([(LEASE + 0.5, LEASE + 4), (GENERAL_TIMEOUT + 1, GENERAL_TIMEOUT + 3)]))
        victim.thaw()
    stage.wait_for_recovery()


def _replace(stage: Stage) -> None:
    """As in a rolling deployment: the new one is started first."""
    stage.crew.hire()
    stage.crew.wait_until_started()
    stage.wait_for_work()
    victim = stage.crew.running[0]
    with stage.injecting(victim.pid):
        stage.crew.dismiss(victim)
    stage.pause(0.5, 2.0)


def _hire_one(stage: Stage) -> None:
    stage.crew.hire()


def _scale_up_and_down(stage: Stage) -> None:
    for _ in range(3):
        stage.crew.hire()
    stage.crew.wait_until_started()
    stage.pause(1.0, 3.0)
    stage.wait_for_work()
    leaving = stage.randomness.sample(stage.crew.running, 3)
    with stage.injecting(*(each.pid for each in leaving)):
        stage.crew.dismiss(*leaving)
    stage.pause(1.0, 2.0)


FAULTS = {
    "sigkill-worker": Fault(inject=kill, times=10, least=10, repeats=True, recovery_limit=SIGKILL_RECOVERY),
    "sigstop-worker": Fault(inject=freeze, times=4, repeats=True),
    "graceful-stop": Fault(inject=_replace, times=6),
    "scaling": Fault(inject=_scale_up_and_down, times=3, hire=_hire_one, note="1 worker, 4 workers, 1 worker"),
}
