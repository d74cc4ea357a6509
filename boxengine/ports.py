"""What the engine needs of the world, one small Protocol each.

Every docstring here is a contract; ``tests/conformance`` holds each implementation to it, the
in-memory twins and the real ones alike. Nothing in this module knows SQL, Redis commands or rows of
one database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.job import Job
from boxengine.domain.message import ReceivedMessage
from boxengine.domain.outcome import Settlement, Unrecorded


class Clock(Protocol):
    """Time as an argument: no module below the composition root reads it from the system."""

    def now(self) -> datetime:
        """Wall-clock time, with zone UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back; goes on while the process is stopped."""


# ── the store ────────────────────────────────────────────────────────────────────────────────────────


class PendingRow(NamedTuple):
    """What a poll knows of a row that is due."""

    id: int
    bucket: int
    errors_count: int


class Outlook(NamedTuple):
    """What a look over the buckets of a box finds."""

    due: list[int]
    """Those with at least one due row."""
    next_in: timedelta | None
    """How long until the first row of the box that waits for its ``available_at`` has it; None where that is not known."""


class Claim(Protocol):
    """One open transaction of the store, holding the locks of its buckets until it ends.

    Nobody else can record an outcome for these buckets while it is open.
    """

    items: Sequence[Item]
    """The due rows of the granted buckets, locked, in id order within each bucket, at most the limit asked for."""

    refused: frozenset[int]
    """Buckets that somebody else holds; none of their rows are in ``items``."""

    exhausted: frozenset[int]
    """Granted buckets of which ``items`` holds every row that was due."""

    unreadable: Mapping[int, str]
    """By id, those of ``items`` whose rows could not be read, and why: such an item holds what could be made out, and fails."""

    now: datetime
    """The store's clock when the claim was made, with zone UTC. Due times are computed against it."""

    @property
    def session(self) -> Any:
        """The user's session on this very transaction (a SQLAlchemy ``Session``), made at first use."""

    def savepoint(self) -> AbstractContextManager[None]:
        """What is written through ``session`` inside is undone if the block raises; the claim goes on."""

    def later_delivered(self, items: Sequence[Item]) -> Mapping[int, int]:
        """The ids of those items of which a later one, of the same key and event name, has been delivered; each with its id."""

    def commit(self, settlement: Settlement) -> Unrecorded | None:
        """Writes all outcomes and ends the transaction, which frees the buckets.

        Returns what could not be recorded of single rows: a refused row repeats none of its neighbours.

        Raises:
            StoreUnavailable: nothing is known to be written; the rows count as pending.
        """


class Store(Protocol):
    """The rows of all boxes. Every method raises ``StoreUnavailable`` where the database does not answer."""

    def poll(self, box: Box, buckets: Sequence[int], limit: int, *, regular_only: bool = False) -> list[PendingRow]:
        """Due rows of these buckets, about ``limit`` at most, each bucket getting its fair share, in id order.

        Due means: pending, past its pause (``box.backoff``), past its ``available_at``, and not held back by strict order.
        ``regular_only`` leaves out rows that have failed before. Takes no locks; may read a replica.
        """

    def outlook(self, box: Box, buckets: Sequence[int]) -> Outlook:
        """Where anything is due, and when something will be. One round trip, cheap enough to be asked every second."""

    def pending(self, boxes: Sequence[Box]) -> frozenset[str]:
        """Names of those with at least one pending row, due or not. Few round trips, however many boxes there are."""

    def claim(
        self, box: Box, buckets: Mapping[int, int], limit: int, *, only_outcomes: bool = False
    ) -> AbstractContextManager[Claim]:
        """Opens a transaction, takes the locks of the buckets without waiting for them, and reads their due rows.

        ``buckets`` maps each bucket to the id after which to read (0: from the start; a hint that spares reading
        what was just settled). Leaving the context without ``commit`` undoes everything.

        ``only_outcomes``: nobody will ask the claim for its ``session`` or for ``later_delivered``. The store may then write
        at once what a delivery of all rows would write, as long as ``commit`` and leaving do what they always do.
        """

    def ping(self) -> None:
        """Returns if the database answers."""


class Swept(NamedTuple):
    """What a look at some rows came to."""

    deleted: int
    last_id: int | None
    """Of the rows looked at; None: there were none, the table ends here."""


