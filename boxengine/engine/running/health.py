"""Whether the worker is ready, and whether it is alive.

Ready: the servers it needs answer, its transports reach their receivers as far as is known, and its loops run. Alive:
every loop has made progress within its limit. A loop that waits out an outage, or has nothing to do, says so at each
turn and is alive; a thread that hangs inside a transport says nothing, and a worker with such a thread is not.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from boxengine.ports import Clock, OtherProcesses


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """Fine or not, with every reason why not."""

    ok: bool
    reasons: tuple[str, ...] = ()


MISSING_FOR = 120.0
"""Seconds for which something that is missing is believed to be so, unless it is said again. Nobody tries where nothing is
left to be delivered, so nobody may ever take the word back."""
Publish = Callable[[str, float, float], None]
"""Called with a loop's name, when it last made progress, and until when that holds (monotonic seconds)."""


class LoopProgress:
    """One loop's word that it goes on. Called by the loop's own thread; read by any."""

    def __init__(self, name: str, *, limit: timedelta, clock: Clock, publish: Publish | None = None) -> None:
        self.name = name
        self._limit = limit.total_seconds()
        self._clock = clock
        self._publish = publish
        self._end: str | None = None
        self.tick()

    def tick(self, *, pause: timedelta = timedelta(0)) -> None:
        """A turn has ended or begun; ``pause`` is how long the loop is about to wait on purpose."""
        now = self._clock.monotonic()
        self._deadline = now + pause.total_seconds() + self._limit
        self._last = now
        if self._publish:
            self._publish(self.name, now, self._deadline)

    def end(self) -> None:
        """Nothing more is expected of the loop."""
        self._deadline = math.inf
        if self._publish:
            self._publish(self.name, self._clock.monotonic(), math.inf)

    def died(self, reason: str) -> None:
        """The loop's thread has ended, though nobody asked it to."""
        self._end = reason
        self._deadline = -math.inf
        if self._publish:
            self._publish(self.name, self._last, self._last)

    def complaint(self, now: float) -> str | None:
        """Why the loop is not alive at ``now`` (monotonic seconds); None if it is."""
        if self._end is not None:
            return f"{self.name}: its thread has ended: {self._end}"
        if now <= self._deadline:
            return None
        return f"{self.name}: no progress for {now - self._last:.0f} s (limit {self._limit:.0f} s)"


