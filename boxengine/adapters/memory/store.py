"""The store in memory: committed rows, bucket locks and transactions, without a database.

One ``MemoryStore`` is one process's connection; ``twin()`` gives another process's view of the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from threading import RLock
from typing import Any, ClassVar, Literal, Self
from uuid import NAMESPACE_OID, uuid5

from boxengine.adapters.memory.bounding import MemoryBounds
from boxengine.adapters.memory.rows import Row, Rows
from boxengine.domain.bounds import PACE, Pace
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Item, Status
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import FailedAttempt, Settlement, Unrecorded
from boxengine.errors import StoreUnavailable
from boxengine.ports import Clock, Outlook, PendingRow, Swept

LOOKED_AT = 100
"""Rows of a look for old ones behind younger ones."""
Step = Literal["ping", "poll", "claim", "later_delivered", "commit", "committed", "history"]
"""Where a fault can strike. ``committed`` comes after the write: raising there loses only the acknowledgement."""


def no_fault(step: Step) -> None:
    """Nothing goes wrong."""


@dataclass(slots=True)
class Database:
    """What all handles share. Every access holds ``lock``; nothing waits for anything else while holding it."""

    clock: Clock
    name: Callable[[int], ItemId]
    lock: RLock = field(default_factory=RLock)
    boxes: dict[str, Rows] = field(default_factory=dict)
    held_buckets: set[tuple[str, int]] = field(default_factory=set)
    locked_rows: set[tuple[str, ItemId]] = field(default_factory=set)
    effects: list[Any] = field(default_factory=list)
    refusals: dict[tuple[str, ItemId], bool] = field(default_factory=dict)
    """By box and id, rows that refuse their outcome; whether they also refuse to be made failed."""
    spoilt: dict[tuple[str, ItemId], str] = field(default_factory=dict)
    """By box and id, rows that cannot be read, and why."""
    max_batch_bytes: int = 64 * 1024 * 1024
    """Of the payloads of one claim; a larger item is claimed alone."""
    uncommitted: set[tuple[str, ItemId]] = field(default_factory=set)
    """By box, ids that writers have drawn and not committed yet."""
    open_claims: dict[int, MemoryClaim] = field(default_factory=dict)
    """By identity, in the order in which they were opened."""

    def rows(self, box: Box) -> Rows:
        return self.boxes.setdefault(box.name, Rows(self.name))


class MemorySession:
    """Stands for the user's session: what is added takes effect if the claim commits."""

    def __init__(self) -> None:
        self.effects: list[Any] = []

    def add(self, effect: object) -> None:
        self.effects.append(effect)


