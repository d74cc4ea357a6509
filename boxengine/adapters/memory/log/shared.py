"""What all readers of one log have in common: its rows, and the server whose transactions its positions count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from boxengine.adapters.memory.log.transactions import FIRST, Snapshot, Transactions
from boxengine.adapters.memory.rows import Row
from boxengine.domain.log_progress import Position

PART = 4
"""Transactions whose rows share a partition."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One row of the log."""

    row: Row
    xact: int
    server: int
    """On which ``xact`` was given. No reading knows it: it only tells what has become of the row."""


@dataclass(frozen=True, slots=True)
class ReaderDump:
    """What a dump has of one reader."""

    view: Sequence[Row]
    side: Sequence[Row]
    positions: Mapping[int, Position]


@dataclass(frozen=True, slots=True)
class LogDump:
    """What a dump has of a log; transactions and their numbers are the server's, and stay there."""

    rows: Mapping[int, Logged]
    server: int
    readers: Sequence[ReaderDump]


class Reader(Protocol):
    """The box itself, or one subscription, as its log sees it."""

    def appended(self, row: Row) -> None:
        """A row is committed."""

    def gone(self, row_id: int) -> None:
        """A row is in the log no longer."""

    def has_passed(self, logged: Logged) -> bool:
        """Whether its position is behind the row."""

    def step_aside(self) -> int:
        """Takes what may not have been delivered into its side table, and returns how many rows that are."""

    def begin_anew(self, now: str) -> None:
        """Takes a snapshot of this server's for its positions."""

    def dump(self) -> ReaderDump:
        """What it has now."""

    def restore(self, dump: ReaderDump) -> None:
        """Has what it had then."""


class SharedLog:
    """The rows of one log. Not thread-safe: its owner holds a lock."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions
        self.rows: dict[int, Logged] = {}
        self.readers: list[Reader] = []
        self.server = transactions.server
        """To which all positions belong."""

    def append(self, rows: Sequence[Row], xact: int) -> None:
        """Rows of a transaction that commits now."""
        for row in rows:
            self.rows[row.id] = Logged(row, xact, self.transactions.server)
            for reader in self.readers:
                reader.appended(row)

    def is_kept(self, row_id: int) -> bool:
        """Whether the row is there, and a reader has yet to pass it."""
        logged = self.rows.get(row_id)
        return logged is not None and not self._is_passed_by_all([logged])

    def _is_passed_by_all(self, rows: Sequence[Logged]) -> bool:
        # As long as positions are another server's, nobody knows what was passed.
        return not self.is_foreign and all(reader.has_passed(each) for reader in self.readers for each in rows)

    def drop(self, row_id: int) -> None:
        """Takes a row out of the log, whoever has yet to pass it."""
        if self.rows.pop(row_id, None) is not None:
            for reader in self.readers:
                reader.gone(row_id)

    def empty(self, created_before: datetime) -> int:
        """Drops each part that all readers have passed, with its rows; returns how many these were.

        A part has ``PART`` transactions, and is looked at once all of them have ended.
        """
        parts: dict[int, list[Logged]] = {}
        for each in self.rows.values():
            parts.setdefault(each.xact // PART, []).append(each)
        gone = [rows for part, rows in parts.items() if self._is_over(part, rows, created_before)]
        for each in (each for rows in gone for each in rows):
            self.drop(each.row.id)
        return sum(map(len, gone))

    def _is_over(self, part: int, rows: Sequence[Logged], created_before: datetime) -> bool:
        return (
            (part + 1) * PART <= self.transactions.oldest_running
            and all(each.row.created_at < created_before for each in rows)
            and self._is_passed_by_all(rows)
        )

    @property
    def is_foreign(self) -> bool:
        """Whether the positions are in another server's numbers."""
        return self.server != self.transactions.server

    def go_on(self) -> int | None:
        """What a worker does where its log has come to another server; see ``boxengine.adapters.sql.log.foreign``.

        All readers are brought over together, as the rows get other numbers. Returns how many items stepped aside; None: the
        positions are this server's.
        """
        if not self.is_foreign:
            return None
        now = self.transactions.snapshot()
        aside = sum(reader.step_aside() for reader in self.readers)
        shown = Snapshot.read(now)
        for row_id, each in self.rows.items():
            if not shown.shows(each.xact):
                self.rows[row_id] = replace(each, xact=FIRST)
        self.server = self.transactions.server
        for reader in self.readers:
            reader.begin_anew(now)
        return aside

    def dump(self) -> LogDump:
        """As of this moment."""
        return LogDump(dict(self.rows), self.server, [reader.dump() for reader in self.readers])

    def restore(self, dump: LogDump) -> None:
        """What has happened since is undone, for the same readers; nobody has brought the log over yet."""
        self.rows, self.server = dict(dump.rows), dump.server
        for reader, then in zip(self.readers, dump.readers, strict=True):
            reader.restore(then)
