"""The store in memory, where some boxes have ``storage: log``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any, ClassVar

from boxengine.adapters.memory.bounding import MemoryBounds
from boxengine.adapters.memory.claims import MemoryClaim, MemoryClaims
from boxengine.adapters.memory.database import Database, OpenClaim, Step, no_fault
from boxengine.adapters.memory.log.shared import LogDump, SharedLog
from boxengine.adapters.memory.log.table import MemoryLog
from boxengine.adapters.memory.log.transactions import Transactions
from boxengine.adapters.memory.rows import Begin, Row, Rows
from boxengine.adapters.memory.store import MemoryStore
from boxengine.domain.bounds import PACE, Pace
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.domain.job import ANY_ID
from boxengine.domain.outcome import Settlement
from boxengine.errors import BoxError, StoreUnavailable
from boxengine.ports import Clock, Outlook, PendingRow, Turnover

_OF_A_LOG = frozenset({"id", "uuid", "event_key", "event_name", "bucket", "payload", "options", "created_at"})
"""What the log has of an item; a row with more than that stands in the side table."""


@dataclass(slots=True)
class LogDatabase(Database):
    """Rows of all boxes, and the logs of those that have one."""

    transactions: Transactions = field(default_factory=Transactions)
    logs: dict[str, MemoryLog] = field(default_factory=dict)
    """By reader."""
    shared: dict[str, SharedLog] = field(default_factory=dict)
    """By the box that is written to."""

    def log(self, box: Box) -> MemoryLog:
        """What a reader sees; it has its positions from the first time on that anybody asks."""
        if box.name not in self.logs:
            shared = self.shared.setdefault(box.source.name, SharedLog(self.transactions))
            self.logs[box.name] = MemoryLog(box, shared, self.rows(box))
        return self.logs[box.name]


@dataclass(frozen=True, slots=True)
class Dump:
    """What was committed at some moment."""

    logs: Mapping[str, LogDump]
    effects: int
    """How many there were."""


class LogClaim(MemoryClaim):
    """A claim of a log box."""

    _database: LogDatabase

    def _read(self, begin: Mapping[int, Begin], limit: int) -> tuple[list[Item], frozenset[int]]:
        given, self._bucket_of = self._log.read(begin, self._granted, limit, self.now)
        self._readings = given.readings
        items = [row.as_item(self._box, dispatched_at=self.now) for row in given.rows]
        return items, frozenset(self._granted) - given.waiting

    @property
    def _log(self) -> MemoryLog:
        return self._database.log(self._box)

    @property
    def _rows(self) -> Rows:
        return self._log.side

    def later_delivered(self, items: Sequence[Item]) -> Mapping[ItemId, ItemId]:  # noqa: ARG002 - it is the port's
        """Raises:
        BoxError: always; the log says of no single item whether it was delivered.
        """
        raise BoxError("storage: log does not record which later items of a key were delivered")

    def _written(self, settlement: Settlement) -> list[int]:
        passed = self._bucket_of.keys() & set(settlement.delivered)
        return [each for each in settlement.ids if each not in passed]

    def _write(self, settlement: Settlement) -> None:
        logged = settlement.only(self._bucket_of)
        super()._write(settlement.only(set(settlement.ids).difference(logged.ids)))
        now = self._database.clock.now()
        for each in logged.not_delivered:
            row = self._log.row(each.id)
            self._rows.put(
                replace(
                    row,
                    status=each.status,
                    errors_count=each.errors_count,
                    error_log=each.error_log,
                    processed_at=now,
                    updated_at=now,
                )
            )
        self._log.move_on(self._readings.values(), set(logged.ids), settlement.aside)

    def leave_empty(self) -> None:
        """Lets step aside what was found and had to wait for others of its key."""
        with self._database.lock:
            if self._open and not self._broken:
                self._log.move_on(self._readings.values(), ())


class LogClaims(MemoryClaims):
    """``Claims`` of a log box."""

    _database: LogDatabase
    kind: ClassVar[type[MemoryClaim]] = LogClaim

    @contextmanager
    def open(self, buckets: Mapping[int, ItemId | None], limit: int) -> Iterator[MemoryClaim]:
        """See ``Claims.open``. Goes on by itself where the log has come to another server."""
        with self._database.lock:
            self._database.log(self._box).go_on()
        with super().open(buckets, limit) as claim:
            yield claim


class MemoryTransaction:
    """An application's transaction over the log boxes of a store. Nobody sees its items before it commits."""

    def __init__(self, database: LogDatabase, new: Callable[..., Row]) -> None:
        self._database = database
        self._new = new
        self._written: list[tuple[Box, Row]] = []
        self._number: int | None = None
        self._server = database.transactions.server

    def number(self) -> int:
        """Its number, which it has from its first writing on, whatever it wrote."""
        with self._database.lock:
            if self._number is None:
                self._number = self._database.transactions.begin()
            return self._number

    def insert(self, box: Box, **columns: Any) -> ItemId:
        """Writes an item, and returns its id.

        Args:
            box: a reader of the log; all others get the item, too.
        """
        with self._database.lock:
            self.number()
            row = self._new(box, **columns)
            self._written.append((box, row))
            return row.id

    def commit(self) -> bool:
        """Shows its items to everybody; False where its server is gone, and the items with it."""
        with self._database.lock:
            if not self._end():
                return False
            for box, row in self._written:
                self._database.log(box).append([row], self._number or 0)
            return True

    def rollback(self) -> None:
        """Its items have never been there; their ids stay unused."""
        with self._database.lock:
            self._end()

    def _end(self) -> bool:
        if self._server != self._database.transactions.server:
            return False
        if self._number is not None:
            self._database.transactions.end(self._number)
        return True


