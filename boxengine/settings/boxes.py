"""The keys of one box: ``outbox_items.NAME`` and ``inbox_items.NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from boxengine.domain import retry
from boxengine.domain.box import Beginning, CircuitPolicy, Storage, StrictOrder
from boxengine.domain.names import default_table
from boxengine.settings.descriptions import describe
from boxengine.settings.values.choices import BeginningKind, Order, StorageKind
from boxengine.settings.values.numbers import Acks, Count, CountOrZero, Factor, Flag, Share
from boxengine.settings.values.places import DeadLetter, Servers, Topics
from boxengine.settings.values.texts import CUT, DottedPaths, Text
from boxengine.settings.values.times import Duration, Seconds, SecondsOrZero

RESERVED = ("class", "event_name", "disposable")
"""Keys of a transport that are the engine's; all others are arguments (``timeout`` where its class takes none)."""


_TRANSPORT_SCHEMA: dict[str, Any] = {
    "type": ["object", "null"],
    "properties": {
        "class": {"type": "string"},
        "event_name": {"type": "string"},
        "disposable": {"type": "boolean"},
        "timeout": {"anyOf": [{"type": "number"}, {"type": "string"}]},
    },
}
_TRANSPORTS_SCHEMA = WithJsonSchema(
    {
        "anyOf": [
            {"type": "object", "additionalProperties": _TRANSPORT_SCHEMA},
            {"type": "array", "items": {**_TRANSPORT_SCHEMA, "type": "object", "required": ["class"]}},
        ]
    }
)


class Section(BaseModel):
    """A mapping with known keys. A key without a value is the same as no key."""

    # What parses them is built once, for the whole file, and not for each section by itself.
    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra=describe, populate_by_name=True, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, data: object) -> object:
        if data is None:
            return {}
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class KafkaSettings(Section):
    """How to reach Kafka: the defaults of every ``kafka`` transport and source."""

    bootstrap_servers: Servers | None = None
    """``host:port,host:port``, or a list."""
    config: Mapping[str, Any] = Field(default_factory=dict)
    """Handed to librdkafka untouched."""
    required_acks: Acks | None = None
    """As in sbmt-outbox; librdkafka's ``acks`` (-1: all replicas in sync)."""
    max_retries: CountOrZero | None = None
    """As in sbmt-outbox; librdkafka's ``message.send.max.retries``."""

    def for_all(self) -> dict[str, Any]:
        """The arguments that transports and sources share, where they are given: ``bootstrap_servers`` and ``config``."""
        shared = {"bootstrap_servers": self.bootstrap_servers, "config": dict(self.config) or None}
        return {name: value for name, value in shared.items() if value is not None}

    def for_transports(self) -> dict[str, Any]:
        """The shared arguments, and those that only a producer has a use for."""
        own = {"required_acks": self.required_acks, "max_retries": self.max_retries}
        return self.for_all() | {name: value for name, value in own.items() if value is not None}


class TransportSettings(Section):
    """One transport of a box."""

    name: str
    class_name: Text = Field(alias="class")
    """Dotted path of a class, a function or a module with an ``OutboxTransportFactory``; or a built-in's short name."""
    event_name: Text | None = None
    """Only items with this event name."""
    disposable: Flag | None = None
    """false: made once and kept; true: made anew for each call; left out: the top level's ``disposable_transports``."""
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    """All other keys."""


class KafkaSource(Section):
    """Topics whose messages become items of an inbox box."""

    topics: Topics = Field(min_length=1)
    group: Text
    """Consumer group."""
    concurrency: Count = 1
    """Consumers in one process."""
    bootstrap_servers: Servers | None = None
    """Left out: the top level's ``kafka.bootstrap_servers``."""
    config: Mapping[str, Any] = Field(default_factory=dict)
    """Handed to librdkafka, over the top level's ``kafka.config``."""
    batch_size: Count = 500
    """Messages in one transaction, at most."""
    max_payload_bytes: Count | None = None
    """Larger messages are dead letters. Left out: no limit."""
    dead_letter: DeadLetter | None = None
    """Where messages go that cannot be stored: ``box: NAME`` or ``topic: NAME``. Left out: failed rows of the box itself."""
    event_name: Text | None = None
    """Of the items: a text, a template over the message (``{headers.Type}``), or a dotted path. Left out: its header."""
    event_key: Text | None = None
    """Of the items, likewise. Left out: the message's key."""
    attributes: Mapping[str, Text] = Field(default_factory=dict)
    """More columns of the table, each likewise."""


