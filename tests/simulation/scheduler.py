"""Many simulated threads in one real one: who goes on next is drawn from a seed, so that a run repeats exactly.

A *strand* is a simulated thread (a greenlet). It runs until it comes to a switch point: a port call, a wait. Time is
virtual: it moves on a little between two switches, and jumps ahead when all strands wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from random import Random
from typing import Any, Literal, TypeVar

from greenlet import getcurrent, greenlet

from boxengine.adapters.memory.clock import ManualClock
from boxengine.errors import Abandoned
from tests.simulation.record import Record

Answer = TypeVar("Answer")

TICK = 0.002
"""Longest time in seconds that passes between two switches."""


class Crash(Abandoned):
    """The process of this strand is gone: nothing catches this, as nothing runs after SIGKILL."""


class Endless(AssertionError):
    """A history did not come to its end within its steps."""


@dataclass(slots=True)
class Process:
    """What crashes and is paused as one: a worker with its strands, or the outside world."""

    name: str
    alive: bool = True
    paused_until: float = 0.0


@dataclass(slots=True, eq=False)
class Strand:
    """One simulated thread."""

    name: str
    process: Process
    greenlet: greenlet
    wake_at: float = 0.0
    context: dict[str, Any] = field(default_factory=dict)
    """What ports know of the strand: its claim, its hold."""


class Scheduler:
    """Runs strands one at a time."""

    def __init__(self, random: Random, clock: ManualClock, record: Record, *, steps: int) -> None:
        """Args:
        steps: more switches than this in one history mean that it does not come to its end.
        """
        self.random = random
        self.clock = clock
        self.now = 0.0
        """Virtual monotonic seconds."""
        self.on_advance: Callable[[], object] = lambda: None
        self.current: Strand | None = None
        self._record = record
        self._steps = steps
        self._hub = getcurrent()
        self.strands: list[Strand] = []

    def spawn(self, name: str, process: Process, body: Callable[[], object]) -> Strand:
        """A new strand; it begins when it is first drawn."""

        def run() -> None:
            with suppress(Crash):
                body()

        strand = Strand(name, process, greenlet(run, parent=self._hub), wake_at=self.now)
        self.strands.append(strand)
        return strand

    def run(self, done: Callable[[], bool]) -> None:
        """Lets strands go on until ``done``.

        Raises:
            Endless: the steps are used up.
        """
        random, record, strands = self.random.random, self._record, self.strands
        while not done():
            now = self.now
            ready = [s for s in strands if s.wake_at <= now and s.process.paused_until <= now]
            if not ready:
                self._advance(max(0.0, self._next_wake() - now))
                continue
            self._advance(random() * TICK)
            record.step += 1
            if record.step > self._steps:
                raise Endless(f"not at its end after {self._steps} steps and {self.now:.1f} virtual seconds")
            self._resume(ready[int(random() * len(ready))])

    def switch(self) -> None:
        """Lets others go on first."""
        strand = self.current
        if strand is not None:
            if not strand.process.alive:
                raise Crash
            self._leave()

    def sleep(self, seconds: float) -> None:
        """The current strand waits in virtual time."""
        strand = self.current
        if strand is not None:
            if not strand.process.alive:
                raise Crash
            strand.wake_at = self.now + max(0.0, seconds)
            self._leave()

    def kill(self, process: Process) -> None:
        """Ends all strands of the process where they are; their open claims are undone as they unwind."""
        process.alive = False
        self._record.died.setdefault(process.name, self._record.step)
        for strand in [s for s in self.strands if s.process is process and s is not self.current]:
            self.strands.remove(strand)
            if strand.greenlet:
                before, self.current, loop = self.current, strand, asyncio._get_running_loop()
                # It must come back here, and not to the hub, when it has unwound.
                strand.greenlet.parent = getcurrent()
                strand.greenlet.throw(Crash)
                self.current = before
                asyncio._set_running_loop(loop)

    def kill_all(self) -> None:
        """Ends everything, so that nothing of a history outlives it."""
        for strand in list(self.strands):
            self.kill(strand.process)

    def _leave(self) -> None:
        # A coroutine may come to a switch point, too: its event loop runs for this strand, and not for the others.
        loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        self._hub.switch()
        asyncio._set_running_loop(loop)

    def _resume(self, strand: Strand) -> None:
        self.current = strand
        strand.greenlet.switch()
        self.current = None
        if strand.greenlet.dead and strand in self.strands:
            self.strands.remove(strand)

    def _next_wake(self) -> float:
        earliest = inf
        for strand in self.strands:
            wake_at, paused_until = strand.wake_at, strand.process.paused_until
            # Compared first: this is the simulation's innermost loop.
            if wake_at < earliest and paused_until < earliest:
                earliest = max(paused_until, wake_at)
        if earliest is inf:
            raise Endless("no strand is left, and the history has not come to its end")
        return earliest

    def _advance(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        # Read back: the clock rounds to microseconds, and a strand must not wake a hair too early.
        self.now = self._record.now = self.clock.monotonic() if seconds >= 1e-6 else self._nudged()
        self.on_advance()

    def _nudged(self) -> float:
        self.clock.advance(timedelta(microseconds=1))
        return self.clock.monotonic()


class SimulatedCondition:
    """``threading.Condition`` of strands. Entering it excludes nobody: only one strand runs, and none leaves inside."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: list[Strand] = []

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> Literal[False]:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        """Until notified or the virtual time is over; whether notified."""
        strand = self._scheduler.current
        if strand is None:
            raise RuntimeError("only strands wait")
        self._waiting.append(strand)
        try:
            self._scheduler.sleep(1e9 if timeout is None else timeout)
        finally:
            notified = strand not in self._waiting
            if not notified:
                self._waiting.remove(strand)
        return notified

    def wait_for(self, predicate: Callable[[], Answer], timeout: float | None = None) -> Answer:
        """Until the predicate holds or the virtual time is over; its last answer."""
        until = self._scheduler.now + (1e9 if timeout is None else timeout)
        while not (answer := predicate()) and self._scheduler.now < until:
            self.wait(until - self._scheduler.now)
        return answer

    def notify(self, count: int = 1) -> None:
        for strand in self._waiting[:count]:
            strand.wake_at = self._scheduler.now
        del self._waiting[:count]

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class SimulatedLock:
    """``threading.Lock`` of strands, for locks that are held across a port call."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._changed = SimulatedCondition(scheduler)
        self._held = False

    def acquire(self, *, blocking: bool = True, timeout: float | None = None) -> bool:
        """Whether it was had within so many virtual seconds."""
        if not blocking:
            timeout = 0.0
        if not self._changed.wait_for(lambda: not self._held, timeout):
            return False
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        self._changed.notify()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> Literal[False]:
        self.release()
        return False