class MemoryLogStore(MemoryStore):
    """``Store`` and ``HistoryStore`` over rows in memory, and over logs for boxes with ``storage: log``."""

    _database: LogDatabase

    def __init__(
        self,
        clock: Clock,
        *,
        fault: Callable[[Step], None] = no_fault,
        max_batch_bytes: int | None = None,
        name: Callable[[int], ItemId] = int,
        pace: Pace = PACE,
    ) -> None:
        """``name``: of boxes without a log. A log's ids are numbers."""
        super().__init__(clock, fault=fault, max_batch_bytes=max_batch_bytes, name=name, pace=pace)
        self._database = LogDatabase(clock, name, max_batch_bytes=self._database.max_batch_bytes)
        self._bounds = MemoryBounds(self._database, pace)

    # ── what an application, a person and a test do ──────────────────────────────────────────────────

    def begin(self) -> MemoryTransaction:
        """A transaction of an application."""
        return MemoryTransaction(self._database, self._new)

    def insert(self, box: Box, **columns: Any) -> ItemId:
        """Commits an item in a transaction of its own; one with a past goes into the side table."""
        if box.storage is not Storage.LOG:
            return super().insert(box, **columns)
        with self._database.lock:
            if columns.keys() <= _OF_A_LOG:
                transaction = self.begin()
                row_id = transaction.insert(box, **columns)
                transaction.commit()
                return row_id
            row = self._new(box, **columns)
            self._database.log(box).put_aside(row)
            return row.id

    def update(self, box: Box, row_id: ItemId, **columns: Any) -> None:
        """See ``MemoryStore.update``; of a log box, rows of the side table are changed.

        Raises:
            KeyError: the row stands in the log, or nowhere.
            StoreUnavailable: an open claim has locked the row.
        """
        if box.storage is not Storage.LOG:
            super().update(box, row_id, **columns)
            return
        with self._database.lock:
            row = self._database.log(box).side.get(row_id)
            if row is None:
                raise KeyError(row_id)
            if (box.name, row_id) in self._database.locked_rows:
                raise StoreUnavailable(f"row {row_id} of {box.name} is locked by an open claim")
            self._database.log(box).put_aside(replace(row, **columns))

    def remove(self, box: Box, row_id: ItemId) -> None:
        """See ``MemoryStore.remove``."""
        if box.storage is not Storage.LOG:
            super().remove(box, row_id)
            return
        with self._database.lock:
            self._database.log(box).forget(row_id)

    def move_to_another_server(self) -> list[OpenClaim]:
        """Goes on as a logical copy: transactions are cut, and their numbers begin anew. Returns the claims that were open."""
        with self._database.lock:
            cut = list(self._database.open_claims.values())
            for claim in cut:
                claim.cut()
            self._database.transactions.move_to_another_server()
        return cut

    def dump(self) -> Dump:
        """All logs as of this moment, for ``restore``."""
        with self._database.lock:
            logs = {name: log.dump() for name, log in self._database.shared.items()}
            return Dump(logs, len(self._database.effects))

    def restore(self, dump: Dump) -> list[OpenClaim]:
        """Goes on as a server into which a dump was restored: what was committed since is undone. Ids are not used again.

        For a database whose boxes all have logs. Returns the claims that were open.
        """
        with self._database.lock:
            cut = self.move_to_another_server()
            for name, log in dump.logs.items():
                self._database.shared[name].restore(log)
            del self._database.effects[dump.effects :]
        return cut

    def send_back(self, box: Box, item: int) -> list[int]:
        """Delivers a log's items from this id on once more to one reader.

        Returns the ids of those that stood in its side table, and begin anew.

        Raises:
            StoreUnavailable: a delivery is under way, for whose end a database would wait; or the log is another server's.
        """
        with self._database.lock:
            if any((box.name, bucket) in self._database.held_buckets for bucket in box.buckets):
                raise StoreUnavailable(f"a delivery of {box.name} is under way")
            return self._database.log(box).send_back(item)

    # ── Store ────────────────────────────────────────────────────────────────────────────────────────

    def _polled(self, box: Box, buckets: Sequence[int], limit: int, wanted: Callable[[Row], bool]) -> list[PendingRow]:
        """Due rows; of the log's rows none is named."""
        if box.storage is not Storage.LOG:
            return super()._polled(box, buckets, limit, wanted)
        self._fault("poll")
        share = max(1, limit // max(1, len(buckets)))
        found: list[PendingRow] = []
        with self._database.lock:
            log, now = self._database.log(box), self._database.clock.now()
            for bucket in buckets:
                due = filter(wanted, log.side.due(box, bucket, now))
                found += [PendingRow(row.id, row.bucket, row.errors_count) for row in islice(due, share)]
            found.sort()
            return found + [PendingRow(ANY_ID[0], each, 0) for each in buckets if log.is_waiting(each, now)]

    def outlook(self, box: Box, buckets: Sequence[int]) -> Outlook:
        """See ``Store.outlook``."""
        if box.storage is not Storage.LOG:
            return super().outlook(box, buckets)
        self._fault("poll")
        with self._database.lock:
            log, now = self._database.log(box), self._database.clock.now()
            due = [each for each in buckets if any(log.side.due(box, each, now)) or log.is_waiting(each, now)]
            return Outlook(due, log.side.next_delayed(now))

    def unread_since(self, box: Box) -> datetime | None:
        """See ``HistoryStore.unread_since``."""
        if box.storage is not Storage.LOG:
            return super().unread_since(box)
        with self._database.lock:
            return self._database.log(box).unread_since()

    def turn_over(
        self, box: Box, *, created_before: datetime, go_on: Callable[[], bool] = lambda: True
    ) -> Turnover | None:
        """See ``Partitions.turn_over``; partitions are there without being made, and all are emptied at once."""
        if box.storage is not Storage.LOG or box.source.log_partitions is None:
            return None
        self._fault("history")
        if not go_on():
            return Turnover()
        with self._database.lock:
            return Turnover(deleted=self._database.log(box).empty(created_before))

    def claims(self, box: Box) -> MemoryClaims:
        """See ``Store.claims``."""
        kind = LogClaims if box.storage is Storage.LOG else MemoryClaims
        return kind(self._database, box, fault=self._fault, bounds=self._bounds)

    def _deletable(self, box: Box) -> Iterable[Row]:
        if box.storage is not Storage.LOG:
            return super()._deletable(box)
        log = self._database.log(box)
        return (row for row in super()._deletable(box) if not log.is_kept(row.id))

    def _remove(self, box: Box, rows: Sequence[Row]) -> None:
        if box.storage is not Storage.LOG:
            super()._remove(box, rows)
            return
        for row in rows:
            self._database.log(box).remove(row.id)
