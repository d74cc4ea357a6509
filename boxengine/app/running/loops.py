"""The loops of a worker: what makes them, and the list of those for long jobs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from boxengine.engine.running.closing import Closing
from boxengine.engine.running.health import Health
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.threads import ThreadGroup
from boxengine.engine.running.worker import Loop
from boxengine.ports import Clock, Engagement, Workers

HOUSEKEEPING_LIMIT = timedelta(minutes=2)
"""A turn of the listener, poller or lease keeper that takes longer counts as hung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopMaker:
    """What all loops of a worker have in common."""

    health: Health
    clock: Clock
    outages: Outages
    seed: str
    """Seeds the random pauses after failures, so that workers that fail together do not come back together."""

    def make(
        self,
        name: str,
        turn: Callable[[], timedelta],
        *,
        count: int = 1,
        limit: timedelta = HOUSEKEEPING_LIMIT,
        interrupt: Callable[[], None] = lambda: None,
    ) -> Loop:
        """A loop of ``count`` threads, not started yet."""
        threads = ThreadGroup(
            name,
            turn,
            count=count,
            limit=limit,
            health=self.health,
            clock=self.clock,
            outages=self.outages,
            randomness=random.Random(self.seed + name),
        )
        return Loop(threads, interrupt)


@dataclass(slots=True)
class JobLoops:
    """What a worker runs for its job boxes, grouped by when each part is stopped."""

    sources: list[Loop] = field(default_factory=list)
    processors: list[Loop] = field(default_factory=list)
    housekeeping: list[Loop] = field(default_factory=list)
    release: list[Closing] = field(default_factory=list)
    close: list[Closing] = field(default_factory=list)
    boxes: tuple[str, ...] = ()
    threads: int = 0
    at_work: Callable[[], Sequence[Engagement]] = tuple
    """Returns what the threads are at."""
    fleets: Sequence[Workers] = ()
    """Where a worker of these boxes announces itself, whatever else it does; empty without boxes."""