class Tables(Protocol):
    """The tables behind the boxes, which people may alter while a worker runs."""

    def look_again(self) -> Sequence[str]:
        """Finds out which known tables have changed, and works with them as they are from here on; names of their boxes.

        Cheap enough to be asked every half minute.

        Raises:
            StoreUnavailable: the database does not answer.
        """


class HistoryStore(Protocol):
    """What looks at and deletes finished rows: retention, status, metrics. Never in the path of a delivery."""

    def counts(self, box: Box) -> Mapping[int, int]:
        """Rows by status number. Counts the whole table: for people, not for metrics."""

    def oldest_pending(self, box: Box) -> datetime | None:
        """Since when (zone UTC) the pending row that has waited longest has been there: since its creation, or since its
        ``available_at`` where that is later. Rows that are delayed beyond now do not wait. None: nothing does.

        Cheap enough to be asked every few seconds: it looks at the first rows of each bucket only.
        """

    def stranded_items(self, box: Box) -> int:
        """Pending rows in buckets that the box does not have, where no worker looks; from 10,000 on it counts no further."""

    def oldest_finished(self, box: Box, statuses: Sequence[int]) -> datetime | None:
        """``created_at`` of the first row, by id, with one of these statuses; may read a replica."""

    def delete_finished(
        self, box: Box, statuses: Sequence[int], *, created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        """Deletes, in one transaction, at most ``limit`` such rows of that span of creation; returns how many.

        It need not find rows that stand, by id, far behind many others of their statuses: ``sweep_finished`` does.
        """

    def sweep_finished(self, box: Box, before: Mapping[int, datetime], *, after: int, limit: int) -> Swept:
        """Looks at the next rows by id, a bounded number of them, and deletes the old among them in one transaction.

        Args:
            before: by status, the ``created_at`` from which on rows stay. Pending rows stay in any case.
            after: the id after which to look.
            limit: of rows to delete.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Which rows of a box a person means; what is left out does not restrict."""

    statuses: frozenset[int] = frozenset()
    ids: tuple[int, ...] = ()
    event_key: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    up_to: int | None = None
    """The highest id that is meant."""
    tried: bool = False
    """Of pending rows only those with failed attempts."""
    uuid: str | None = None
    """In its canonical form."""
    event_name: str | None = None
    error: str | None = None
    """Text that stands in the ``error_log``, in whatever case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRow:
    """One row as people look at it; of a column that the table lacks, None. Moments have zone UTC.

    What Python cannot hold (an infinite moment, options that are no JSON) is the text that the database has for it.
    """

    id: int
    uuid: str
    event_name: str | None
    event_key: str
    bucket: int
    status: int
    errors_count: int
    created_at: datetime | str
    processed_at: datetime | str | None
    available_at: datetime | str | None
    dedup_key: str | None
    options: Mapping[str, Any] | str | None
    error_log: str | None
    payload: bytes | None
    """None in a page, where it would be much to carry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """How the copies of delivered rows differ from them."""

    header: str
    """Of the copies' own: carries the uuid of the row that it is a copy of."""
    event_name: str | None = None
    """None: that of the row."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Set in the copies' options."""
    same_identity: bool = False
    """Whether receivers are given the row's own ``Idempotency-Key``, so that those that know it drop the copy."""


class ItemsStore(Protocol):
    """What people do with rows: look at them, and retry, discard or delete them. Never in the path of a delivery.

    Each change is one transaction over the ids given, at most some thousands. It waits for nobody: rows that a worker has
    locked stay as they are and are not among the ids returned, nor are rows that the filter does not mean (any more).
    What lets other rows go on (a retry; under strict order a discard or a deletion too) wakes the workers.
    Every method raises ``StoreUnavailable`` where the database does not answer.
    """

    def count(self, box: Box, which: ItemFilter) -> int:
        """How many rows are meant."""

    def last_id(self, box: Box) -> int:
        """The highest id of the box's rows; 0 where there are none."""

    def ids(self, box: Box, which: ItemFilter, *, after: int, limit: int) -> list[int]:
        """The next ids, in order, that are greater than ``after``."""

    def page(self, box: Box, which: ItemFilter, *, after: int, limit: int) -> list[ItemRow]:
        """The next rows by id, without their payloads."""

    def get(self, box: Box, item_id: int) -> ItemRow | None:
        """One row with its payload."""

    def retry(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        """Makes failed, discarded and waiting rows due at once, with no failed attempts.

        They still count as tried (``processed_at``), so the retry strategies are asked; their ``error_log`` stays.
        """

    def restart(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        """As ``retry``, but as if never tried: no retry strategy is asked before the next attempt."""

    def discard(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        """Makes pending and failed rows discarded; their ``error_log`` begins with the time and "discarded by hand"."""

    def delete(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        """Deletes rows; pending ones only where the filter names that status."""

    def replay(self, box: Box, which: ItemFilter, ids: Sequence[int], copying: Copying) -> int:
        """Adds a pending copy of each row that is meant, in the order of their ids, in the same bucket; returns how many.

        A copy has a uuid of its own and no ``dedup_key``.

        Raises:
            BoxError: the table has nowhere to put the header.
        """


class Precision(StrEnum):
    """How far a count can be trusted."""

    EXACT = "exact"
    AT_LEAST = "at_least"
    ABOUT = "about"
    """By the database's statistics."""


class Count(NamedTuple):
    """A number of rows."""

    number: int
    precision: Precision = Precision.EXACT


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many rows of each kind a box has; None where finding out would take a walk over a large table."""

    pending: Count | None
    retrying: Count | None
    """Of the pending ones those with failed attempts."""
    failed: Count | None
    delivered: Count | None
    discarded: Count | None


class Census(Protocol):
    """Counts the rows of boxes, for people. Never in the path of a delivery."""

    def take(self, box: Box, *, exact: bool = False) -> Counts:
        """In a moment even where the table is huge, with counts as precise as that allows; or exactly, however long it takes.

        Raises:
            StoreUnavailable: the database does not answer.
        """


# ── coordination ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Hold:
    """Buckets of one box that one processor thread has taken from the queue, with a time limit.

    A hold says who should bother to work on a bucket, never who may: that is the claim's business.
    """

    box: Box
    token: str
    """Random; what a lease is freed and extended by."""
    jobs: tuple[Job, ...]
    valid_until: float
    """By ``Clock.monotonic``; moved on by whoever extends the hold."""
    buckets: set[int] = field(default_factory=set)
    """Those still held."""
    orphaned: frozenset[int] = frozenset()
    """Those whose last holder never let go of them: it died with them, as far as is known."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """How long one box's queue is, and when its oldest job was pushed (unix seconds)."""

    length: int
    oldest_pushed_at: int | None


class JobQueue(Protocol):
    """Jobs of all boxes, at most one per bucket queued or in work.

    May lose anything at any time without harm: rows stay pending and are polled again. Every method raises
    ``QueueUnavailable`` where the server does not answer.
    """

    def push(self, box: Box, jobs: Sequence[Job]) -> int:
        """Queues each job whose bucket is neither queued nor in work; returns how many.

        A bucket in work is marked as wanted again, so that its holder looks once more before it lets go.
        """

    def take(self, boxes: Sequence[Box], *, wait: timedelta, ttl: timedelta, share: int) -> Hold | None:
        """Waits up to ``wait`` for a job of any of the boxes, then takes more of the same box, with their leases.

        How many: the queue's length divided by ``share`` (threads that compete), at least one. Jobs whose bucket is
        leased elsewhere are dropped, foreign elements too (``corrupt``); None where nothing came of it.
        The leases last for ``ttl``.
        """

    def extend(self, hold: Hold, *, ttl: timedelta) -> frozenset[int]:
        """Renews the leases of the hold's buckets for ``ttl`` from now and returns those that were lost."""

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        """Frees the leases of these buckets and returns those wanted again, whose leases stay with the hold."""

    def hand_back(self, hold: Hold, jobs: Sequence[Job]) -> None:
        """Frees all leases of the hold and queues these jobs behind all others, so that others get their turn."""

    def leave(self, hold: Hold, buckets: Iterable[int]) -> None:
        """The leases of these buckets are to run out by themselves; nobody is to think that their holder died."""

    def unattended(self, box: Box, buckets: Iterable[int]) -> list[int]:
        """Those of the buckets that are neither in work nor, as far as is known, queued; ascending."""

    def state(self, box: Box) -> QueueState:
        """Length and age of the box's queue."""

    def ping(self) -> None:
        """Returns if the server answers."""


class Leases(Protocol):
    """Named locks with a time limit. They save work; nothing depends on them for correctness."""

    def acquire(self, name: str, token: str, *, ttl: timedelta) -> bool:
        """True if nobody held it, or ``token`` already did; it then lasts for ``ttl`` from now."""

    def release(self, name: str, token: str) -> None:
        """Frees it if ``token`` holds it."""


class Pauses(Protocol):
    """Which boxes people have paused."""

    def set(self, box: Box, *, polling_enabled: bool) -> None:
        """Remembers it for all workers."""

    def forget(self, box: Box) -> None:
        """Nobody has said anything about the box: it follows the configuration again."""

    def polling_enabled(self, boxes: Sequence[Box]) -> Mapping[str, bool]:
        """By box name, for those boxes that somebody paused or resumed; the others follow the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCircuit:
    """A transport that a worker leaves alone for a while, because its receiver could not be reached."""

    box: str
    transport: str
    since: datetime
    next_try: datetime | None
    """Not before this moment; None: when the call that hangs comes back."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a running worker process says about itself."""

    id: str
    """Random; another one after each start."""
    host: str
    pid: int
    boxes: tuple[str, ...]
    """Names of the boxes it works on."""
    threads: int
    """Of the processor."""
    started_at: datetime
    circuits: tuple[OpenCircuit, ...] = ()
    """Those that are open as it says this."""


class Workers(Protocol):
    """Which worker processes are alive, for people to see. Nothing depends on it."""

    def announce(self, worker: WorkerInfo, *, ttl: timedelta) -> None:
        """The worker counts as alive for ``ttl`` from now. One round trip."""

    def withdraw(self, worker_id: str) -> None:
        """The worker has stopped."""

    def living(self) -> list[WorkerInfo]:
        """Those that announced themselves in time, the longest running first."""


@dataclass(frozen=True, slots=True)
class RememberedFailure:
    """An item's failures as remembered outside the database."""

    errors_count: int
    error_msg: str
    uuid: str | None = None
    """The item's own: ids are used again after a TRUNCATE or a restore. None where sbmt-outbox wrote it."""


class InHand(Protocol):
    """Which buckets whose worker died, and which single items of them, are being sent. Outlives the worker.

    May lose anything at any time: an item that ends its worker is then found out a few deaths later.
    """

    def put(self, box: Box, item: str) -> int:
        """Notes that this worker is about to send the item, or the first batch of the bucket that goes by this name.

        Returns how many other workers have noted it before, one after the other, and never taken it out.
        """

    def take_out(self, box: Box, item: str) -> None:
        """The item's sending has ended, however it did."""


class FailureMemory(Protocol):
    """Remembers items' failures for when the database refused to store them (item meta of sbmt-outbox)."""

    def remember(self, box: Box, failures: Mapping[int, RememberedFailure], *, ttl: timedelta) -> None:
        """Stores them by item id."""

    def recall(self, box: Box, ids: Sequence[int]) -> Mapping[int, RememberedFailure]:
        """Those that are remembered, by item id."""

    def forget(self, box: Box, ids: Sequence[int]) -> None:
        """Drops them."""


_TOO_LONG = 10
"""Digits of a bucket."""


class Signal(NamedTuple):
    """Somebody committed a row for this box."""

    box_name: str
    bucket: int | None
    """Where it is known."""
    due: bool = True
    """Whether the row may go out at once; if not, its bucket is worth a look, no more."""

    def encode(self) -> str:
        """``box``, ``box:bucket``, or ``box:bucket?`` where the row is not due yet."""
        if self.bucket is None:
            return self.box_name
        return f"{self.box_name}:{self.bucket}{'' if self.due else '?'}"

    @classmethod
    def decode(cls, text: str) -> Signal:
        """The signal in a message; what somebody else sends on the channel is the name of a box that nobody knows."""
        box_name, colon, bucket = text.rpartition(":")
        number = bucket.removesuffix("?")
        # Longer ones are no buckets, and Python refuses to read thousands of digits.
        if colon and number.isascii() and number.isdigit() and len(number) < _TOO_LONG:
            return cls(box_name, int(number), due=number == bucket)
        return cls(text, None)


class Wakeups(Protocol):
    """Hints that rows were committed. Lossy by design: a lost one costs one poll interval."""

    reliable: bool
    """Whether hints come at all just now (a listener is connected); the poller looks by itself more often if not."""

    def wait(self, timeout: timedelta) -> list[Signal]:
        """Blocks until at least one signal came or the time is over; the signals so far, in order of arrival."""

    def close(self) -> None:
        """Lets a blocked ``wait`` return, and frees the connection."""


# ── delivery ─────────────────────────────────────────────────────────────────────────────────────────

Result = Any
"""What a transport returns for one item. ``False``, a ``Failure`` or an exception is a failed attempt, and so is what cannot be
understood: an awaitable, a generator, an exception that was returned. ``Unavailable``, raised or returned, is no attempt and
leaves the item pending. Anything else: delivered."""


class Transport(Protocol):
    """Delivers one item. May also have ``call_batch``, see ``BatchTransport``; may take ``session=``."""

    def __call__(self, item: Item, payload: Any) -> Result: ...


@runtime_checkable
class BatchTransport(Protocol):
    """Delivers many items at once; one result per item, in the order given."""

    def call_batch(self, items: Sequence[Item]) -> Sequence[Result]: ...


class ErrorTracker(Protocol):
    """Told of what a person should see: items that failed for good, loops that broke."""

    def __call__(self, error: BaseException | str, /, **context: Any) -> None: ...


# ── receiving ────────────────────────────────────────────────────────────────────────────────────────


TopicPartition = tuple[str, int]


class Consumed(NamedTuple):
    """What became of the messages of one topic's partition, of one batch."""

    messages: int
    """All of them: new items, duplicates and dead letters."""
    duplicates: int = 0
    """Known from before, or twice in the batch."""
    dead_letters: int = 0
    contradictions: int = 0
    """Of the duplicates, those whose payload is not that of the stored item."""


class MessageSource(Protocol):
    """Messages out of a partitioned log, as one consumer of a group sees them. Used by one thread, ``check`` by any.

    A message counts as done once it is acknowledged; until then it comes again after ``put_back``, after a restart, and
    to whoever takes its partition over. Methods raise ``SourceUnavailable`` where the broker does not answer.
    """

    def receive(self, limit: int, *, wait: timedelta) -> Sequence[ReceivedMessage]:
        """What has come, each partition in its order, at most ``limit``; waits up to ``wait`` for the first."""

    def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None:
        """These are stored for good. Those of partitions that others have taken over meanwhile are left to them."""

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """These are not stored: they will be received again, before any later ones of their partitions.

        A partition that was halted goes on from there.
        """

    def halt(self, message: ReceivedMessage) -> None:
        """Gives no more of the message's partition, from that message on, until it is put back or the partition moves."""

    def lags(self) -> Mapping[TopicPartition, int]:
        """How many messages of each partition it owns are not acknowledged yet, as far as is known; asks nobody."""

    def check(self) -> None:
        """Returns if, as far as is known, the broker answers; asks nobody."""

    def close(self) -> None:
        """Leaves the group; what is acknowledged stays so."""


class InboxTransaction(Protocol):
    """One open transaction of the database that holds the inbox."""

    session: Any
    """What items are created through (a SQLAlchemy ``Connection``)."""

    def savepoint(self) -> AbstractContextManager[None]:
        """What is written inside is undone if the block raises.

        Raises:
            InvalidItem: the database refuses what was written, and would do so again: a constraint, a value too long.
        """

    def reject(self, item_id: int, reason: str) -> None:
        """Makes a pending row that was never tried a failed one, with this reason as its error log.

        Only for a row that this transaction inserted: one that was there before may be a good one.
        """

    def stored_options(self, dedup_keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """The options of the rows with these keys, by key; nothing where the table has no such keys or no options."""

    def stored_payloads(self, item_ids: Sequence[int]) -> Mapping[int, bytes]:
        """The payloads of these rows, as far as this transaction sees them."""


class Inbox(Protocol):
    """Where received messages are stored. Methods raise ``StoreUnavailable`` where the database does not answer."""

    def columns(self, box: Box) -> frozenset[str]:
        """The columns of the box's table.

        Raises:
            SchemaMismatch: there is no such table, or nothing in it could tell a message that comes twice.
        """

    def transaction(self, box: Box) -> AbstractContextManager[InboxTransaction]:
        """Commits at the end of the block, and undoes everything if it raises."""


class DeadLetters(Protocol):
    """Where messages go that cannot become items of their box."""

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> bool:
        """Puts the message away for good, or lets that commit with the transaction.

        False: there is a row with its ``dedup_key`` already, so it counts as a repetition and nothing was written.

        Raises:
            InvalidItem: it cannot be put away either.
            GraveUnavailable: where it would go does not answer, or refuses it. It must be tried again later.
            StoreUnavailable: the database does not answer.
        """


# ── observation ──────────────────────────────────────────────────────────────────────────────────────


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