class MemoryClaim:
    """A ``Claim`` over memory. Writes nothing before ``commit``, so undoing is forgetting."""

    def __init__(
        self,
        database: Database,
        box: Box,
        buckets: Mapping[int, ItemId | None],
        limit: int,
        *,
        fault: Callable[[Step], None],
    ) -> None:
        self._database = database
        self._box = box
        self._fault = fault
        self._open = True
        self._broken = False
        self.session: Any = MemorySession()
        with database.lock:
            self.last_used = database.clock.monotonic()
            self.now: datetime = database.clock.now()
            self._granted = [bucket for bucket in buckets if (box.name, bucket) not in database.held_buckets]
            self.refused: frozenset[int] = frozenset(buckets).difference(self._granted)
            self.items: Sequence[Item]
            self.exhausted: frozenset[int]
            self.items, self.exhausted = self._within_bytes(*self._read(buckets, limit))
            self.unreadable: Mapping[ItemId, str] = {
                item.id: database.spoilt[box.name, item.id]
                for item in (self.items if database.spoilt else ())
                if (box.name, item.id) in database.spoilt
            }
            database.held_buckets.update((box.name, bucket) for bucket in self._granted)
            database.locked_rows.update((box.name, item.id) for item in self.items)
            database.open_claims[id(self)] = self

    def _read(self, after: Mapping[int, ItemId | None], limit: int) -> tuple[list[Item], frozenset[int]]:
        share = max(1, limit // max(1, len(self._granted)))
        rows = self._database.rows(self._box)
        found: list[Row] = []
        exhausted = set()
        for bucket in self._granted:
            due = _after(after[bucket], rows.due(self._box, bucket, self.now))
            of_bucket = list(islice(due, share))
            found += of_bucket
            if len(of_bucket) < share:
                exhausted.add(bucket)
        found.sort(key=_by_id)
        return [row.as_item(self._box, dispatched_at=self.now) for row in found[:limit]], frozenset(exhausted)

    def _within_bytes(self, items: list[Item], exhausted: frozenset[int]) -> tuple[list[Item], frozenset[int]]:
        """Of each bucket its first items, as far as all of them together stay within the bytes of a batch."""
        kept: list[Item] = []
        used, left = 0, set[int]()
        for item in items:
            size = len(item.payload or b"")
            if item.bucket in left or (kept and used + size > self._database.max_batch_bytes):
                left.add(item.bucket)
                continue
            used += size
            kept.append(item)
        return kept, exhausted - left

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Forgets what the block added to the session if it raises; the error goes on to the caller."""
        before = len(self.session.effects)
        try:
            yield
        except BaseException:
            del self.session.effects[before:]
            raise

    def later_delivered(self, items: Sequence[Item]) -> Mapping[ItemId, ItemId]:
        """See ``Claim.later_delivered``."""
        self._fault("later_delivered")
        last: dict[tuple[str, str | None], ItemId] = {}
        with self._database.lock:
            self._insist_on_connection()
            self.last_used = self._database.clock.monotonic()
            for row in self._database.rows(self._box):
                if row.status == Status.DELIVERED:
                    last[row.event_key, row.event_name] = row.id
        found = ((item.id, last.get((item.event_key, item.event_name), item.id)) for item in items)
        return {item_id: later for item_id, later in found if later > item_id}

    def commit(self, settlement: Settlement) -> Unrecorded | None:
        """Applies the settlement and the session's effects at once, and frees the buckets; but for rows that refuse it.

        Raises:
            StoreUnavailable: a fault was injected, or the connection was cut.
            RuntimeError: the claim has ended already.
        """
        self._fault("commit")
        with self._database.lock:
            self._insist_on_connection()
            if not self._open:
                raise RuntimeError("this claim has ended; a settlement after that would be recorded without its lock")
            unrecorded = self._refused(settlement) if self._database.refusals else None
            if unrecorded is None:
                self._write(settlement)
                self._database.effects += self.session.effects
            self.close()
        self._fault("committed")
        return unrecorded

    def _refused(self, settlement: Settlement) -> Unrecorded | None:
        """Writes what can be written of a settlement, if a row in it refuses its outcome."""
        refusals = self._database.refusals
        refused = [each for each in self._written(settlement) if (self._box.name, each) in refusals]
        if not refused:
            return None
        counts = {item.id: item.errors_count for item in self.items}
        left = {each: "refused" for each in refused if refusals[self._box.name, each]}
        failed = {
            each: FailedAttempt(each, Status.FAILED, counts[each], "its outcome could not be recorded: refused")
            for each in refused
            if each not in left
        }
        undone = bool(self.session.effects)
        others = settlement.only(() if undone else set(settlement.ids).difference(refused))
        self._write(replace(others, failed=[*others.failed, *failed.values()]))
        return Unrecorded(failed=failed, left=left, undone=undone)

    def _written(self, settlement: Settlement) -> list[int]:
        """The items of whose outcomes a row tells."""
        return settlement.ids

    @property
    def _rows(self) -> Rows:
        """Where outcomes are written."""
        return self._database.rows(self._box)

    def _write(self, settlement: Settlement) -> None:
        rows, now = self._rows, self._database.clock.now()
        deletes = self._box.retention.deletes_on_delivery
        for row in self._pending(rows, settlement.delivered):
            if deletes:
                rows.remove(row.id)
            else:
                rows.put(replace(row, status=Status.DELIVERED, processed_at=now, updated_at=now))
        discards = {discard.id: discard for discard in settlement.discarded}
        for row in self._pending(rows, list(discards)):
            log = "\n".join(filter(None, (discards[row.id].error_log, row.error_log)))
            rows.put(replace(row, status=Status.DISCARDED, error_log=log, processed_at=now, updated_at=now))
        attempts = {attempt.id: attempt for attempt in settlement.failed}
        for row in self._pending(rows, list(attempts)):
            attempt = attempts[row.id]
            rows.put(
                replace(
                    row,
                    status=attempt.status,
                    errors_count=attempt.errors_count,
                    error_log=attempt.error_log,
                    processed_at=now,
                    updated_at=now,
                )
            )

    @staticmethod
    def _pending(rows: Rows, ids: Sequence[ItemId]) -> list[Row]:
        found = (rows.get(row_id) for row_id in ids)
        return [row for row in found if row is not None and row.status == Status.PENDING]

    def leave_empty(self) -> None:
        """Writes what a claim without items has to write: nothing."""

    def cut(self) -> None:
        """Breaks the connection, as the server does with one that sat idle in a transaction: all is undone and freed."""
        self._broken = True
        self.close()

    def _insist_on_connection(self) -> None:
        if self._broken:
            raise StoreUnavailable("the server has cut the connection of this claim")

    def close(self) -> None:
        """Frees the locks; without a commit before, nothing of the claim remains."""
        if not self._open:
            return
        self._open = False
        with self._database.lock:
            del self._database.open_claims[id(self)]
            self._database.held_buckets.difference_update((self._box.name, bucket) for bucket in self._granted)
            self._database.locked_rows.difference_update((self._box.name, item.id) for item in self.items)


class MemoryClaims:
    """``Claims`` over memory."""

    kind: ClassVar[type[MemoryClaim]] = MemoryClaim

    def __init__(self, database: Database, box: Box, *, fault: Callable[[Step], None], bounds: MemoryBounds) -> None:
        self._database = database
        self._box = box
        self._fault = fault
        self._bounds = bounds

    @contextmanager
    def open(self, buckets: Mapping[int, ItemId | None], limit: int) -> Iterator[MemoryClaim]:
        """See ``Claims.open``; each granted bucket gives ``limit // granted`` rows, at least one."""
        self._fault("claim")
        begin = self._bounds.begin(self._box, buckets)
        claim = self.kind(self._database, self._box, begin, limit, fault=self._fault)
        try:
            yield claim
            if not claim.items:
                claim.leave_empty()
            self._bounds.of(self._box).claimed(len(claim.items))
        finally:
            claim.close()


class MemoryStore:
    """``Store`` and ``HistoryStore`` over rows in memory; thread-safe.

    Args:
        clock: the store's clock, shared by all twins as a database's is.
        max_batch_bytes: of the payloads of one claim, as in ``processor.max_batch_bytes``.
        name: the id of a box's first row, of its second, and so on; later rows have larger ids.
        fault: called with each step before it happens; what it raises (``StoreUnavailable``, for one) ends the step.
        pace: how often the bounds of the boxes move.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        fault: Callable[[Step], None] = no_fault,
        max_batch_bytes: int | None = None,
        name: Callable[[int], ItemId] = int,
        pace: Pace = PACE,
    ) -> None:
        self._database = Database(clock, name)
        if max_batch_bytes is not None:
            self._database.max_batch_bytes = max_batch_bytes
        self._fault = fault
        self._bounds = MemoryBounds(self._database, pace)

    def twin(self, *, fault: Callable[[Step], None] = no_fault) -> Self:
        """Another handle on the same rows and locks, with faults and bounds of its own."""
        pace = self._bounds.pace
        other = type(self)(self._database.clock, fault=fault, name=self._database.name, pace=pace)
        other._database = self._database  # noqa: SLF001 - of this very class
        other._bounds = MemoryBounds(self._database, pace)  # noqa: SLF001
        return other

    # ── what an application and a test do ────────────────────────────────────────────────────────────

    def insert(
        self,
        box: Box,
        *,
        event_key: object,
        payload: bytes = b"",
        bucket: int | None = None,
        event_name: str | None = None,
        options: Mapping[str, Any] | None = None,
        available_at: datetime | None = None,
        dedup_key: str | None = None,
        **columns: Any,
    ) -> ItemId:
        """Commits a row and returns its id; that of the first row where ``dedup_key`` is taken.

        ``columns`` are any others of ``Row``, taken as they are. The bucket follows from the event key where not
        given, the uuid from the box and the id, so that a run repeats exactly.
        """
        with self._database.lock:
            rows = self._database.rows(box)
            if dedup_key is not None:
                for row in rows:
                    if row.dedup_key == dedup_key:
                        return row.id
            row = self._new(
                box,
                event_key=event_key,
                payload=payload,
                bucket=bucket,
                event_name=event_name,
                options=options,
                **columns,
            )
            rows.put(replace(row, available_at=available_at, dedup_key=dedup_key))
            self._database.uncommitted.discard((box.name, row.id))
        return row.id

    def _new(
        self,
        box: Box,
        *,
        event_key: object,
        payload: bytes = b"",
        bucket: int | None = None,
        event_name: str | None = None,
        options: Mapping[str, Any] | None = None,
        **columns: Any,
    ) -> Row:
        now = self._database.clock.now()
        row_id = columns.pop("id", None) or self._database.rows(box).next_id()
        row = Row(
            id=row_id,
            uuid=uuid5(NAMESPACE_OID, f"{box.name}/{row_id}"),
            event_name=event_name,
            event_key=str(event_key),
            bucket=box.partition_strategy(event_key, box.bucket_size) if bucket is None else bucket,
            status=Status.PENDING,
            options=options,
            payload=payload,
            errors_count=0,
            error_log=None,
            processed_at=None,
            created_at=now,
            updated_at=now,
            available_at=None,
            dedup_key=None,
        )
        return replace(row, **columns)

    def update(self, box: Box, row_id: ItemId, **columns: Any) -> None:
        """Changes a committed row as somebody outside the engine would.

        Raises:
            StoreUnavailable: an open claim has locked the row; a database would give up waiting for it.
            KeyError: there is no such row.
        """
        with self._database.lock:
            if (box.name, row_id) in self._database.locked_rows:
                raise StoreUnavailable(f"row {row_id} of {box.name} is locked by an open claim")
            row = self._database.rows(box).get(row_id)
            if row is None:
                raise KeyError(row_id)
            self._database.rows(box).put(replace(row, **columns))

    def put(self, box: Box, row: Row) -> None:
        """Adds a committed row as it is, or takes it for the one of the same id."""
        with self._database.lock:
            self._database.rows(box).put(row)

    def remove(self, box: Box, row_id: ItemId) -> None:
        """Takes a row away as if its transaction had never committed; harmless where there is none."""
        with self._database.lock:
            self._database.rows(box).remove(row_id)

    def spoil(self, box: Box, row_id: ItemId, reason: str = "the row cannot be read") -> None:
        """From here on nobody can read the row."""
        with self._database.lock:
            self._database.spoilt[box.name, row_id] = reason

    def refuse(self, box: Box, row_id: ItemId, *, even_failed: bool = False) -> None:
        """From here on the row takes no outcome, as a constraint or a trigger of a table has it.

        Args:
            even_failed: it cannot be made failed either.
        """
        with self._database.lock:
            self._database.refusals[box.name, row_id] = even_failed

    def rows(self, box: Box) -> list[Row]:
        """All committed rows in id order."""
        with self._database.lock:
            return list(self._database.rows(box))

    def reserve_id(self, box: Box) -> ItemId:
        """An id as a sequence gives it to a writer that commits later, or never; to be passed to ``insert``."""
        with self._database.lock:
            row_id = self._database.rows(box).next_id()
            self._database.uncommitted.add((box.name, row_id))
            return row_id

    def cut_idle(self, longest: timedelta) -> list[MemoryClaim]:
        """Cuts claims whose last statement was longer ago, as ``idle_in_transaction_session_timeout`` does; which."""
        with self._database.lock:
            limit = self._database.clock.monotonic() - longest.total_seconds()
            idle = [claim for claim in self._database.open_claims.values() if claim.last_used < limit]
            for claim in idle:
                claim.cut()
        return idle

    def _remove(self, box: Box, rows: Sequence[Row]) -> None:
        for row in rows:
            self._database.rows(box).remove(row.id)

    @property
    def effects(self) -> list[Any]:
        """What committed claims added to their sessions, in order of commit."""
        with self._database.lock:
            return list(self._database.effects)

    # ── Store ────────────────────────────────────────────────────────────────────────────────────────

    def poll(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        """See ``Store.poll``; each bucket gets ``limit // len(buckets)`` rows, at least one."""
        return self._polled(box, buckets, limit, lambda _row: True)

    def poll_regular(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        """See ``Store.poll_regular``; each bucket gets as many as in ``poll``."""
        return self._polled(box, buckets, limit, lambda row: row.errors_count == 0)

    def _polled(self, box: Box, buckets: Sequence[int], limit: int, wanted: Callable[[Row], bool]) -> list[PendingRow]:
        self._fault("poll")
        share = max(1, limit // max(1, len(buckets)))
        found: list[Row] = []
        with self._database.lock:
            rows, now = self._database.rows(box), self._database.clock.now()
            for bucket, after in self._begin(box, buckets).items():
                due = _after(after, rows.due(box, bucket, now))
                found += islice(filter(wanted, due), share)
        return [PendingRow(row.id, row.bucket, row.errors_count) for row in sorted(found, key=_by_id)]

    def outlook(self, box: Box, buckets: Sequence[int]) -> Outlook:
        """See ``Store.outlook``."""
        self._fault("poll")
        with self._database.lock:
            rows, now = self._database.rows(box), self._database.clock.now()
            begin = self._begin(box, buckets)
            due = [bucket for bucket, after in begin.items() if any(_after(after, rows.due(box, bucket, now)))]
            return Outlook(due, rows.next_delayed(now))

    def pending(self, boxes: Sequence[Box]) -> frozenset[str]:
        """See ``Store.pending``."""
        self._fault("poll")
        with self._database.lock:
            return frozenset(
                box.name for box in boxes if any(row.status == Status.PENDING for row in self._database.rows(box))
            )

    def claims(self, box: Box) -> MemoryClaims:
        """See ``Store.claims``."""
        return MemoryClaims(self._database, box, fault=self._fault, bounds=self._bounds)

    def plain_claims(self, box: Box) -> MemoryClaims:
        """See ``Store.plain_claims``; nothing here is written before the commit, so these are claims like any other."""
        return self.claims(box)

    def ping(self) -> None:
        """See ``Store.ping``."""
        self._fault("ping")

    # ── Bounding ─────────────────────────────────────────────────────────────────────────────────────

    def advance(self, box: Box) -> Collection[int]:
        """See ``Bounding.advance``."""
        if not self._bounds.of(box).due:
            return ()
        self._fault("poll")
        return self._bounds.advance(box)

    def bounded(self, box: Box) -> bool:
        """See ``Bounding.bounded``. Only numbers have bounds."""
        return box.storage is Storage.TABLE and isinstance(self._database.name(1), int)

    def read_from_start(self, box_name: str) -> None:
        """See ``Bounding.read_from_start``."""
        self._bounds.forget(box_name)

    def _begin(self, box: Box, buckets: Sequence[int]) -> Mapping[int, ItemId | None]:
        return self._bounds.begin(box, dict.fromkeys(buckets))

    # ── HistoryStore ─────────────────────────────────────────────────────────────────────────────────

    def counts(self, box: Box) -> Mapping[int, int]:
        """See ``HistoryStore.counts``."""
        self._fault("history")
        return Counter(row.status for row in self.rows(box))

    def oldest_pending(self, box: Box) -> datetime | None:
        """See ``HistoryStore.oldest_pending``."""
        self._fault("history")
        pending = [row for row in self.rows(box) if row.status == Status.PENDING]
        since = [max(row.created_at, row.available_at or row.created_at) for row in pending]
        return min((each for each in since if each <= self._database.clock.now()), default=None)

    def unread_since(self, box: Box) -> datetime | None:  # noqa: ARG002 - the port's
        """See ``HistoryStore.unread_since``; these boxes have no log."""
        return None

    def stranded_items(self, box: Box) -> int:
        """See ``HistoryStore.stranded_items``."""
        self._fault("history")
        pending = [row for row in self.rows(box) if row.status == Status.PENDING]
        return min(sum(not 0 <= row.bucket < box.bucket_size for row in pending), 10_000)

    def oldest_finished(self, box: Box, statuses: Sequence[int]) -> datetime | None:
        """See ``HistoryStore.oldest_finished``."""
        self._fault("history")
        return next((row.created_at for row in self.rows(box) if row.status in statuses), None)

    def delete_finished(
        self, box: Box, statuses: Sequence[int], *, created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        """See ``HistoryStore.delete_finished``; pending rows stay whatever ``statuses`` says (SEMANTICS 8)."""
        self._fault("history")
        finished = set(statuses) - {Status.PENDING}
        with self._database.lock:
            rows = self._database.rows(box)
            span = (row for row in rows if row.status in finished and created_from <= row.created_at < created_before)
            doomed = list(islice(span, limit))
            self._remove(box, doomed)
        return len(doomed)

    def sweep_finished(self, box: Box, before: Mapping[int, datetime], *, after: ItemId | None, limit: int) -> Swept:
        """See ``HistoryStore.sweep_finished``; looks at ``LOOKED_AT`` rows."""
        self._fault("history")
        with self._database.lock:
            rows = self._database.rows(box)
            looked = list(islice(_after(after, rows), LOOKED_AT))
            finished = (row for row in looked if row.status != Status.PENDING and row.status in before)
            doomed = list(islice((row for row in finished if row.created_at < before[row.status]), limit))
            self._remove(box, doomed)
        return Swept(len(doomed), looked[-1].id if looked else None)


def _by_id(row: Row) -> ItemId:
    return row.id


def _after(row_id: ItemId | None, rows: Iterable[Row]) -> Iterator[Row]:
    """Those behind this id; None: all."""
    return (row for row in rows if row_id is None or row.id > row_id)
