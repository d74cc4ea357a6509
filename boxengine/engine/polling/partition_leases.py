"""Who polls a partition: one worker at a time, by a lease that it keeps from one poll to the next.

Workers with different settings of ``poller.concurrency`` poll beside each other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from math import inf

from boxengine.domain.box import Box
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, Duty, LeaseName, Leases

RENEWED = 0.5
"""Of a lease's time; after that, the next poll has it renewed."""
MARGIN = 0.75
"""Of a lease's time; after that, a poll waits for the answer, because another worker may soon have the lease."""


class PartitionLeases:
    """Renews a lease behind a poll, once half of its time is over: few polls need a round trip, and hardly any waits for it."""

    def __init__(
        self, leases: Leases, token: str, *, partitions: Callable[[Box], int], ttl: timedelta, clock: Clock
    ) -> None:
        """Args:
        partitions: into how many this worker divides a box.
        """
        self._leases = leases
        self._partitions = partitions
        self._token = token
        self._ttl = ttl
        self._clock = clock
        self._acquired: dict[LeaseName, float] = {}
        """Monotonic time at which a lease was last asked for, and had."""

    def hold(self, box: Box, partition: int) -> bool:
        """Whether this worker may poll the partition now."""
        name = self._name(box, partition)
        return self._age(name) < MARGIN or self._acquire(name)

    def keep(self, box: Box, partition: int) -> None:
        """Renews the lease for the next poll, if it is time to; a coordinator that does not answer is left to that poll."""
        name = self._name(box, partition)
        if RENEWED <= self._age(name) < 1:
            with suppress(QueueUnavailable):
                self._acquire(name)

    def release_all(self) -> None:
        """Lets others poll at once, when the worker stops."""
        names, self._acquired = list(self._acquired), {}
        try:
            for name in names:
                self._leases.release(name, self._token)
        except QueueUnavailable:
            pass  # the leases expire by themselves

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _name(self, box: Box, partition: int) -> LeaseName:
        return LeaseName(Duty.POLLING, box.name, partition, of=self._partitions(box))

    def _age(self, name: LeaseName) -> float:
        """How much of its time is over, 1 for all of it; without end where there is no lease."""
        acquired = self._acquired.get(name)
        return inf if acquired is None else (self._clock.monotonic() - acquired) / self._ttl.total_seconds()

    def _acquire(self, name: LeaseName) -> bool:
        now = self._clock.monotonic()
        if not self._leases.acquire(name, self._token, ttl=self._ttl):
            self._acquired.pop(name, None)
            return False
        self._acquired[name] = now
        return True