class Health:
    """All loops of a worker and the servers they need. Safe to use from any thread."""

    def __init__(
        self,
        *,
        clock: Clock,
        checks: Mapping[str, Callable[[], None]],
        check_timeout: timedelta = timedelta(seconds=0.8),
        check_lifetime: timedelta = timedelta(seconds=1),
        publish: Publish | None = None,
        publish_missing: Callable[[str, float], None] | None = None,
        others: OtherProcesses | None = None,
    ) -> None:
        """
        Args:
            clock: of the loops' limits and the checks' age.
            checks: by name (``database``, ``redis``); each returns if its server answers and raises if not.
            check_timeout: how long a check may take before it counts as no answer; under the one second that a
                kubelet waits for a probe if nothing else is set.
            check_lifetime: how long an answer holds, however often it is asked for.
            publish: in a child process: told of every progress, for the parent to know of.
            publish_missing: in a child process: told of what is missing, and until when that holds (monotonic seconds).
            others: in the parent: its children.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._publish = publish
        self._publish_missing = publish_missing
        self._others = others
        self._loops: dict[LoopProgress, None] = {}
        self._missing: dict[str, tuple[str, float]] = {}
        """The reason, and until when it is believed."""
        self._stopping = False
        self._checks = [
            _Check(name, run, clock=clock, timeout=check_timeout, lifetime=check_lifetime)
            for name, run in checks.items()
        ]

    def loop(self, name: str, *, limit: timedelta) -> LoopProgress:
        """Registers a loop, which from now on must tick at least every ``limit``."""
        progress = LoopProgress(name, limit=limit, clock=self._clock, publish=self._publish)
        with self._lock:
            self._loops[progress] = None
        return progress

    def forget(self, progress: LoopProgress) -> None:
        """The loop has ended as it should. One whose thread just dies stays, and is missed."""
        progress.end()
        with self._lock:
            self._loops.pop(progress, None)

    def missing(self, what: str, reason: str | None) -> None:
        """Something that is needed is out of reach, or is in reach again (None). Until then the worker is not ready."""
        until = self._clock.monotonic() + MISSING_FOR if reason else 0.0
        with self._lock:
            if reason:
                self._missing[what] = (reason, until)
            else:
                self._missing.pop(what, None)
        if self._publish_missing:
            self._publish_missing(what, until)

    def stopping(self) -> None:
        """From now on the worker is not ready; it stays alive while its loops finish."""
        self._stopping = True

    def alive(self) -> HealthVerdict:
        """Whether every loop makes progress."""
        now = self._clock.monotonic()
        with self._lock:
            loops = list(self._loops)
        reasons = [reason for reason in (loop.complaint(now) for loop in loops) if reason]
        if self._others:
            reasons += self._others.complaints(now)
        return HealthVerdict(not reasons, tuple(reasons))

    def ready(self) -> HealthVerdict:
        """Whether the loops run and every server answers. Takes no longer than the checks' timeout."""
        reasons = list(self.alive().reasons)
        if self._stopping:
            reasons.append("stopping")
        elif not self._loops:
            reasons.append("not started")
        if self._others:
            reasons += self._others.not_started()
            reasons += self._others.missing(self._clock.monotonic())
        reasons += self._still_missing()
        # All are set going before any is waited for, so that two silent servers cost one timeout.
        for check in self._checks:
            check.begin()
        reasons += [reason for reason in (check.complaint() for check in self._checks) if reason]
        return HealthVerdict(not reasons, tuple(reasons))

    def _still_missing(self) -> list[str]:
        now = self._clock.monotonic()
        with self._lock:
            return [f"{what}: {reason}" for what, (reason, until) in self._missing.items() if now < until]


class _Check:
    """One question to a server, asked in a thread of its own so that a server that hangs hangs nobody else.

    A thread lives as long as its question; while one is out, nobody asks a second.
    """

    def __init__(
        self, name: str, run: Callable[[], None], *, clock: Clock, timeout: timedelta, lifetime: timedelta
    ) -> None:
        self._timeout = timeout.total_seconds()
        self._name = name
        self._run = run
        self._clock = clock
        self._lifetime = lifetime.total_seconds()
        self._changed = threading.Condition()
        self._asked_at: float | None = None
        self._answered_at: float | None = None
        self._problem: str | None = None

    def begin(self) -> None:
        """Asks, unless an answer is fresh or a question is out."""
        now = self._clock.monotonic()
        with self._changed:
            fresh = self._answered_at is not None and now - self._answered_at < self._lifetime
            if fresh or self._asked_at is not None:
                return
            self._asked_at = now
        threading.Thread(target=self._ask, name=f"boxengine-check-{self._name}", daemon=True).start()

    def complaint(self) -> str | None:
        """What is wrong; waits for a question that is out, but not beyond its timeout."""
        with self._changed:
            asked_at = self._asked_at
            if asked_at is not None:
                left = max(0.0, asked_at + self._timeout - self._clock.monotonic())
                if not self._changed.wait_for(lambda: self._asked_at is None, timeout=left):
                    return f"{self._name}: no answer for {self._clock.monotonic() - asked_at:.1f} s"
            return self._problem

    def _ask(self) -> None:
        problem: str | None = None
        try:
            self._run()
        except Exception as error:
            first_line = str(error).partition("\n")[0]
            problem = f"{self._name}: {first_line or type(error).__name__}"
        with self._changed:
            self._problem = problem
            self._asked_at = None
            self._answered_at = self._clock.monotonic()
            self._changed.notify_all()
