"""Counts rows by status: exactly in small tables, otherwise by index or from the database's statistics.

Counting a table of millions takes seconds and reads all of it into the cache. So pending, failed and discarded rows,
the ones people ask about, are counted by index and up to a limit; the number of delivered rows is the database's estimate of
the total less the others. Where one of the others came to its limit, nobody knows how many are left for the delivered ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.connecting.reading import reading
from boxengine.adapters.sql.delivering.fronts import HELD, behind_front, held
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.counting import count_pending
from boxengine.adapters.sql.shape.index_names import index_name
from boxengine.adapters.sql.shape.tables import BoxTable, finished_indexes, quoted, unescaped
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Status
from boxengine.ports import Count, Counts, Precision

SMALL = 200_000
"""A table whose ids span no more than this is counted exactly."""
LIMIT = 100_000
"""Rows of one status that are counted at most in a larger table."""
FIRST = 100
"""In a larger table, rows with failed attempts are counted among so many of each bucket's oldest: retried items come before
new ones."""
KNOWN_FOR = 60.0
"""Seconds for which a reading of a table's indexes is trusted."""
CAPPED_FOR = 10.0
"""Seconds for which a count that reached its limit is not repeated."""
_ALL = 2**62
"""More rows than any table has."""


class SqlCensus:
    """``Census`` over the database of a ``SqlStore``."""

    def __init__(self, store: SqlStore, *, small: int = SMALL, limit: int = LIMIT) -> None:
        self._store = store
        self._small = small
        self._limit = limit
        self._known: dict[str, _Known] = {}

    def take(self, box: Box) -> Counts:
        with self._rows(box) as rows:
            counts = (
                rows.all()
                if rows.span() <= self._small
                else rows.estimate(self._known_of(rows), self._store.fronts(box))
            )
        return self._with_log(box, counts, most=self._limit)

    def take_exactly(self, box: Box) -> Counts:
        with self._rows(box) as rows:
            counts = rows.all()
        return self._with_log(box, counts, most=_ALL)

    @contextmanager
    def _rows(self, box: Box) -> Iterator[_Rows]:
        found = self._store.table(box)
        with translated(self._store.engine), reading(self._store.engine) as connection:
            yield _Rows(found, connection, self._limit)

    def _known_of(self, rows: _Rows) -> _Known:
        known = self._known.get(rows.found.name)
        if known is None or monotonic() - known.since > KNOWN_FOR:
            known = self._known[rows.found.name] = _Known(Indexes.of(rows.found, rows.connection), monotonic())
        return known

    def _with_log(self, box: Box, counts: Counts, *, most: int) -> Counts:
        """Adds the log's pending rows, counted in the log itself. There is no count of those it has delivered."""
        if box.storage is Storage.TABLE:
            return counts
        pending, waiting = counts.pending, self._store.pending_in_log(box, most=most)
        if pending is not None:
            pending = _both(pending, waiting)
        return replace(counts, pending=pending, delivered=None)


class Indexes(NamedTuple):
    """The indexes that find rows of one status without reading others: boxengine's, or one that begins with the status."""

    pending: str | None
    given_up: str | None

    @classmethod
    def of(cls, found: BoxTable, connection: Connection) -> Indexes:
        """Reads the table's current indexes."""
        schema, _, name = found.box.table.rpartition(".")
        indexes = finished_indexes(connection, schema, name)
        names = {index["name"] for index in indexes}
        leading = (
            unescaped(index["name"] or "")
            for index in indexes
            if index["column_names"][:1] == ["status"] and "postgresql_where" not in index.get("dialect_options", {})
        )
        other = next(leading, None)
        ours = [index_name("ix", name, kind) for kind in ("pending", "failed")]
        known = connection.dialect.name == "postgresql"
        return cls(*(each if known and each in names else other for each in ours))


@dataclass(slots=True)
class _Known:
    """What one count of a large table caches for the next: finding it out takes the database longer than all the rest."""

    indexes: Indexes
    since: float
    capped: dict[Status, float] = field(default_factory=dict)
    """When a count last came to its limit."""


