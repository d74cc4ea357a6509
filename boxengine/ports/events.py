"""What the engine tells its observer: one frozen value per event.

An event describes a batch, a poll or a turn, never a single item of many, so its cost does not grow with the number of
items. Durations and ages are in seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from enum import StrEnum

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import Settlement
from boxengine.ports.coordination.workers import OpenCircuit, WorkerInfo
from boxengine.ports.jobs import JobEvent
from boxengine.ports.receiving import Consumed, TopicPartition

# ── create ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Created:
    """Rows were inserted in the caller's transaction, which is still open. Duplicates (``dedup_key``) are left out."""

    box: Box
    _: KW_ONLY
    ids: Sequence[ItemId]
    buckets: Sequence[int]
    """The bucket of each id, in the same order."""
    seconds: float


# ── poll ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Polled:
    """A partition was polled."""

    box: Box
    partition: int
    _: KW_ONLY
    found: int
    """How many rows are due, or how many buckets writers have named."""
    pushed: int
    """How many jobs it queued."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Throttled:
    """One of the tactic's throttlers delayed or skipped a poll, or a middleware held it back."""

    box: Box
    partition: int
    _: KW_ONLY
    throttler: str
    status: str
    """``throttle`` or ``skip``."""
    seconds: float
    held_back: str | None = None
    """Which middleware did not call ``call_next()``, in words; None: a throttler spoke against the poll."""


@dataclass(frozen=True, slots=True)
class QueueMeasured:
    """How long a box's job queue is."""

    box: Box
    _: KW_ONLY
    length: int
    lag: float
    """Age of the oldest job."""


@dataclass(frozen=True, slots=True)
class ForeignJobs:
    """The queue held elements that are not jobs of the box. They were dropped."""

    box: Box
    elements: Sequence[bytes]
    """The first bytes of each."""


@dataclass(frozen=True, slots=True)
class NamesTwice:
    """Another worker shares this one's Redis and has boxes of the same names in another database.

    Each takes the other's jobs, leases and pauses. Reported once for each such worker.
    """

    worker: WorkerInfo
    """The other one."""
    boxes: Sequence[str]
    """The names that both use."""


# ── deliver ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Taken:
    """A processor thread took jobs."""

    box: Box
    _: KW_ONLY
    jobs: int
    seconds: float
    """How long it waited for them."""


@dataclass(frozen=True, slots=True)
class Transported:
    """A transport was called: once with all the items, or once for each of them."""

    box: Box
    transport: str
    _: KW_ONLY
    items: int
    failed: int
    """How many of the items were not delivered."""
    seconds: float
    """How long all calls took together, including those that raised."""
    calls: int = 1


@dataclass(frozen=True, slots=True)
class KeptBack:
    """A middleware did not call ``call_next`` for these items, so they stay pending. Each item is reported once."""

    box: Box
    _: KW_ONLY
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class CircuitChanged:
    """A transport's circuit opened, because its receiver could not be reached, or closed."""

    box: Box
    transport: str
    circuit: OpenCircuit | None
    """None: closed."""


@dataclass(frozen=True, slots=True)
class CircuitOpen:
    """A circuit is still open. Repeated every ten seconds, so that a worker that was killed falls silent."""

    box: Box
    circuit: OpenCircuit


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcomes of a batch are committed."""

    box: Box
    items: Sequence[Item]
    """All that were claimed."""
    settlement: Settlement
    _: KW_ONLY
    seconds: float
    """From the claim to the commit."""
    raised: Mapping[ItemId, BaseException] = field(default_factory=dict)
    """What transports raised, by the item whose attempt failed by it."""
    kept_back: Sequence[Item] = ()
    """Items whose middleware did not call ``call_next()``, also those that ``KeptBack`` has told of before."""


@dataclass(frozen=True, slots=True)
class OrderViolated:
    """These items were delivered after a later one of their key, against what the box promises."""

    box: Box
    _: KW_ONLY
    items: Sequence[Item]


class Ending(StrEnum):
    """How a hold ended; the values are those of the metric's ``state`` label."""

    PROCESSED = "processed"
    TIMEOUT = "timeout"
    """Its time ran out: the buckets were left to others."""
    SKIPPED = "skipped"
    """There was nothing to do."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class HoldEnded:
    """A processor thread has finished with the buckets that it took."""

    box: Box
    buckets: Sequence[int]
    ending: Ending
    _: KW_ONLY
    seconds: float


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """Rows could not be read or locked, or an outcome could not be recorded."""

    box: Box
    reason: str


# ── beside the journey ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class DiscardedByHand:
    """A person discarded these items."""

    box: Box
    ids: Collection[ItemId]


@dataclass(frozen=True, slots=True)
class Deleted:
    """Retention deleted rows in one transaction."""

    box: Box
    _: KW_ONLY
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class OldestPending:
    """How old a box's oldest pending row is; 0 if nothing is pending."""

    box: Box
    _: KW_ONLY
    seconds: float


@dataclass(frozen=True, slots=True)
class Unread:
    """The age of the oldest item in the log that a subscription has not passed yet; 0: it has passed all."""

    box: Box
    _: KW_ONLY
    seconds: float


@dataclass(frozen=True, slots=True)
class RetentionHeld:
    """Retention keeps items that it would otherwise delete, because a subscription has not passed them yet."""

    box: Box
    _: KW_ONLY
    age: timedelta
    """The age of the oldest of these items."""


@dataclass(frozen=True, slots=True)
class Stranded:
    """How many pending rows lie in buckets that the box does not have; counted up to 10,000."""

    box: Box
    _: KW_ONLY
    items: int


@dataclass(frozen=True, slots=True)
class MessagesStored:
    """A batch of messages has been committed to the inbox."""

    box: Box
    counts: Mapping[TopicPartition, Consumed]
    _: KW_ONLY
    seconds: float
    """From their receipt to the commit."""


@dataclass(frozen=True, slots=True)
class Lagging:
    """How many messages a consumer has still to read in the partitions that it owns."""

    box: Box
    lags: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OutageBegan:
    """A server, a box or a loop stopped working. Reported once, not at every try."""

    what: str
    reason: str
    apart: bool = False
    """Whether the reason concerns one table: others that stopped for it, in the same words, did not stop with this."""


@dataclass(frozen=True, slots=True)
class OutageLasts:
    """Something still does not work. Reported at every further try, or now and then if there is none."""

    what: str
    _: KW_ONLY
    seconds: float
    """How long it has been out."""
    reason: str | None = None
    """Of the last try; None: there was none."""


@dataclass(frozen=True, slots=True)
class OutageEnded:
    """Something that had failed works again, or has nothing left to do."""

    what: str
    _: KW_ONLY
    seconds: float
    """How long it was out."""
    works: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSlow:
    """Redis answers slowly, so leases last longer; items still go out. Reported once."""

    seconds: float
    """How long an answer takes."""
    lease: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorQuick:
    """Redis answers quickly again."""

    seconds: float
    lease: timedelta


Event = (
    Created
    | Polled
    | Throttled
    | QueueMeasured
    | ForeignJobs
    | NamesTwice
    | Taken
    | Transported
    | KeptBack
    | CircuitChanged
    | CircuitOpen
    | Settled
    | OrderViolated
    | HoldEnded
    | FetchFailed
    | DiscardedByHand
    | Deleted
    | OldestPending
    | Unread
    | RetentionHeld
    | Stranded
    | MessagesStored
    | Lagging
    | OutageBegan
    | OutageLasts
    | OutageEnded
    | CoordinatorSlow
    | CoordinatorQuick
    | JobEvent
)
