"""The rows of one log box in memory: the log, the positions of its buckets, and its side table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from boxengine.adapters.memory.log.transactions import FIRST, NOTHING, Snapshot, Transactions
from boxengine.adapters.memory.rows import Row, Rows, is_past_its_pause
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.log_progress import Given, Position, Reading, give, has_gone_back, move
from boxengine.errors import StoreUnavailable


@dataclass(frozen=True, slots=True)
class _Logged:
    row: Row
    xact: int
    server: int
    """On which ``xact`` was given. No reading knows it: it only tells what has become of the row."""


class MemoryLog:
    """One log box. Not thread-safe: its owner holds a lock.

    Args:
        view: its items as people see them, wherever they stand. Each change that is committed is put into it.
    """

    def __init__(self, box: Box, transactions: Transactions, view: Rows) -> None:
        self.side = Rows()
        self.view = view
        self._box = box
        self._transactions = transactions
        self._rows: dict[int, _Logged] = {}
        self._positions = {bucket: Position(bucket=bucket, passed=NOTHING) for bucket in box.buckets}
        self._server = transactions.server
        """To which the positions belong."""

    # ── writers, and people ──────────────────────────────────────────────────────────────────────────

    def append(self, rows: Sequence[Row], xact: int) -> None:
        """Rows of a transaction that commits now."""
        for row in rows:
            self._rows[row.id] = _Logged(row, xact, self._transactions.server)
            self.view.put(row)

    def put_aside(self, row: Row) -> None:
        """A row that somebody writes into the side table."""
        self.side.put(row)
        self.view.put(row)

    def remove(self, row_id: int) -> None:
        """Retention, or a person, takes the row away."""
        self._rows.pop(row_id, None)
        self.side.remove(row_id)
        self.view.remove(row_id)

    def reposition(self) -> int | None:
        """Lets all step aside that may not have been delivered; see ``boxengine.adapters.sql.log.moved``."""
        now = self._transactions.snapshot()
        if not self._is_foreign(now):
            return None
        aside = [each for each in self._rows.values() if self._is_in_doubt(each)]
        for each in aside:
            self.side.put(each.row)
        shown = Snapshot.read(now)
        for row_id, each in self._rows.items():
            if not shown.shows(each.xact):
                self._rows[row_id] = replace(each, xact=FIRST)
        self._server = self._transactions.server
        for bucket, position in self._positions.items():
            high = max([position.high, *(row_id for row_id, each in self._rows.items() if each.row.bucket == bucket)])
            self._positions[bucket] = Position(bucket=bucket, passed=now, high=high, turn=position.turn + 1)
        self._show()
        return len(aside)

    def _is_in_doubt(self, logged: _Logged) -> bool:
        position = self._positions.get(logged.row.bucket)
        if position is None:
            return False
        was_passed = logged.row.id <= position.high and Snapshot.read(position.passed).shows(logged.xact)
        return not was_passed and not _is_behind(position, logged)

    # ── a claim ──────────────────────────────────────────────────────────────────────────────────────

    def is_waiting(self, bucket: int, now: datetime) -> bool:
        """Whether a claim of the bucket would find anything in the log."""
        position, upto = self._positions[bucket], self._transactions.snapshot()
        if has_gone_back(position.passed, upto) or position.batch is not None:
            return not self._is_blocked(bucket, now)
        return any(self._between(position, upto)) and not self._is_blocked(bucket, now)

    def read(
        self, buckets: Mapping[int, int | None], granted: Collection[int], limit: int, now: datetime
    ) -> tuple[Given[Row], dict[int, int]]:
        """What a claim of these buckets gives, and of the log's rows that were found each one's bucket.

        Raises:
            StoreUnavailable: the positions are in another server's numbers.
        """
        upto = self._transactions.snapshot()
        if granted and self._is_foreign(upto):
            raise StoreUnavailable(f"box {self._box.name}: its positions are in the numbers of another server")
        share = max(1, limit // max(1, len(granted)))
        side: list[Row] = []
        readings: dict[int, Reading] = {}
        for bucket in granted:
            after = buckets[bucket]
            due = (row for row in self.side.due(self._box, bucket, now) if after is None or row.id > after)
            side += islice(due, share)
            if not self._is_blocked(bucket, now):
                readings[bucket] = self._reading(self._positions[bucket], upto, share, now)
        logged = [
            self._rows[each].row for reading in readings.values() for each in reading.ids if each not in reading.parked
        ]
        given = give(
            side, logged, readings, share=share, limit=limit, id_of=lambda row: row.id, bucket_of=lambda row: row.bucket
        )
        bucket_of = {each: bucket for bucket, reading in given.readings.items() for each in reading.ids}
        return given, bucket_of

    def _reading(self, position: Position, now: str, share: int, moment: datetime) -> Reading:
        upto = position.batch or now
        found = sorted(self._between(position, upto))
        ids = found[:share]
        parked = self._parked(position.bucket, moment)
        return Reading(
            position=position,
            upto=upto,
            ids=ids,
            parked=frozenset(each for each in ids if self._rows[each].row.event_key in parked),
            complete=len(found) <= share,
        )

    def _between(self, position: Position, upto: str) -> Iterator[int]:
        """Rows of the bucket visible at ``upto`` and not at ``passed``, behind the place of the batch under way."""
        later, earlier = Snapshot.read(upto), Snapshot.read(position.passed)
        for each in self._rows.values():
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

    def _is_foreign(self, now: str) -> bool:
        return self._server != self._transactions.server or any(
            has_gone_back(each.batch or each.passed, now) for each in self._positions.values()
        )

    def unread_since(self) -> datetime | None:
        """When the oldest row was created that has not been passed."""
        return min((each.row.created_at for each in self._rows.values() if not self._is_passed(each)), default=None)

    # ── its settlement ───────────────────────────────────────────────────────────────────────────────

    def row(self, row_id: int) -> Row:
        """One of the log, as it was written."""
        return self._rows[row_id].row

    def move_on(self, readings: Collection[Reading], settled: Collection[int]) -> None:
        """Moves the positions past what is settled, and lets step aside what that passes over.

        Raises:
            StoreUnavailable: somebody has moved one meanwhile; nothing is done.
        """
        moves = [each for each in (move(reading, settled) for reading in readings) if each is not None]
        if any(self._positions[each.position.bucket].turn != each.position.turn for each in moves):
            raise StoreUnavailable(f"box {self._box.name}: a position has been moved meanwhile")
        for each in moves:
            for row_id in each.aside:
                self.side.put(self._rows[row_id].row)
            self._positions[each.position.bucket] = replace(each.position, turn=each.position.turn + 1)
        self._show()

    def _show(self) -> None:
        """Brings the view to what is committed now."""
        for row_id in [row.id for row in self.view if row.id not in self._rows and self.side.get(row.id) is None]:
            self.view.remove(row_id)
        for each in self.side:
            self._change(each)
        for logged in self._rows.values():
            if self.side.get(logged.row.id) is None and self._is_passed(logged):
                shown = self.view.get(logged.row.id)
                if shown is not None and shown.status == Status.PENDING:
                    self._change(replace(shown, status=Status.DELIVERED))

    def _change(self, row: Row) -> None:
        shown = self.view.get(row.id)
        if shown is not None and shown != row:
            self.view.put(row)

    def _is_passed(self, logged: _Logged) -> bool:
        position = self._positions.get(logged.row.bucket)
        if position is None or logged.server > self._server:
            return False
        return Snapshot.read(position.passed).shows(logged.xact) or _is_behind(position, logged)


def _is_behind(position: Position, logged: _Logged) -> bool:
    """Whether the row is of the batch under way, and has been passed."""
    if position.batch is None or logged.row.id > position.place:
        return False
    return Snapshot.read(position.batch).shows(logged.xact)
