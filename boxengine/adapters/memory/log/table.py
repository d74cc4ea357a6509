"""One reader of a log in memory: the positions of its buckets, and its side table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

from boxengine.adapters.memory.log.shared import Logged, ReaderDump, SharedLog
from boxengine.adapters.memory.log.transactions import NOTHING, Snapshot
from boxengine.adapters.memory.rows import Begin, Row, Rows, behind, is_past_its_pause
from boxengine.domain.box import Beginning, Box, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.log_moves import sent_back
from boxengine.domain.log_progress import Given, Portions, Position, Reading, give, move
from boxengine.errors import StoreUnavailable


class MemoryLog:
    """The log as the box itself reads it, or one subscription. Not thread-safe: its owner holds a lock.

    Args:
        view: its items as people see them, wherever they stand. Each change that is committed is put into it.
    """

    def __init__(self, box: Box, log: SharedLog, view: Rows) -> None:
        self.side = Rows()
        self.view = view
        self._box = box
        self._log = log
        begins_now = box.subscription is not None and box.subscription.begins is Beginning.NOW
        passed = log.transactions.snapshot() if begins_now else NOTHING
        self._positions = {bucket: Position(bucket=bucket, passed=passed) for bucket in box.buckets}
        log.readers.append(self)
        for logged in log.rows.values():
            if not self.has_passed(logged):
                view.put(logged.row)

    # ── writers, and people ──────────────────────────────────────────────────────────────────────────

    def append(self, rows: Sequence[Row], xact: int) -> None:
        """Rows of a transaction that commits now, for all readers of the log."""
        self._log.append(rows, xact)

    def appended(self, row: Row) -> None:
        """See ``Reader.appended``."""
        self.view.put(row)

    def put_aside(self, row: Row) -> None:
        """A row that somebody writes into the side table."""
        self.side.put(row)
        self.view.put(row)

    def is_kept(self, row_id: int) -> bool:
        """Whether retention must leave the item: it stands in the log alone, and another reader has yet to pass it."""
        return self.side.get(row_id) is None and self._log.is_kept(row_id)

    def remove(self, row_id: int) -> None:
        """Retention takes an item of this reader away, and out of the log what all have passed."""
        self.side.remove(row_id)
        self.view.remove(row_id)
        if not self._log.is_kept(row_id):
            self._log.drop(row_id)

    def forget(self, row_id: int) -> None:
        """The item has never been there."""
        self.side.remove(row_id)
        self.view.remove(row_id)
        self._log.drop(row_id)

    def gone(self, row_id: int) -> None:
        """See ``Reader.gone``."""
        if self.side.get(row_id) is None:
            self.view.remove(row_id)

    def step_aside(self) -> int:
        """See ``Reader.step_aside``."""
        aside = [each.row for each in self._log.rows.values() if self._is_in_doubt(each)]
        for row in aside:
            if self.side.get(row.id) is None:
                self.side.put(row)
        return len(aside)

    def begin_anew(self, now: str) -> None:
        """See ``Reader.begin_anew``."""
        for bucket, position in self._positions.items():
            there = (row_id for row_id, each in self._log.rows.items() if each.row.bucket == bucket)
            high = max([position.high, *there])
            self._positions[bucket] = Position(bucket=bucket, passed=now, high=high, turn=position.turn + 1)
        self._show()

    def _is_in_doubt(self, logged: Logged) -> bool:
        position = self._positions.get(logged.row.bucket)
        if position is None:
            return False
        was_passed = logged.row.id <= position.high and Snapshot.read(position.passed).shows(logged.xact)
        return not was_passed and not _is_behind(position, logged)

    def send_back(self, item: int) -> list[int]:
        """Delivers the items from this id on once more, as ``boxengine subscriptions rewind`` does.

        Returns the ids of those that stood in the side table, and begin anew.

        Raises:
            StoreUnavailable: the positions are in another server's numbers.
        """
        if self._log.is_foreign:
            raise self._foreign()
        return [each for position in list(self._positions.values()) for each in self._send_back(position, item)]

    def _send_back(self, position: Position, item: int) -> list[int]:
        now = self._log.transactions.snapshot()
        shown = Snapshot.read(now)
        rows = [
            each for each in self._log.rows.values() if each.row.bucket == position.bucket and shown.shows(each.xact)
        ]
        again = [each for each in rows if each.row.id >= item]
        if not again:
            return []
        back = sent_back(
            position,
            min(each.row.id for each in again),
            now=now,
            began=min(each.xact for each in again),
            waiting=min((each.row.id for each in rows if not self.has_passed(each)), default=None),
        )
        self._positions[position.bucket] = replace(back, turn=position.turn + 1)
        waiting = [each.row for each in rows if not self.has_passed(each)]
        anew = [row.id for row in waiting if self.side.get(row.id) is not None]
        for row in waiting:
            self.side.remove(row.id)
            if self.view.get(row.id) != row:
                self.view.put(row)
        return anew

    def _foreign(self) -> StoreUnavailable:
        return StoreUnavailable(f"box {self._box.name}: its positions are in the numbers of another server")

    # ── a claim ──────────────────────────────────────────────────────────────────────────────────────

    def empty(self, created_before: datetime) -> int:
        """See ``SharedLog.empty``."""
        return self._log.empty(created_before)

    def go_on(self) -> None:
        """Before a claim: brings the log over if it has come to another server."""
        self._log.go_on()

    def is_waiting(self, bucket: int, now: datetime) -> bool:
        """Whether a claim of the bucket would find anything in the log."""
        position, upto = self._positions[bucket], self._log.transactions.snapshot()
        if self._log.is_foreign or position.batch is not None:
            return not self._is_blocked(bucket, now)
        return any(self._between(position, upto)) and not self._is_blocked(bucket, now)

    def read(
        self, begin: Mapping[int, Begin], granted: Collection[int], limit: int, now: datetime
    ) -> tuple[Given[Row], dict[int, int]]:
        """What a claim of these buckets gives, and of the log's rows that were found each one's bucket.

        Raises:
            StoreUnavailable: the positions are in another server's numbers.
        """
        if granted and self._log.is_foreign:
            raise self._foreign()
        upto = self._log.transactions.snapshot()
        portions = self._portions(granted, limit)
        side: list[Row] = []
        for bucket in granted:
            side += islice(behind(begin[bucket], self.side.due(self._box, bucket, now)), portions.share)
        positions = [self._positions[bucket] for bucket in granted if not self._is_blocked(bucket, now)]
        found = self._beginning(positions, upto, portions)
        sorted_out = portions.sort_out(found)
        most = {**dict.fromkeys(granted, portions.share), **found, **sorted_out.large}
        readings = {
            each.bucket: self._reading(each, upto, most[each.bucket], now, large=each.bucket in sorted_out.large)
            for each in positions
            if each.bucket not in sorted_out.unread
        }
        logged = [
            self._log.rows[each].row
            for reading in readings.values()
            for each in reading.ids
            if each not in reading.parked
        ]
        given = give(
            side,
            logged,
            readings,
            unread=sorted_out.unread,
            share=portions.share,
            limit=limit,
            id_of=lambda row: row.id,
            bucket_of=lambda row: row.bucket,
        )
        bucket_of = {each: bucket for bucket, reading in given.readings.items() for each in reading.ids}
        return given, bucket_of

    def _portions(self, granted: Collection[int], limit: int) -> Portions:
        if self._box.strict_order is StrictOrder.BUCKET:
            return Portions.even(limit, buckets=len(granted))
        under_way = sum(self._positions[bucket].batch is not None for bucket in granted)
        return Portions.filling(limit, buckets=len(granted)).beside(under_way)

    def _beginning(self, positions: Sequence[Position], upto: str, portions: Portions) -> dict[int, int]:
        """How many rows are read of each bucket that begins a batch."""
        numbers: dict[int, int] = {}
        for each in positions:
            if each.batch is None:
                most = portions.most + 1
                if portions.room is not None:
                    most = min(most, portions.room + 1 - sum(numbers.values()))
                numbers[each.bucket] = min(len(list(self._between(each, upto))), most)
        return numbers

    def _reading(self, position: Position, now: str, most: int, moment: datetime, *, large: bool) -> Reading:
        """Args:
        most: how many rows to give.
        large: whether the bucket begins a batch that has more.
        """
        upto = position.batch or now
        found = sorted(self._between(position, upto))
        ids = found[:most]
        parked = self._parked(position.bucket, moment)
        return Reading(
            position=position,
            upto=upto,
            ids=ids,
            parked=frozenset(each for each in ids if self._log.rows[each].row.event_key in parked),
            # What begins a batch and is not large was read as a whole, says the sorting.
            complete=not large and (position.batch is None or len(found) == len(ids)),
            followed=any(self._between(Position(bucket=position.bucket, passed=upto), now)),
        )

    def _between(self, position: Position, upto: str) -> Iterator[int]:
        """Rows of the bucket visible at ``upto`` and not at ``passed``, behind the place of the batch under way."""
        later, earlier = Snapshot.read(upto), Snapshot.read(position.passed)
        for each in self._log.rows.values():
            if each.row.bucket == position.bucket and later.shows(each.xact) and not earlier.shows(each.xact):
                if position.batch is not None and each.row.id <= position.place:
                    continue
                yield each.row.id

    def _parked(self, bucket: int, now: datetime) -> set[str]:
        """Keys whose items must wait in the side table for others of theirs."""
        if self._box.strict_order is not StrictOrder.KEY:
            return set()
        return {
            row.event_key
            for row in self.side.unfinished(bucket)
            if row.status == Status.FAILED or not is_past_its_pause(self._box, row, now)
        }

    def _is_blocked(self, bucket: int, now: datetime) -> bool:
        return self._box.strict_order is StrictOrder.BUCKET and any(
            row.status == Status.PENDING and not is_past_its_pause(self._box, row, now)
            for row in self.side.unfinished(bucket)
        )

    def unread_since(self) -> datetime | None:
        """When the oldest row was created that has not been passed."""
        return min((each.row.created_at for each in self._log.rows.values() if not self.has_passed(each)), default=None)

    # ── its settlement ───────────────────────────────────────────────────────────────────────────────

    def row(self, row_id: int) -> Row:
        """One of the log, as it was written."""
        return self._log.rows[row_id].row

    def move_on(self, readings: Collection[Reading], settled: Collection[int], aside: Collection[int] = ()) -> None:
        """Moves the positions past what is settled, and lets step aside what that passes over, and what is in ``aside``.

        Raises:
            StoreUnavailable: somebody has moved one meanwhile; nothing is done.
        """
        moves = [each for each in (move(reading, settled, aside) for reading in readings) if each is not None]
        if any(self._positions[each.position.bucket].turn != each.position.turn for each in moves):
            raise StoreUnavailable(f"box {self._box.name}: a position has been moved meanwhile")
        for each in moves:
            for row_id in each.aside:
                self.side.put(self._log.rows[row_id].row)
            self._positions[each.position.bucket] = replace(each.position, turn=each.position.turn + 1)
        self._show()

    def _show(self) -> None:
        """Brings the view to what is committed now."""
        for row_id in [row.id for row in self.view if row.id not in self._log.rows and self.side.get(row.id) is None]:
            self.view.remove(row_id)
        for each in self.side:
            self._change(each)
        for logged in self._log.rows.values():
            if self.side.get(logged.row.id) is None and self.has_passed(logged):
                shown = self.view.get(logged.row.id)
                if shown is not None and shown.status == Status.PENDING:
                    self._change(replace(shown, status=Status.DELIVERED))

    def _change(self, row: Row) -> None:
        shown = self.view.get(row.id)
        if shown is not None and shown != row:
            self.view.put(row)

    # ── a dump ───────────────────────────────────────────────────────────────────────────────────────

    def dump(self) -> ReaderDump:
        """See ``Reader.dump``."""
        return ReaderDump(list(self.view), list(self.side), dict(self._positions))

    def restore(self, dump: ReaderDump) -> None:
        """See ``Reader.restore``."""
        self.side = Rows()
        for row in dump.side:
            self.side.put(row)
        self._positions = dict(dump.positions)
        for row_id in {row.id for row in self.view}.difference(row.id for row in dump.view):
            self.view.remove(row_id)
        for row in dump.view:
            if self.view.get(row.id) != row:
                self.view.put(row)

    def has_passed(self, logged: Logged) -> bool:
        """See ``Reader.has_passed``."""
        position = self._positions.get(logged.row.bucket)
        if position is None or logged.server > self._log.server:
            return False
        return Snapshot.read(position.passed).shows(logged.xact) or _is_behind(position, logged)


def _is_behind(position: Position, logged: Logged) -> bool:
    """Whether the row is of the batch under way, and has been passed."""
    if position.batch is None or logged.row.id > position.place:
        return False
    return Snapshot.read(position.batch).shows(logged.xact)