class SourceSettings(Section):
    """Where the items of an inbox box come from."""

    kafka: KafkaSource


class CircuitBreakerSettings(Section):
    """When a transport is left alone for a while: its items stay pending, and no attempt is counted."""

    failures: Count = 3
    """Batches in a row for which its receiver could not be reached (``Unavailable``)."""
    failed_attempts: Count | None = None
    """Failed attempts in a row with no success among them. Left out: they never open the circuit."""
    pause: Seconds = timedelta(seconds=1)
    """Until a small batch tries again; doubled each time that fails, ..."""
    longest_pause: Seconds = timedelta(seconds=15)
    """... up to this."""

    def policy(self) -> CircuitPolicy:
        """This section as the engine's policy."""
        return CircuitPolicy(
            failures=self.failures,
            failed_attempts=self.failed_attempts,
            pause=self.pause,
            longest_pause=max(self.pause, self.longest_pause),
        )


class SubscriptionSettings(Section):
    """One reader of a log box. Each key that is left out has the box's value."""

    transports: Annotated[Mapping[str, TransportSettings], _TRANSPORTS_SCHEMA] = Field(default_factory=dict)
    """A mapping (name -> arguments) or a list (each with ``class``)."""
    begins: BeginningKind = Field(default=Beginning.OLDEST, alias="from")
    """What it delivers first. beginning: the oldest item in the log; now: what is committed after ``db create`` made it."""
    owner: Text | None = None
    async_concurrency: Count | None = None
    strict_order: Order | None = None
    max_retries: CountOrZero | None = None
    retry_strategies: DottedPaths | None = None
    minimal_retry_interval: SecondsOrZero | None = None
    maximal_retry_interval: SecondsOrZero | None = None
    multiplier_retry_interval: Factor | None = None
    jitter_retry_interval: Share | None = None

    @field_validator("transports", mode="before")
    @classmethod
    def _named_transports(cls, value: object) -> object:
        return _by_name(value)


