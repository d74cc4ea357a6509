"""A box: one table of items and the policy under which they are delivered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum

from boxengine.domain.codec import Codec
from boxengine.domain.item_id import ItemId, number_of
from boxengine.domain.names import url_name
from boxengine.domain.partitioning import PartitionStrategy, number


class BoxType(StrEnum):
    """Which side of the wire a box serves."""

    OUTBOX = "outbox"
    INBOX = "inbox"


class StrictOrder(StrEnum):
    """How far a failed item holds back the ones after it."""

    NONE = "none"
    """It steps aside; its followers are delivered."""

    BUCKET = "bucket"
    """Its whole bucket waits."""

    KEY = "key"
    """Only its own event key waits."""


class Storage(StrEnum):
    """How a box keeps its items, and what a delivery writes."""

    TABLE = "table"
    """One row per item; its delivery marks or deletes the row."""

    LOG = "log"
    """Items are appended and never touched again; a delivery advances its bucket's position."""


JITTER_STRIDE = 7919
"""A prime: multiplied by it, neighbouring ids fall far apart modulo 1000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Growing pauses between the attempts to deliver an item."""

    minimal: timedelta = timedelta(seconds=10)
    maximal: timedelta = timedelta(seconds=600)
    multiplier: float = 2.0
    jitter: float = 0.0
    """By what share of itself, 0 to 1, a pause may be shorter; each item's share follows from its id."""

    def delay(self, errors_count: int) -> timedelta:
        """The pause after the attempt that brought the count to ``errors_count`` (1 for the first failure)."""
        if errors_count <= 0:
            return timedelta(0)
        # Well before this exponent the maximum has been reached; a larger one could only overflow a float.
        exponent = min(errors_count - 1, 1000)
        try:
            seconds = self.minimal.total_seconds() * self.multiplier**exponent
        except OverflowError:
            return self.maximal
        return timedelta(seconds=min(seconds, self.maximal.total_seconds()))

    def pause(self, errors_count: int, item_id: ItemId) -> timedelta:
        """The delay, shortened by the jitter. By how much follows from the item's id, so any store can compute it."""
        return self.delay(errors_count) * (1 - self.jitter * (number_of(item_id) * JITTER_STRIDE % 1000) / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long finished rows stay, and how gently they are deleted (SEMANTICS: retention)."""

    others: timedelta = timedelta(weeks=1)
    """For failed and discarded rows."""
    delivered: timedelta = timedelta(weeks=1)
    batch_size: int = 1000
    pause: timedelta = timedelta(seconds=0.5)
    window: timedelta = timedelta(hours=4)
    at_most: timedelta | None = None
    """After which a log's items are deleted even if a subscription has not passed them; None: never."""

    @property
    def deletes_on_delivery(self) -> bool:
        """Whether a delivered row is deleted at once, in the transaction that would have marked it."""
        return self.delivered == timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitPolicy:
    """When a transport's circuit opens, and for how long."""

    failures: int = 3
    """How many batches in a row must find the receiver unreachable."""
    failed_attempts: int | None = None
    """How many attempts must fail in a row; None: failed attempts never open the circuit."""
    pause: timedelta = timedelta(seconds=1)
    """The first pause; each failed probe doubles it."""
    longest_pause: timedelta = timedelta(seconds=15)


class Beginning(StrEnum):
    """What a new subscription delivers first."""

    OLDEST = "beginning"
    """The oldest item that is still in the log."""

    NOW = "now"
    """What is committed after its tables were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What makes a box one reader of a log among others."""

    of: Box
    """The box whose log it reads. Items are created there; nothing is delivered under its name."""
    name: str
    begins: Beginning = Beginning.OLDEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One table of items with one policy. Immutable; created from the settings, read everywhere."""

    name: str
    """Underscored model name, with an optional namespace: ``order_outbox_item``, ``combined/outbox_item``."""
    type: BoxType
    table: str
    namespace: str = ""
    """Separates its coordination from that of a box with the same name in another installation (``redis.prefix``)."""
    owner: str | None = None
    bucket_size: int = 16
    partition_strategy: PartitionStrategy = number
    strict_order: StrictOrder = StrictOrder.NONE
    max_retries: int | None = 0
    """How many more attempts may fail after the first before the item is failed; None: no limit (possible in strict order)."""
    backoff: Backoff | None = field(default_factory=Backoff)
    """Pauses between attempts; None if the strategies in force do not wait."""
    retention: Retention = field(default_factory=Retention)
    circuit_breaker: CircuitPolicy = field(default_factory=CircuitPolicy)
    """Applies to each of its transports."""
    storage: Storage = Storage.TABLE
    log_partitions: timedelta | None = None
    """The time that each partition of a new log is meant for; None: a new log is one table."""
    subscriptions: tuple[str, ...] = ()
    """Names of all readers of its log, for such a box and for each reader; empty: only the box itself reads it."""
    subscription: Subscription | None = None
    """For a reader of another box's log: which one it is."""
    sequence: bool = False
    """Whether its items get gapless numbers per event key when they are created."""
    key_index: bool = False
    """Whether a key's rows are searched for in the whole table, which therefore needs an index by key."""
    payload_builder: Callable[..., object] | None = None
    """The model's ``build_payload``, called with the item; None: the stored payload is sent unchanged."""

    codec: Codec | None = None
    """The model's ``__payload__``, which reads the payload for ``item.decoded``; None: it has none."""
    extra_options: Callable[..., object] | None = None
    """The model's ``extra_options``, called with the item: returns a mapping; the item's own options take precedence over it."""
    extra_log_details: Callable[..., object] | None = None
    """The model's ``extra_log_details``, called with the item: returns a mapping for log lines about it."""
    twin: bool = False
    """Whether the name of another box differs from this one in nothing but ``/`` and ``_``."""

    @property
    def label(self) -> str:
        """The name in metrics: a namespace is set off with a dash."""
        return self.name.replace("/", "-")

    @property
    def url_name(self) -> str:
        """See ``names.url_name``."""
        return url_name(self.name, twin=self.twin)

    @property
    def source(self) -> Box:
        """The box under whose name items are created: itself, or the one whose log it reads."""
        return self if self.subscription is None else self.subscription.of

    @property
    def readers(self) -> tuple[Box, ...]:
        """All readers of its log, for code that must know where each keeps its position: itself, or every subscription."""
        own, log = self.subscription, self.source
        if own is None:
            return (self,)
        return tuple(
            replace(self, name=f"{log.name}.{name}", table=f"{log.table}_{name}", subscription=replace(own, name=name))
            for name in self.subscriptions
        )

    @property
    def buckets(self) -> range:
        """All bucket numbers."""
        return range(self.bucket_size)

    def partition(self, number: int, partitions: int) -> range:
        """The buckets b with ``b % partitions == number``."""
        return range(number, self.bucket_size, partitions)

    def exhausted(self, errors_count: int) -> bool:
        """Whether an item with this many failed attempts is failed for good."""
        return self.max_retries is not None and errors_count > self.max_retries
