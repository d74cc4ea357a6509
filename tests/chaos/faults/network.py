"""What happens between the workers and their servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from tests.chaos.fault import Fault, hire_two_behind_proxies
from tests.chaos.stage import Stage
from tests.servers.proxy import FaultProxy

Choose = Callable[[Stage], FaultProxy]


def _to_database(stage: Stage) -> FaultProxy:
    return stage.database_proxy


def _to_redis(stage: Stage) -> FaultProxy:
    return stage.redis_proxy


def _cut(choose: Choose) -> Callable[[Stage], None]:
    """All connections are reset, and new ones refused for a while."""

    def inject(stage: Stage) -> None:
        stage.wait_for_work()
        with stage.injecting():
            choose(stage).cut()
            stage.pause(0.1, 3.0)
            choose(stage).heal()
        stage.wait_for_recovery()

    return inject


def _slow(choose: Choose) -> Callable[[Stage], None]:
    """Every piece of data comes later, in both directions."""

    def inject(stage: Stage) -> None:
        stage.wait_for_work()
        with stage.injecting():
            choose(stage).slow(timedelta(seconds=stage.randomness.uniform(0.02, 0.3)))
            stage.pause(3.0, 6.0)
            choose(stage).heal()
        stage.wait_for_recovery()

    return inject


def _half_open(choose: Choose) -> Callable[[Stage], None]:
    """One worker's cable is pulled and nobody is told: longer than the lease, and at times longer than any time limit.

    By turns, what was held back arrives late, or never.
    """

    def inject(stage: Stage) -> None:
        stage.wait_for_work()
        behind_proxies = stage.crew.running[0]
        with stage.injecting(behind_proxies.pid):
            choose(stage).stall()
            stage.pause(4.5, 13.0)
            if len(stage.injections) % 2 == 1:
                choose(stage).cut()
            choose(stage).heal()
        stage.wait_for_recovery()

    return inject


def _hire_one_behind_proxies(stage: Stage) -> None:
    stage.crew.hire(stage.behind_proxies)
    stage.crew.hire()


def between(database: str) -> Mapping[str, Fault]:
    """The faults between workers, Redis and the database of this name."""
    return {
        f"cut-{database}": Fault(inject=_cut(_to_database), times=5, repeats=True, hire=hire_two_behind_proxies),
        "cut-redis": Fault(inject=_cut(_to_redis), times=5, hire=hire_two_behind_proxies),
        f"slow-{database}": Fault(inject=_slow(_to_database), times=4, hire=hire_two_behind_proxies),
        "slow-redis": Fault(inject=_slow(_to_redis), times=4, hire=hire_two_behind_proxies),
        f"half-open-{database}": Fault(
            inject=_half_open(_to_database),
            times=4,
            repeats=True,
            hire=_hire_one_behind_proxies,
            note="one worker of two",
        ),
        "half-open-redis": Fault(
            inject=_half_open(_to_redis), times=4, hire=_hire_one_behind_proxies, note="one worker of two"
        ),
    }
