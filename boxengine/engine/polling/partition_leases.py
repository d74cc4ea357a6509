"""Who polls a partition: one worker at a time, by a lease that it keeps from one poll to the next."""

from __future__ import annotations

from datetime import timedelta

from boxengine.domain.box import Box
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, Duty, LeaseName, Leases


class PartitionLeases:
    """Renews each lease only when half of its time is over, so that few polls need a round trip for it."""

    def __init__(self, leases: Leases, token: str, *, ttl: timedelta, clock: Clock) -> None:
        self._leases = leases
        self._token = token
        self._ttl = ttl
        self._clock = clock
        self._renew_at: dict[LeaseName, float] = {}

    def hold(self, box: Box, partition: int) -> bool:
        """Whether this worker may poll the partition now."""
        name = LeaseName(Duty.POLLING, box.name, partition)
        now = self._clock.monotonic()
        if now < self._renew_at.get(name, 0.0):
            return True
        if not self._leases.acquire(name, self._token, ttl=self._ttl):
            self._renew_at.pop(name, None)
            return False
        self._renew_at[name] = now + self._ttl.total_seconds() / 2
        return True

    def release_all(self) -> None:
        """Lets others poll at once, when the worker stops."""
        names, self._renew_at = list(self._renew_at), {}
        try:
            for name in names:
                self._leases.release(name, self._token)
        except QueueUnavailable:
            pass  # the leases expire by themselves
