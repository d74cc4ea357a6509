"""A box's whole table for the audit: pages by key or by id, each in a short transaction of its own.

Each page starts where the previous one ended (keyset), so no snapshot keeps dead rows alive, and there is no cursor for a
pooler to lose. By key, a page first reads the rest of the key at which the last page ended, then the next keys: each query is
one range of the index ``(event_key, id)``, on every database. Without that index every such page would sort the table again;
so the table is read once by id, the latest first, and sorted here, on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection

from boxengine.adapters.sql.connecting.cursors import cursor_of
from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.dialects.unreadable import within_reach
from boxengine.adapters.sql.looking import key_order
from boxengine.adapters.sql.shape.replayed import is_marked, mentions, names_itself
from boxengine.adapters.sql.shape.tables import BoxTable, finished_indexes, leads_to_keys, quoted, unescaped
from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.ports.people.audit import AuditedRow, LastDelivered, Replayed, RowMark, Twins

PAGE = 5000
"""Rows."""
ALONG_THE_INDEX = "SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)"
"""Makes the planner walk the index; the settings end with the transaction."""
_NO_ID = 2**63 - 1
"""Greater than every id."""
_RAW_UUID = 16
"""Bytes of a uuid that a MySQL schema stores in binary."""
Values = tuple[Any, ...]


class SqlAudit:
    """``AuditStore`` over the database of a ``SqlStore``."""

    def __init__(self, store: SqlStore, *, page: int = PAGE) -> None:
        self._store = store
        self._page = page

    def now(self) -> datetime:
        return self._store.now()

    def numbered(self, box: Box) -> bool:
        return self._store.table(box).numbered

    def by_key(self, box: Box, *, since: datetime | None) -> Iterator[Sequence[AuditedRow]]:
        table = self._table(box)
        index = self._key_index(box)
        created, values = self._created(table, since)
        if index is None:
            yield from key_order.by_key(self._latest_first(table, created, values), page=self._page)
            return
        select = f"SELECT {table.columns} FROM {table.name} AS t {table.hint(index)} WHERE {created}"
        order = "ORDER BY t.event_key DESC, t.id DESC LIMIT %s"
        rows = self._walk(f"{select} {order}", (*values, self._page))
        while rows:
            yield list(map(table.audited_row, rows))
            key, last = rows[-1][1], rows[-1][0]
            # MySQL would sort by a key that is the same in all rows.
            rest = f"{select} AND t.event_key = %s AND t.id < %s ORDER BY t.id DESC LIMIT %s"
            rows = self._walk(rest, (*values, key, last, self._page))
            if not rows:
                rows = self._walk(f"{select} AND t.event_key < %s {order}", (*values, key, self._page))

    def by_id(self, box: Box, *, since: datetime | None) -> Iterator[Sequence[RowMark]]:
        table = self._table(box)
        created, values = self._created(table, since)
        query = f"SELECT {table.marks} FROM {table.name} AS t WHERE {created} AND t.id > %s ORDER BY t.id LIMIT %s"
        last = 0
        while rows := self._walk(query, (*values, last, self._page)):
            yield [RowMark._make((row[0], _canonical(row[1]), *row[2:-1], bool(row[-1]))) for row in rows]
            last = rows[-1][0]

    def twins(self, box: Box, *, since: datetime | None, limit: int) -> list[Twins]:
        table = self._table(box)
        created, values = self._created(table, since)
        found = []
        for column in self._not_unique(box, ("uuid", "dedup_key")):
            rows = self._ask(
                f"SELECT t.{column}, count(*), min(t.id), max(t.id), min(t.event_key) FROM {table.name} AS t "
                f"WHERE {created} AND t.{column} IS NOT NULL GROUP BY t.{column} HAVING count(*) > 1 "
                "ORDER BY min(t.id) LIMIT %s",
                (*values, limit),
            )
            found += [Twins._make((column, _canonical(value), *rest, str(key))) for value, *rest, key in rows]
        return found

    def last_delivered(self, box: Box, buckets: Sequence[int]) -> Mapping[int, LastDelivered]:
        table = self._table(box)
        places = ", ".join(["%s"] * len(buckets))
        rows = self._ask(
            f"SELECT t.bucket, max(t.id), {table.utc('max(t.processed_at)', 'processed_at')} FROM {table.name} AS t "
            f"WHERE t.status = {Status.DELIVERED:d} AND t.bucket IN ({places}) GROUP BY t.bucket",
            tuple(buckets),
        )
        return {bucket: LastDelivered(last_id, at) for bucket, last_id, at in rows if at is not None}

    # ── the parts ────────────────────────────────────────────────────────────────────────────────────

    def _latest_first(self, table: _Table, created: str, values: Values) -> Iterator[list[AuditedRow]]:
        """Reads by descending id, so that the later of two rows of a key comes first here, too."""
        query = (
            f"SELECT {table.columns} FROM {table.name} AS t WHERE {created} AND t.id < %s ORDER BY t.id DESC LIMIT %s"
        )
        lowest = _NO_ID
        while rows := self._walk(query, (*values, lowest, self._page)):
            yield list(map(table.audited_row, rows))
            lowest = rows[-1][0]

    def _table(self, box: Box) -> _Table:
        return _Table(self._store.table(box), self._store.engine.dialect.name)

    def _created(self, table: _Table, since: datetime | None) -> tuple[str, Values]:
        """The condition for rows created since, with their lowest id: an index can test an id without reading the row."""
        if since is None:
            return "t.id > 0", ()
        moment = table.creation(since)
        ((lowest,),) = self._ask(f"SELECT min(t.id) FROM {table.name} AS t WHERE t.created_at >= %s", (moment,))
        return "t.id >= %s AND t.created_at >= %s", (0 if lowest is None else lowest, moment)

    def _walk(self, query: str, values: Values) -> list[Values]:
        """Reads a page along an index. Left alone, PostgreSQL would sort a table that it believes small for each page."""
        return self._ask(
            query, values, first=ALONG_THE_INDEX if self._store.engine.dialect.name == "postgresql" else None
        )

    def _ask(self, query: str, values: Values, *, first: str | None = None) -> list[Values]:
        """One query in a transaction of its own."""
        engine = self._store.engine
        with translated(engine), engine.connect() as connection, closing(cursor_of(connection)) as cursor:
            if first is not None:
                cursor.execute(first)
            cursor.execute(query, values)
            rows: list[Values] = list(cursor.fetchall())
            cursor.connection.rollback()
            return rows

    def _key_index(self, box: Box) -> str | None:
        schema, _, name = box.table.rpartition(".")
        with translated(self._store.engine), self._store.engine.connect() as connection:
            for index in finished_indexes(connection, schema, name):
                if index["name"] and leads_to_keys(index):
                    return quoted(connection.dialect, unescaped(index["name"]))
        return None

    def _not_unique(self, box: Box, names: Sequence[str]) -> list[str]:
        """The columns, of those the table has, that no unique index covers."""
        table = self._store.table(box)
        with translated(self._store.engine), self._store.engine.connect() as connection:
            unique = {
                index.columns[0]
                for index in _indexes(connection, box)
                if index.unique and len(index.columns) == 1 and index.condition in (None, _present(index.columns[0]))
            }
        there = table.columns | ({"dedup_key"} if table.ambiguous_dedup else frozenset())
        return [name for name in names if name in there and name not in unique]


class _Table:
    """What differs from table to table and from one database to another."""

    def __init__(self, found: BoxTable, dialect: str) -> None:
        self.name = found.name.replace("%", "%%")
        self._postgres = dialect == "postgresql"
        self._zoned = found.zoned
        self._as_it_is = self._postgres and not found.numeric_keys
        waits = ["t.errors_count > 0"]
        waits += [f"t.{column} IS NOT NULL" for column in ("error_log", "available_at") if found.has(column)]
        event_name = "t.event_name" if found.has("event_name") else "NULL"
        seq = "t.seq" if found.numbered else "NULL"
        moments = f"{self._utc('processed_at')}, {self._utc('created_at')}"
        uuid = "t.uuid::text" if self._postgres else "t.uuid"
        replayed = self._replayed() if found.has("options") else f"{Replayed.NO:d}"
        self.columns = f"t.id, t.event_key, t.bucket, t.status, ({' OR '.join(waits)}), {moments}, {seq}, {replayed}"
        own_identity = self._own_identity(replayed) if found.has("options") else "true"
        self.marks = f"t.id, {uuid}, t.status, {event_name}, {self._utc('created_at')}, {own_identity}"

    def _replayed(self) -> str:
        marked, itself = is_marked(postgresql=self._postgres), names_itself(postgresql=self._postgres)
        return (
            f"CASE WHEN {marked} AND {itself} THEN {Replayed.AGAIN:d} "
            f"WHEN {marked} THEN {Replayed.COPY:d} ELSE {Replayed.NO:d} END"
        )

    def _own_identity(self, replayed: str) -> str:
        # Of a row that goes out again, the first message carries the uuid, whatever the later ones do.
        key = mentions("Idempotency-Key", postgresql=self._postgres)
        return f"NOT ({replayed} = {Replayed.COPY:d} AND {key})"

    def _utc(self, column: str) -> str:
        return self.utc(f"t.{column}", column)

    def utc(self, moment: str, column: str) -> str:
        """The moment, which has the form of this column, in UTC, without its zone."""
        moment = within_reach(moment)
        return f"({moment}) AT TIME ZONE 'UTC'" if column in self._zoned else moment

    def creation(self, moment: datetime) -> datetime:
        """The moment in the form of ``created_at``."""
        return moment if "created_at" in self._zoned else moment.astimezone(UTC).replace(tzinfo=None)

    def hint(self, index: str) -> str:
        """An index hint for MySQL, which otherwise sorts the whole table instead of reading part of it by index."""
        return "" if self._postgres else f"FORCE INDEX ({index.replace('%', '%%')})"

    def audited_row(self, row: Values) -> AuditedRow:
        if self._as_it_is:
            return AuditedRow._make(row)
        row_id, key, bucket, status, may_wait, *rest = row
        return AuditedRow._make((row_id, str(key), bucket, status, bool(may_wait), *rest))


class _Index(NamedTuple):
    name: str
    columns: list[str | None]
    unique: bool
    condition: str | None
    """Which rows it holds; None: all."""


def _indexes(connection: Connection, box: Box) -> Iterator[_Index]:
    schema, _, name = box.table.rpartition(".")
    for index in finished_indexes(connection, schema, name):
        options = index.get("dialect_options", {})
        if index["name"] and index["column_names"]:
            condition = options.get("postgresql_where")
            yield _Index(unescaped(index["name"]), index["column_names"], index["unique"], condition)


def _present(column: str | None) -> str:
    return f"({column} IS NOT NULL)"


def _canonical(value: Any) -> str:
    """A uuid as text, however the table stores it; other text unchanged."""
    match value:
        case bytes() if len(value) == _RAW_UUID:
            return str(UUID(bytes=value))
        case bytes():
            return value.decode()
        case _:
            return str(value)
