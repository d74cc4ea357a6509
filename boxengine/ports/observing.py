"""Who is told what happened."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.outcome import Settlement
from boxengine.ports.coordination.workers import OpenCircuit
from boxengine.ports.receiving import Consumed, TopicPartition


class Observer(Protocol):
    """Told what happened; counts and logs as it likes. It must not raise and must not block.

    Every method is called once per batch or less, never once per item, and from any thread.
    """

    def created(self, box: Box, *, ids: Sequence[int], buckets: Sequence[int], seconds: float) -> None:
        """Rows were inserted, in the caller's still open transaction; ``ids`` and ``buckets`` go together.

        Rows that were there already (``dedup_key``) are not among them.
        """

    def polled(self, box: Box, partition: int, *, found: int, pushed: int, seconds: float) -> None:
        """A partition was polled: rows found due, jobs pushed."""

    def throttled(self, box: Box, partition: int, *, throttler: str, status: str, seconds: float) -> None:
        """A poll was put off (``status``: throttle, skip) or let pass (noop) by a throttler of the tactic."""

    def queue_measured(self, box: Box, *, length: int, lag: float) -> None:
        """The job queue was looked at: its length, and the age of its oldest job in seconds."""

    def foreign(self, box: Box, elements: Sequence[bytes]) -> None:
        """The queue held what is no job of the box (each element's beginning); it has been dropped."""

    def taken(self, box: Box, *, jobs: int, seconds: float) -> None:
        """A processor thread took jobs; ``seconds`` is how long it waited for them."""

    def transported(self, box: Box, transport: str, *, items: int, failed: int, seconds: float, calls: int = 1) -> None:
        """A transport was called once with so many items, or ``calls`` times with one each; ``failed`` were not delivered.

        ``seconds`` is the time of all these calls, those that raised among them.
        """

    def kept_back(self, box: Box, *, items: Sequence[Item]) -> None:
        """A middleware did not call on for these items, which stay pending; each is told once."""

    def circuit_changed(self, box: Box, transport: str, circuit: OpenCircuit | None) -> None:
        """A transport is left alone from now on, because its receiver could not be reached; None: no longer."""

    def circuit_open(self, box: Box, circuit: OpenCircuit) -> None:
        """A transport is still left alone; told every ten seconds, so that a worker that was killed falls silent."""

    def settled(self, box: Box, items: Sequence[Item], settlement: Settlement, *, seconds: float) -> None:
        """A batch's outcomes are committed. ``items`` are all that were claimed; ``seconds`` from claim to commit."""

    def discarded_by_hand(self, box: Box, ids: Collection[int]) -> None:
        """A person has given these items up."""

    def order_violated(self, box: Box, *, items: Sequence[Item]) -> None:
        """These items were delivered after a later one of their key, against what the box promises."""

    def job_done(self, box: Box, buckets: Iterable[int], *, state: str, seconds: float) -> None:
        """A hold ended: ``state`` is processed, timeout (cutoff), skipped (nothing to do) or failed."""

    def fetch_failed(self, box: Box, reason: str) -> None:
        """Rows could not be read or locked, or an outcome could not be recorded."""

    def deleted(self, box: Box, *, rows: int, seconds: float) -> None:
        """Retention deleted rows in one transaction."""

    def oldest_pending(self, box: Box, *, seconds: float) -> None:
        """The box was looked at for its oldest pending row: its age in seconds, 0 where nothing is pending."""

    def stranded(self, box: Box, *, items: int) -> None:
        """The box was looked at for pending rows in buckets that it does not have: so many, 10,000 at most."""

    def consumed(self, box: Box, counts: Mapping[TopicPartition, Consumed], *, seconds: float) -> None:
        """A batch of messages is stored for good; ``seconds`` from their receipt to the commit."""

    def lagging(self, box: Box, lags: Mapping[TopicPartition, int]) -> None:
        """How many messages a consumer has still before it in the partitions it owns."""

    def outage(self, what: str, reason: str) -> None:
        """A server, a box or a loop stopped working; told once, not at every try."""

    def recovered(self, what: str, *, seconds: float) -> None:
        """What was out works again, after so many seconds."""

    def coordinator_slow(self, *, seconds: float, lease: timedelta) -> None:
        """Redis answers, but only after so many seconds; leases last longer, so that items go out all the same. Told once."""

    def coordinator_quick(self, *, seconds: float, lease: timedelta) -> None:
        """Redis answers quickly again."""


class Tracer(Protocol):
    """Follows an item from its creation to its transport, across processes. Never raises; free where nothing listens.

    Each context manager makes its span the current one, so that what runs inside shows up under it.
    """

    def inject(self, headers: dict[str, str]) -> dict[str, str]:
        """These headers with the current context added; the very same dict where there is none to add.

        A context that the headers already carry stays. For a batch, call it once with ``{}`` and share what comes back.
        """

    def creating(self, box: Box, count: int) -> AbstractContextManager[object]:
        """Around the insertion of ``count`` rows."""

    def polling(self, box: Box, partition: int) -> AbstractContextManager[object]:
        """Around one poll of a partition."""

    def processing(self, box: Box, items: Sequence[Item]) -> AbstractContextManager[object]:
        """Around the work on one claim, from its rows to its commit; linked to the contexts the items carry."""

    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> AbstractContextManager[object]:
        """Around one call of a transport with one item or a whole batch."""


class ErrorTracker(Protocol):
    """Told of what a person should see: items that failed for good, loops that broke."""

    def __call__(self, error: BaseException | str, /, **context: Any) -> None: ...
