"""Observers and tracers for when nobody watches: the defaults of everything that takes one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.outcome import Settlement
from boxengine.ports import Consumed, OpenCircuit, TopicPartition


class NullObserver:
    """Keeps nothing. Also the base for an observer that cares about a few events only."""

    def created(self, box: Box, *, ids: Sequence[int], buckets: Sequence[int], seconds: float) -> None: ...

    def polled(self, box: Box, partition: int, *, found: int, pushed: int, seconds: float) -> None: ...

    def throttled(self, box: Box, partition: int, *, throttler: str, status: str, seconds: float) -> None: ...

    def queue_measured(self, box: Box, *, length: int, lag: float) -> None: ...

    def foreign(self, box: Box, elements: Sequence[bytes]) -> None: ...

    def taken(self, box: Box, *, jobs: int, seconds: float) -> None: ...

    def transported(
        self, box: Box, transport: str, *, items: int, failed: int, seconds: float, calls: int = 1
    ) -> None: ...

    def kept_back(self, box: Box, *, items: Sequence[Item]) -> None: ...

    def circuit_changed(self, box: Box, transport: str, circuit: OpenCircuit | None) -> None: ...

    def circuit_open(self, box: Box, circuit: OpenCircuit) -> None: ...

    def settled(self, box: Box, items: Sequence[Item], settlement: Settlement, *, seconds: float) -> None: ...

    def discarded_by_hand(self, box: Box, ids: Collection[int]) -> None: ...

    def order_violated(self, box: Box, *, items: Sequence[Item]) -> None: ...

    def job_done(self, box: Box, buckets: Iterable[int], *, state: str, seconds: float) -> None: ...

    def fetch_failed(self, box: Box, reason: str) -> None: ...

    def deleted(self, box: Box, *, rows: int, seconds: float) -> None: ...

    def oldest_pending(self, box: Box, *, seconds: float) -> None: ...

    def stranded(self, box: Box, *, items: int) -> None: ...

    def consumed(self, box: Box, counts: Mapping[TopicPartition, Consumed], *, seconds: float) -> None: ...

    def lagging(self, box: Box, lags: Mapping[TopicPartition, int]) -> None: ...

    def outage(self, what: str, reason: str) -> None: ...

    def recovered(self, what: str, *, seconds: float) -> None: ...

    def coordinator_slow(self, *, seconds: float, lease: timedelta) -> None: ...

    def coordinator_quick(self, *, seconds: float, lease: timedelta) -> None: ...


class NullTracer:
    """Follows nothing."""

    _nothing: AbstractContextManager[object] = nullcontext()

    def inject(self, headers: dict[str, str]) -> dict[str, str]:
        return headers

    def creating(self, box: Box, count: int) -> AbstractContextManager[object]:  # noqa: ARG002 - the port's shape
        return self._nothing

    def polling(self, box: Box, partition: int) -> AbstractContextManager[object]:  # noqa: ARG002 - the port's shape
        return self._nothing

    def processing(self, box: Box, items: Sequence[Item]) -> AbstractContextManager[object]:  # noqa: ARG002 - the port's shape
        return self._nothing

    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> AbstractContextManager[object]:  # noqa: ARG002 - the port's shape
        return self._nothing
