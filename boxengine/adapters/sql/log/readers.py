"""The readers of one log: the box itself, or its subscriptions, each with a table of positions.

``t_readers`` lists the subscriptions that have positions, whatever a configuration says of them. So retention heeds a reader
that the worker at hand does not know, such as one that a newer configuration has just added.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from sqlalchemy import Connection, make_url, text

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.shape.tables import BoxTable, for_driver, quoted
from boxengine.domain.box import Box
from boxengine.errors import SchemaMismatch

READERS = "_readers"
_TRUSTED = (
    "server = (SELECT system_identifier FROM pg_control_system()) "
    "AND pg_snapshot_xmax(coalesce(batch, passed)) <= pg_snapshot_xmax(pg_current_snapshot())"
)
"""A position in the numbers of this server's transactions. No other says what was passed."""
_REMOVAL = (zlib.crc32(b"boxengine removal") >> 1) << 32
"""Added to the number of a table: an advisory lock with one number, which those of buckets, with two, never are."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Where the readers of a log are found; names are not quoted."""

    schema: str
    table: str
    """The side table of the box that is written to."""

    @classmethod
    def of(cls, side: BoxTable) -> Self:
        """The readers of the log that a side table's box reads."""
        return cls(side.schema, side.box.source.table.rpartition(".")[2])

    @property
    def listed(self) -> str:
        """The quoted name of the table that lists the subscriptions."""
        return self._quoted(self.table + READERS)

    @property
    def unnamed(self) -> str:
        """The quoted name of the box's own positions, which it has without subscriptions."""
        return self.positions("")

    def positions(self, name: str) -> str:
        """The quoted name of a subscription's positions."""
        return self._quoted(f"{self.table}{name and '_'}{name}_positions")

    def side(self, name: str) -> str:
        """The quoted name of a subscription's side table; of the box itself, if the name is empty."""
        return self._quoted(f"{self.table}{name and '_'}{name}")

    def _quoted(self, name: str) -> str:
        return quoted(make_url("postgresql+psycopg://").get_dialect()(), self.schema, name)

    def names(self, cursor: Cursor) -> list[str]:
        """The names of all readers, as of now; that of the box itself is empty."""
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL, to_regclass(%s) IS NOT NULL", (self.unnamed, self.listed))
        unnamed, listed = cursor.fetchone()
        found = [""] if unnamed else []
        if listed:
            cursor.execute(f"SELECT name FROM {for_driver(self.listed)} ORDER BY name", ())
            found += [name for (name,) in cursor.fetchall()]
        return found

    def tables(self, cursor: Cursor) -> list[str]:
        """The quoted names of all readers' positions, as of now."""
        return [self.positions(name) for name in self.names(cursor)]

    def passed_by_all(self, cursor: Cursor) -> PassedByAll:
        """What may be deleted from the log: what every reader has passed."""
        tables = [for_driver(name) for name in self.tables(cursor)]
        each = " UNION ALL ".join(f"SELECT bucket, passed FROM {name} WHERE {_TRUSTED}" for name in tables)
        return PassedByAll(f"({each})", len(tables))

    def may_remove(self, cursor: Cursor) -> bool:
        """Whether this transaction may, beside others, remove rows of the log; not while a reader is sent back to some."""
        cursor.execute(f"SELECT pg_try_advisory_xact_lock_shared({self._removal})", (self.side(""),))
        return bool(cursor.fetchone()[0])

    def forbid_removal(self, cursor: Cursor) -> None:
        """Until the transaction ends; waits for those that remove rows now."""
        cursor.execute(f"SELECT pg_advisory_xact_lock({self._removal})", (self.side(""),))

    @property
    def _removal(self) -> str:
        return f"{_REMOVAL} + CAST(CAST(to_regclass(%s) AS oid) AS bigint)"


@dataclass(frozen=True, slots=True)
class PassedByAll:
    """The lowest position over all readers, as parts of a statement. A reader whose position cannot be trusted has passed
    nothing."""

    positions: str
    """A subquery with the columns ``bucket`` and ``passed``: a row for each reader and bucket."""
    readers: int

    @property
    def buckets(self) -> str:
        """A query for the buckets in which every reader has a position."""
        return f"SELECT p.bucket FROM {self.positions} AS p GROUP BY p.bucket HAVING count(*) = {self.readers}"

    def has_passed(self, row: str) -> str:
        """A condition: every reader has passed this row of the log, whose bucket is one of ``buckets``."""
        return (
            f"NOT EXISTS (SELECT 1 FROM {self.positions} AS p WHERE p.bucket = {row}.bucket "
            f"AND NOT pg_visible_in_snapshot({row}.xact, p.passed))"
        )


def refuse_others(connection: Connection, readers: Readers, box: Box) -> None:
    """Raises:
    SchemaMismatch: the database has a reader of the log that the configuration does not name, or this account may not see
        which there are.
    """
    query = text("SELECT to_regclass(:name) IS NOT NULL")
    listed: Sequence[str] = ()
    if connection.execute(query, {"name": readers.listed}).scalar():
        may_read = text("SELECT has_table_privilege(to_regclass(:name), 'SELECT')")
        if not connection.execute(may_read, {"name": readers.listed}).scalar():
            raise _may_not_read(readers, box)
        names = text("SELECT name FROM " + readers.listed.replace(":", "\\:") + " ORDER BY name")
        listed = connection.execute(names).scalars().all()
    log = box.source.name
    forgotten = [f"{log}.{name}" for name in listed if name not in box.subscriptions]
    if box.subscription is not None and connection.execute(query, {"name": readers.unnamed}).scalar():
        forgotten.append(log)
    if forgotten:
        has = "has a position" if len(forgotten) == 1 else "have positions"
        # An old process also meets what a newer configuration has added, and dropping that would be wrong.
        raise SchemaMismatch(
            f"box {box.name}: {', '.join(forgotten)} {has} in the log, and this configuration does not name it: deploy the one "
            "that does or, if none does any more, give the position up with: boxengine subscriptions drop "
            + forgotten[0]
        )


def _may_not_read(readers: Readers, box: Box) -> SchemaMismatch:
    return SchemaMismatch(f"box {box.name}: this account may not SELECT on {readers.listed}; as its owner, grant it")
