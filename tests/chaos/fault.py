"""What a fault is: how it is injected, how often, and what it excuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from tests.chaos.stage import Stage


def hire_two(stage: Stage) -> None:
    """The usual crew."""
    for _ in range(2):
        stage.crew.hire()


def hire_two_behind_proxies(stage: Stage) -> None:
    """The usual crew, where the network is at fault."""
    for _ in range(2):
        stage.crew.hire(stage.behind_proxies)


def nothing(_stage: Stage) -> AbstractContextManager[None]:
    """No preparation."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One line of the table."""

    inject: Callable[[Stage], None]
    """Once; returns when the fault is over and, for most, a moment later."""
    times: int
    """Injections, if there is time for all."""
    least: int = 2
    """However little time there is."""
    repeats: bool = False
    """Whether what was in work may be delivered twice."""
    recovery_limit: float | None = None
    """Seconds that are promised."""
    hire: Callable[[Stage], None] = hire_two
    """Starts the first workers."""
    around: Callable[[Stage], AbstractContextManager[None]] = nothing
    """What is there for all injections, and gone afterwards."""
    transports: Mapping[str, str] = field(default_factory=dict)
    """By box, another transport of the recorder's than the usual one."""
    note: str = ""