class BoxSettings(Section):
    """One box. What is left out has the default shown, or that of the top level."""

    model: Text | None = None
    """Dotted path of a model class; left out, the engine makes one over ``table``."""
    table: Text | None = None
    """Left out: the model's, or the box's name in the plural."""
    owner: Text | None = None
    bucket_size: Count | None = None
    partition_strategy: Text = "number"
    """number, hash, or the dotted path of a callable ``(key, bucket_size) -> int``."""
    transports: Annotated[Mapping[str, TransportSettings], _TRANSPORTS_SCHEMA] = Field(default_factory=dict)
    """A mapping (name -> arguments) or a list (each with ``class``)."""
    async_concurrency: Count = 200
    """Calls of ``async def`` transports that may be under way at once in one process."""
    circuit_breaker: CircuitBreakerSettings = Field(default_factory=CircuitBreakerSettings)
    max_payload_bytes: Count | None = None
    """Larger payloads are refused when they are created. Left out: the top level's."""
    storage: StorageKind = Storage.TABLE
    """table: one row for each item, which its delivery marks; log (PostgreSQL): items are appended, and a delivery writes none of
    them."""
    log_partitions: Duration | None = None
    """With storage: log, the time that each partition of a new log is meant for: retention drops whole partitions. Left out: a
    new log is one table, of which retention deletes rows."""
    subscriptions: Mapping[str, SubscriptionSettings] = Field(default_factory=dict)
    """With storage: log, in place of ``transports``: readers of the log, each with transports and a progress of its own."""
    retain_at_most: Duration | None = None
    """Beside ``subscriptions``: after which items are deleted even if a subscription has not delivered them. Left out: never."""
    sequence: Flag = False
    """Whether items get gapless numbers per event key, sent as the header Sequence-Number."""
    key_index: Flag | None = None
    """Whether the table has an index over (event_key, id). Left out: if latest_available is among the retry strategies."""
    strict_order: Order = StrictOrder.NONE
    """false; true (= bucket): a failed item's bucket waits for it; key: only its key waits."""
    max_retries: CountOrZero | None = None
    """Attempts after the first. Left out: 0; under strict_order: no end."""
    retry_strategies: DottedPaths | None = None
    """exponential_backoff, latest_available, no_delay, compacted_log, or dotted paths; asked in this order."""
    minimal_retry_interval: SecondsOrZero = timedelta(seconds=10)
    maximal_retry_interval: SecondsOrZero = timedelta(seconds=600)
    multiplier_retry_interval: Factor = 2.0
    jitter_retry_interval: Share = 0.0
    """Share of a pause, 0 to 1, by which it may be shorter."""
    retention: Duration = timedelta(weeks=1)
    """How long failed and discarded items stay after their last attempt, or after they were discarded."""
    min_retention_period: Duration = timedelta(days=1)
    retention_delivered_items: Duration | None = None
    """How long delivered items stay after their creation; left out: ``retention``; PT0S: deleted on delivery."""
    delivered_min_retention_period: Duration = timedelta(hours=1)
    deletion_batch_size: Count = 1000
    """Rows per statement and transaction."""
    deletion_sleep_time: SecondsOrZero = timedelta(seconds=0.5)
    """Pause between two batches."""
    deletion_time_window: Duration = timedelta(hours=4)
    """Span of creation times that one round looks at."""
    partition_size: Count | None = None
    """Ignored with a warning: belongs to the old worker of sbmt-outbox."""

    @field_validator("transports", mode="before")
    @classmethod
    def _named_transports(cls, value: object) -> object:
        return _by_name(value)

    def readers(self, name: str) -> dict[str, BoxSettings]:
        """The subscriptions as boxes, by the name that each has among all boxes.

        Args:
            name: this box's.
        """
        return {f"{name}.{own}": self._reader(name, own, each) for own, each in self.subscriptions.items()}

    def _reader(self, box: str, name: str, given: SubscriptionSettings) -> BoxSettings:
        own = {key: getattr(given, key) for key in given.model_fields_set - {"begins"}}
        table = f"{self.table_for(box)}_{name}" if self.model is None or self.table else None
        unread: dict[str, Any] = {"subscriptions": {}, "retain_at_most": None, "partition_size": None, "table": table}
        return self.model_copy(update={**unread, "transports": {}, **own})

    @property
    def strategies(self) -> tuple[str, ...]:
        """The retry strategies in force; none under strict order, where only the pause counts."""
        if self.strict_order is not StrictOrder.NONE:
            return ()
        return self.retry_strategies or retry.DEFAULT

    @property
    def reads_keys(self) -> bool:
        """Whether a strategy may look for later rows of a key: without ``max_retries`` too, after a retry by hand."""
        return not retry.READING_KEYS.isdisjoint(self.strategies)

    @property
    def retries(self) -> int | None:
        """Failed attempts allowed beyond the first; None: no end."""
        match self.strict_order:
            case StrictOrder.NONE:
                return self.max_retries or 0
            case StrictOrder.BUCKET:
                return None
            case StrictOrder.KEY:
                return self.max_retries

    @property
    def delivered_retention(self) -> timedelta:
        """How long delivered items stay."""
        return self.retention if self.retention_delivered_items is None else self.retention_delivered_items

    def table_for(self, name: str) -> str:
        """The table of the box of this name, where no model says otherwise."""
        return self.table or default_table(name)


class InboxSettings(BoxSettings):
    """An inbox box, which may also say where its items come from."""

    source: SourceSettings | None = None


def _by_name(transports: object) -> object:
    if isinstance(transports, list):
        return {str(place): _transport(None, entry) for place, entry in enumerate(transports) if entry is not CUT}
    if isinstance(transports, dict):
        return {name: _transport(name, entry) for name, entry in transports.items()}
    raise ValueError("expected a mapping (name: arguments) or a list of mappings (each with class)")


def _transport(name: str | None, entry: object) -> object:
    """The engine's keys apart from the arguments; what is not a mapping is left for the model to refuse."""
    if entry is None:
        entry = {}
    if not isinstance(entry, dict):
        return entry
    arguments = {key: value for key, value in entry.items() if key not in RESERVED}
    own = {key: entry[key] for key in RESERVED if entry.get(key) is not None}
    if name is not None:
        own.setdefault("class", name)
    return own | {"name": name or str(own.get("class", "")), "arguments": arguments}