class _Rows:
    """The rows of one table."""

    def __init__(self, found: BoxTable, connection: Connection, limit: int) -> None:
        self.found = found
        self.connection = connection
        self._limit = limit
        self._postgresql = connection.dialect.name == "postgresql"

    def span(self) -> int:
        """The distance from the lowest to the highest id: an upper limit for the number of rows."""
        (span,) = self._one(f"SELECT coalesce(max(id) - min(id) + 1, 0) FROM {self.found.in_text}")
        return int(span)

    def all(self) -> Counts:
        retrying = "sum(CASE WHEN errors_count > 0 THEN 1 ELSE 0 END)"
        known = f"{self.found.in_text} WHERE status IS NOT NULL"  # tables made elsewhere may lack it
        query = f"SELECT status, count(*), {retrying} FROM {known} GROUP BY status"
        rows = {int(row[0]): row for row in self.connection.execute(text(query))}
        counts = {status: Count(int(rows[status][1]) if status in rows else 0) for status in Status}
        tried = int(rows[Status.PENDING][2]) if Status.PENDING in rows else 0
        return _counts(counts, Count(tried))

    def estimate(self, known: _Known, fronts: Mapping[int, int]) -> Counts:
        counts: dict[Status, Count | None] = dict.fromkeys(Status)
        indexes = known.indexes
        for status in (Status.PENDING, Status.FAILED, Status.DISCARDED):
            index = indexes.pending if status is Status.PENDING else indexes.given_up
            counts[status] = self._of(status, index, known.capped)
        pending, failed, discarded = (counts[each] for each in (Status.PENDING, Status.FAILED, Status.DISCARDED))
        if all(count is not None and count.precision is Precision.EXACT for count in (pending, failed, discarded)):
            others = sum(count.number for count in counts.values() if count is not None)
            counts[Status.DELIVERED] = Count(max(0, self._total() - others), Precision.ABOUT)
        return _counts(counts, None if pending is None else self._retrying(pending, indexes.pending or "", fronts))

    # ── by index ─────────────────────────────────────────────────────────────────────────────────────

    def _of(self, status: Status, index: str | None, capped: dict[Status, float]) -> Count | None:
        """Counts from the index alone, where the database has marked the rows as visible to all."""
        if index is None:
            return None
        if status in capped and monotonic() - capped[status] < CAPPED_FOR:
            return Count(self._limit, Precision.AT_LEAST)
        number = self._by_index(status, index, self._limit + 1)
        if number <= self._limit:
            return Count(int(number))
        capped[status] = monotonic()
        return Count(self._limit, Precision.AT_LEAST)

    def _by_index(self, status: Status, index: str, limit: int) -> int:
        if self._postgresql and self._is_ours(index):
            return count_pending(self.connection, self.found.in_text, limit=limit)
        rows = f"SELECT id FROM {self._source(index)} WHERE status = {status:d} {self._order(index)} LIMIT {limit}"
        (number,) = self._one(f"SELECT count(*) FROM ({rows}) AS t")
        return int(number)

    def _retrying(self, pending: Count, index: str, fronts: Mapping[int, int]) -> Count:
        """Counts retries among all pending rows if these are few, otherwise among the first of each bucket."""
        few = pending.precision is Precision.EXACT
        most = pending.number if few else FIRST * self.found.box.bucket_size
        rows = f"SELECT errors_count FROM {self._source(index)} WHERE status = {Status.PENDING:d}"
        values: dict[str, list[int]] = {}
        if few or not self._is_ours(index):
            rows += f" {self._order(index)} LIMIT {most}"
        else:
            of_bucket = f"{rows} AND {behind_front()} ORDER BY bucket, id LIMIT {FIRST}"
            rows, values = f"SELECT i.errors_count FROM {HELD} CROSS JOIN LATERAL ({of_bucket}) AS i", held(fronts)
        (tried,) = self._one(f"SELECT count(*) FROM ({rows}) AS t WHERE t.errors_count > 0", values)
        if few:
            return Count(int(tried))
        return Count(int(tried), Precision.AT_LEAST if tried else Precision.ABOUT)

    def _is_ours(self, index: str) -> bool:
        return index == index_name("ix", self._name, "pending")

    def _order(self, index: str) -> str:
        """The sort order of boxengine's index, so that the planner can use no other, and does not read the table from its
        start until it has found enough. Pending rows are read from the youngest: dead entries of delivered ones stand before
        the oldest."""
        if self._is_ours(index):
            return "ORDER BY bucket DESC, id DESC"
        return "ORDER BY status, id" if index == index_name("ix", self._name, "failed") else ""

    def _source(self, index: str) -> str:
        if self._postgresql:
            return self.found.in_text
        hint = quoted(self.connection.dialect, index).replace(":", "\\:")
        return f"{self.found.in_text} FORCE INDEX ({hint})"

    # ── by statistics ────────────────────────────────────────────────────────────────────────────────

    def _total(self) -> int:
        """Estimates all rows; on PostgreSQL as the planner does, by the density at the last ANALYZE times the current size."""
        schema, _, table = self.found.location.rpartition(".")
        if self._postgresql:
            (total,) = self._one(
                "SELECT CASE WHEN reltuples < 0 OR relpages <= 0 THEN -1 "
                "ELSE reltuples / relpages * (pg_relation_size(oid) / current_setting('block_size')::int) END "
                "FROM pg_class WHERE oid = to_regclass(:name)",
                {"name": self.found.name},
            )
        else:
            (total,) = self._one(
                "SELECT coalesce(table_rows, -1) FROM information_schema.tables "
                "WHERE table_schema = :schema AND table_name = :table",
                {"schema": schema, "table": table},
            )
        return self.span() if total < 0 else round(total)

    # ── the parts ────────────────────────────────────────────────────────────────────────────────────

    @property
    def _name(self) -> str:
        return self.found.box.table.rpartition(".")[2]

    def _one(self, query: str, values: Mapping[str, Any] | None = None) -> Any:
        return self.connection.execute(text(query), values or {}).one()


def _both(side: Count, log: Count) -> Count | None:
    """None: both found nothing, and the log was not looked through to its beginning."""
    number = side.number + log.number
    if not number and log.precision is not Precision.EXACT:
        return None
    return Count(number, side.precision if log.precision is Precision.EXACT else log.precision)


def _counts(counts: Mapping[Status, Count | None], retrying: Count | None) -> Counts:
    return Counts(
        pending=counts[Status.PENDING],
        retrying=retrying,
        failed=counts[Status.FAILED],
        delivered=counts[Status.DELIVERED],
        discarded=counts[Status.DISCARDED],
    )
