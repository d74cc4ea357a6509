"""Decides whether the worker is ready, and whether it is alive.

Ready: the servers that it needs answer, no transport is known to miss its receiver, and its loops run. Alive: every loop
has made progress within its limit. A loop that waits out an outage, or has nothing to do, reports at each turn and is
alive. A thread that hangs inside a transport cannot report, so its worker is not alive.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from boxengine.engine.running.server_check import ServerCheck, Silent
from boxengine.ports import Clock, OtherProcesses

MISSING_FOR = 120.0
"""Seconds after which a report of something missing expires. A box with nothing to deliver tries nothing, so nobody might
ever withdraw the report."""
Publish = Callable[[str, float, float], None]
"""Passes on what a process reports: a name, and two moments (monotonic seconds). ``Health`` says which."""


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """Whether all is well, and if not, every reason."""

    ok: bool
    reasons: tuple[str, ...] = ()


Turned = Callable[[HealthVerdict], None]
"""Called when the worker is found not to be alive, and when it is again."""


class _Missing(NamedTuple):
    """Why something is out of reach, and between which times that counts (monotonic seconds)."""

    reason: str
    since: float
    until: float


class LoopProgress:
    """The progress of one loop. The loop's thread reports it; any thread may read it."""

    def __init__(self, name: str, *, limit: timedelta, clock: Clock, publish: Publish | None = None) -> None:
        self.name = name
        self._limit = limit.total_seconds()
        self._clock = clock
        self._publish = publish
        self._end: str | None = None
        self.tick()

    def tick(self, *, pause: timedelta = timedelta(0)) -> None:
        """A turn begins or has ended. ``pause``: how long the loop is going to wait."""
        now = self._clock.monotonic()
        self._deadline = now + pause.total_seconds() + self._limit
        self._last = now
        if self._publish:
            self._publish(self.name, now, self._deadline)

    def end(self) -> None:
        """The loop need not report any more."""
        self._deadline = math.inf
        if self._publish:
            self._publish(self.name, self._clock.monotonic(), math.inf)

    def died(self, reason: str) -> None:
        """The loop's thread ended without being asked to."""
        self._end = reason
        self._deadline = -math.inf
        if self._publish:
            self._publish(self.name, self._last, self._last)

    def complaint(self, now: float) -> str | None:
        """Why the loop is not alive at ``now`` (monotonic seconds). None: it is."""
        if self._end is not None:
            return f"{self.name}: its thread has ended: {self._end}"
        if now <= self._deadline:
            return None
        return f"{self.name}: no progress for {now - self._last:.0f} s (limit {self._limit:.0f} s)"


class Health:
    """The state of a worker's loops and of the servers that they need. Thread-safe."""

    def __init__(
        self,
        *,
        clock: Clock,
        checks: Mapping[str, Callable[[], None]],
        check_timeout: timedelta = timedelta(seconds=0.8),
        check_lifetime: timedelta = timedelta(seconds=1),
        publish: Publish | None = None,
        publish_missing: Publish | None = None,
        others: OtherProcesses | None = None,
        turned: Turned = lambda _verdict: None,
        silent: Silent = lambda _sentence: None,
    ) -> None:
        """
        Args:
            clock: measures the loops' limits and the age of the checks.
            checks: by name (``database``, ``redis``). Each returns if its server answers, and raises if not.
            check_timeout: a check that takes longer has failed. Under the one second that a kubelet waits for a probe
                by default.
            check_lifetime: how long an answer is reused.
            publish: in a child process, passes every progress on to the parent: the loop's name, the time of the progress, and
                the deadline for the next.
            publish_missing: in a child process, passes on what is missing, from when on, and when that expires (monotonic
                seconds).
            others: in the parent, its child processes.
            turned: see ``Turned``. Only a call of ``alive`` or ``ready`` finds it out.
            silent: see ``Silent``. Only a call of ``ready`` finds a silence.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._publish = publish
        self._publish_missing = publish_missing
        self._others = others
        self._turned = turned
        self._alive = True
        """What was found last."""
        self._loops: dict[LoopProgress, None] = {}
        self._missing: dict[str, _Missing] = {}
        """By what is missing."""
        self._stopping = False
        self._checks = [
            ServerCheck(name, run, clock=clock, timeout=check_timeout, lifetime=check_lifetime, silent=silent)
            for name, run in checks.items()
        ]

    def loop(self, name: str, *, limit: timedelta) -> LoopProgress:
        """Registers a loop. From now on it must report at least every ``limit``."""
        progress = LoopProgress(name, limit=limit, clock=self._clock, publish=self._publish)
        with self._lock:
            self._loops[progress] = None
        return progress

    def forget(self, progress: LoopProgress) -> None:
        """Removes a loop that ended as it should. A loop whose thread dies stays registered, and is found missing."""
        progress.end()
        with self._lock:
            self._loops.pop(progress, None)

    def missing(self, what: str, reason: str | None, *, after: float = 0.0) -> None:
        """Reports something needed as out of reach, with the reason, which makes the worker unready; None: it is back.

        Args:
            after: seconds until the report counts. A thread that may wait in vain reports so before it waits.
        """
        since = self._clock.monotonic() + after
        until = since + MISSING_FOR if reason else 0.0
        with self._lock:
            if reason:
                self._missing[what] = _Missing(reason, since, until)
            else:
                self._missing.pop(what, None)
        if self._publish_missing:
            self._publish_missing(what, since, until)

    def stopping(self) -> None:
        """The worker stops: it is no longer ready, and stays alive while its loops finish."""
        self._stopping = True

    def alive(self) -> HealthVerdict:
        """Whether every loop makes progress."""
        now = self._clock.monotonic()
        with self._lock:
            loops = list(self._loops)
        reasons = [reason for reason in (loop.complaint(now) for loop in loops) if reason]
        if self._others:
            reasons += self._others.complaints(now)
        verdict = HealthVerdict(not reasons, tuple(reasons))
        with self._lock:
            before, self._alive = self._alive, verdict.ok
        if verdict.ok != before:
            self._turned(verdict)
        return verdict

    def ready(self) -> HealthVerdict:
        """Whether the loops run and every server answers. Returns within the checks' timeout."""
        reasons = list(self.alive().reasons)
        if self._stopping:
            reasons.append("stopping")
        elif not self._loops:
            reasons.append("not started")
        if self._others:
            reasons += self._others.not_started()
            reasons += self._others.missing(self._clock.monotonic())
        reasons += self._still_missing()
        # Start all checks before waiting for any, so that two silent servers cost only one timeout.
        for check in self._checks:
            check.begin()
        reasons += [reason for reason in (check.complaint() for check in self._checks) if reason]
        return HealthVerdict(not reasons, tuple(reasons))

    def _still_missing(self) -> list[str]:
        now = self._clock.monotonic()
        with self._lock:
            return [f"{what}: {each.reason}" for what, each in self._missing.items() if each.since <= now < each.until]
