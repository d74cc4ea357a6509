"""A circuit breaker: stops calling a transport whose receiver cannot be reached, and tries again later with a small batch.

Closed: batches are sent. Open: nothing is sent, so no thread waits for answers that will not come, and the items stay
pending. Half-open: the pause is over and one batch probes the receiver. If it gets through, the circuit closes; if not, it
opens again for twice as long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum, auto

from boxengine.domain.box import CircuitPolicy
from boxengine.ports import Clock, OpenCircuit

UNTRIED = 120.0
"""Seconds after its pause from which on an open circuit that no batch has tried says nothing any more. Nothing waits for its
transport here, and another worker may have found the receiver back."""
LONGEST_ASKED = 3600.0
"""Seconds. The longest pause that a receiver may ask for: a wrong clock or unit on its side must not stop a box for days."""


class Permit(Enum):
    """What a batch may do with a transport."""

    GO = auto()
    PROBE = auto()
    """The circuit is half-open, and this batch probes."""
    NO = auto()


class Breaker:
    """The circuit of one transport. Shared by threads. Each ``PROBE`` must be followed by a call of a reporting method."""

    def __init__(
        self,
        box: str,
        transport: str,
        *,
        policy: CircuitPolicy,
        clock: Clock,
        changed: Callable[[OpenCircuit | None], None] = lambda _circuit: None,
    ) -> None:
        """Args:
        changed: called with the circuit when it opens, and with None when it closes. Must neither raise nor block.
        """
        self._box = box
        self._transport = transport
        self._policy = policy
        self._clock = clock
        self._changed = changed
        self._lock = threading.Lock()
        self._unreachable = 0
        self._failed = 0
        self._hanging = 0
        self._probing = False
        self._pause = timedelta(0)
        self._try_at = 0.0
        self._circuit: OpenCircuit | None = None
        self.calm = True
        """True while the circuit is closed and nothing has failed since. Read without the lock before each batch."""

    @property
    def circuit(self) -> OpenCircuit | None:
        """The open or half-open circuit. None: it is closed."""
        return self._circuit

    @property
    def try_at(self) -> float:
        """Monotonic time from which on a batch may probe, if no call hangs."""
        return self._try_at

    @property
    def forsaken(self) -> bool:
        """Whether it is no longer known if the receiver is down: no batch has tried it for long."""
        return not self._hanging and not self._probing and self._clock.monotonic() > self._try_at + UNTRIED

    def permit(self) -> Permit:
        """What a batch may do now."""
        if self.calm:
            return Permit.GO
        now = self._clock.monotonic()
        with self._lock:
            if self._circuit is None:
                return Permit.GO
            if self._hanging or self._probing or now < self._try_at:
                return Permit.NO
            self._probing = True
            return Permit.PROBE

    # ── what became of a batch ───────────────────────────────────────────────────────────────────────

    def succeeded(self) -> None:
        """The receiver accepted something."""
        if self.calm:
            return
        with self._lock:
            if not self._hanging:
                self._close()

    def unreachable(self, reason: str, *, probe: bool = False, retry_after: float | None = None) -> None:
        """The receiver could not be reached.

        Args:
            retry_after: seconds that the receiver asked senders to wait. The circuit then opens at once.
        """
        now, wall = self._clock.monotonic(), self._clock.now()
        asked = None if retry_after is None else timedelta(seconds=min(LONGEST_ASKED, max(0.0, retry_after)))
        with self._lock:
            self.calm = False
            self._unreachable += 1
            if self._may_open(probe=probe) and (probe or asked or self._unreachable >= self._policy.failures):
                self._open(reason, now, wall, at_least=asked)

    def failed(self, attempts: int, reason: str, *, probe: bool = False) -> None:
        """This many attempts failed and none succeeded, though the receiver seems to be there."""
        limit = self._policy.failed_attempts
        if limit is None:
            # The receiver answered, and failed items have pauses of their own.
            self.succeeded()
            return
        now, wall = self._clock.monotonic(), self._clock.now()
        with self._lock:
            self.calm = False
            self._failed += attempts
            if self._may_open(probe=probe) and (probe or self._failed >= limit):
                self._open(reason, now, wall)

    def unsent(self) -> None:
        """The probing batch was not sent, so the next one may probe."""
        with self._lock:
            self._probing = False

    def untried(self, others: Iterable[Breaker] = ()) -> None:
        """The probing batch had no item for this transport, so another may probe after the shortest pause.

        Not the next one: batches that probe are small, and there may be no such item for long.

        Args:
            others: those that the batch had to leave alone. Its items may need one of them as well, so the next batch that may
                probe that one may probe this one, too. With pauses of their own, they could miss each other for minutes.
        """
        now = self._clock.monotonic()
        together = [each.try_at for each in others if each.try_at > now]
        with self._lock:
            self._probing = False
            self._try_at = min([now + self._policy.pause.total_seconds(), *together])

    def hanging(self, reason: str) -> None:
        """A call did not return in time. Nothing more is sent until it does (``returned``)."""
        now, wall = self._clock.monotonic(), self._clock.now()
        with self._lock:
            self.calm = False
            self._hanging += 1
            self._open(reason, now, wall)

    def returned(self) -> None:
        """A call that hung has returned or raised. After a pause a batch may probe."""
        now, wall = self._clock.monotonic(), self._clock.now()
        with self._lock:
            self._hanging -= 1
            if not self._hanging and self._circuit is not None:
                self._try_at = now + self._pause.total_seconds()
                self._circuit = replace(self._circuit, next_try=wall + self._pause)

    # ── steps, under the lock ────────────────────────────────────────────────────────────────────────

    def _may_open(self, *, probe: bool) -> bool:
        # Batches that were already under way when the circuit opened tell nothing new.
        return self._circuit is None or (probe and self._probing)

    def _open(self, reason: str, now: float, wall: datetime, *, at_least: timedelta | None = None) -> None:
        self._probing = False
        self._pause = min(self._policy.longest_pause, max(self._policy.pause, 2 * self._pause))
        # A pause that the receiver asked for is not doubled: the next pause continues from our own.
        pause = max(self._pause, at_least or self._pause)
        self._try_at = now + pause.total_seconds()
        known = self._circuit
        since = wall if known is None else known.since
        next_try = None if self._hanging else wall + pause
        self._circuit = OpenCircuit(
            box=self._box,
            transport=self._transport,
            since=since,
            next_try=next_try,
            reason=reason,
        )
        if known is None:
            self._changed(self._circuit)

    def _close(self) -> None:
        was_open = self._circuit is not None
        self._circuit = None
        self._unreachable = self._failed = 0
        self._pause = timedelta(0)
        self._probing = False
        self.calm = True
        if was_open:
            # Under the lock, so that listeners hear of openings and closings in order.
            self._changed(None)
