"""Claims in memory: bucket locks, and transactions that write nothing before they commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, ClassVar

from boxengine.adapters.memory.bounding import MemoryBounds
from boxengine.adapters.memory.database import Database, Step
from boxengine.adapters.memory.rows import Begin, Row, Rows, behind, by_id
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import FailedAttempt, Settlement, Unrecorded
from boxengine.errors import StoreUnavailable


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
        buckets: Mapping[int, Begin],
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
            self.locked = frozenset[int]()
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

    def _read(self, begin: Mapping[int, Begin], limit: int) -> tuple[list[Item], frozenset[int]]:
        share = max(1, limit // max(1, len(self._granted)))
        rows = self._database.rows(self._box)
        found: list[Row] = []
        exhausted = set()
        for bucket in self._granted:
            due = behind(begin[bucket], rows.due(self._box, bucket, self.now))
            of_bucket = list(islice(due, share))
            found += of_bucket
            if len(of_bucket) < share:
                exhausted.add(bucket)
        found.sort(key=by_id)
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
                if row.status == Status.DELIVERED and not row.is_copy:
                    last[row.event_key, row.event_name] = row.id
        found = ((item.id, last.get((item.event_key, item.event_name), item.id)) for item in items)
        return {item_id: later for item_id, later in found if later > item_id}

    def waiting_keys(self, items: Sequence[Item], upto: Mapping[int, ItemId]) -> Collection[str]:
        """See ``PlainClaim.waiting_keys``."""
        self._fault("waiting_keys")
        wanted = {(item.bucket, item.event_key) for item in items}
        strict = self._box.strict_order is not StrictOrder.NONE
        with self._database.lock:
            self._insist_on_connection()
            self.last_used = self._database.clock.monotonic()
            return {
                row.event_key
                for bucket, last in upto.items()
                for row in (self._rows.unfinished(bucket) if strict else self._rows.due(self._box, bucket, self.now))
                if row.status == Status.PENDING and (bucket, row.event_key) in wanted and row.id <= last
            }

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
        """See ``OpenClaim.cut``."""
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
