"""How many rows of each kind: exactly in small tables, else as far as an index or the database's statistics tell.

A count over a table of millions takes seconds and reads it all into the cache. So pending, failed and discarded rows,
which are what somebody wants to know, are counted by index and up to a limit; delivered ones are what is left of the
total that the database estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, NamedTuple

from sqlalchemy import Connection, inspect, text

from boxengine.adapters.sql.errors import translated
from boxengine.adapters.sql.index_names import index_name
from boxengine.adapters.sql.store import SqlStore
from boxengine.adapters.sql.tables import BoxTable, quoted, unescaped
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Status
from boxengine.ports import Count, Counts, Precision

SMALL = 200_000
"""Rows; a table whose ids span no more is counted whole."""
LIMIT = 100_000
"""Rows of one kind that are counted in a larger one."""
FIRST = 100
"""Rows of each bucket, the oldest, among which those with failed attempts are counted in a larger one: items that are tried
again stand before the new ones."""
KNOWN_FOR = 60.0
"""Seconds for which the indexes of a table are taken for what they were."""
CAPPED_FOR = 10.0
"""Seconds for which a count that came to its limit is taken to be there still."""
_ALL = 2**62
"""Rows; more than there are."""


class SqlCensus:
    """``Census`` over the database of a ``SqlStore``."""

    def __init__(self, store: SqlStore, *, small: int = SMALL, limit: int = LIMIT) -> None:
        self._store = store
        self._small = small
        self._limit = limit
        self._known: dict[str, _Known] = {}

    def take(self, box: Box, *, exact: bool = False) -> Counts:
        counts = self._of_table(box, exact=exact)
        if box.storage is Storage.TABLE:
            return counts
        # The log's rows are counted where they stand; how many of them were delivered, nobody has counted.
        return replace(counts, pending=self._with_log(box, counts.pending, exact=exact), delivered=None)

    def _with_log(self, box: Box, aside: Count | None, *, exact: bool) -> Count | None:
        most = _ALL if exact else self._limit
        waiting = self._store.pending_in_log(box, most=most + 1)
        if aside is None:
            return None
        precision = aside.precision if waiting <= most else Precision.AT_LEAST
        return Count(aside.number + min(waiting, most), precision)

    def _of_table(self, box: Box, *, exact: bool) -> Counts:
        found = self._store.table(box)
        with translated(self._store.engine), self._store.engine.connect() as connection:
            rows = _Rows(found, connection, self._limit)
            if exact or rows.span() <= self._small:
                return rows.all()
            known = self._known.get(found.name)
            if known is None or monotonic() - known.since > KNOWN_FOR:
                known = self._known[found.name] = _Known(Indexes.of(found, connection), monotonic())
            return rows.estimate(known)


class Indexes(NamedTuple):
    """The names of indexes by which rows of a kind are found without others: ours, or one that begins with the status."""

    pending: str | None
    given_up: str | None

    @classmethod
    def of(cls, found: BoxTable, connection: Connection) -> Indexes:
        """As the table has them now."""
        schema, _, name = found.box.table.rpartition(".")
        indexes = inspect(connection).get_indexes(name, schema=schema or None)
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
    """What one look at a large table leaves for the next: finding it out takes the database longer than all the rest."""

    indexes: Indexes
    since: float
    capped: dict[Status, float] = field(default_factory=dict)
    """When a count last came to its limit."""


class _Rows:
    """The rows of one table."""

    def __init__(self, found: BoxTable, connection: Connection, limit: int) -> None:
        self._found = found
        self._connection = connection
        self._limit = limit
        self._postgresql = connection.dialect.name == "postgresql"

    def span(self) -> int:
        """No table has more rows than its ids span."""
        (span,) = self._one(f"SELECT coalesce(max(id) - min(id) + 1, 0) FROM {self._found.in_text}")
        return int(span)

    def all(self) -> Counts:
        retrying = "sum(CASE WHEN errors_count > 0 THEN 1 ELSE 0 END)"
        query = f"SELECT status, count(*), {retrying} FROM {self._found.in_text} GROUP BY status"
        rows = {int(row[0]): row for row in self._connection.execute(text(query))}
        counts = {status: Count(int(rows[status][1]) if status in rows else 0) for status in Status}
        tried = int(rows[Status.PENDING][2]) if Status.PENDING in rows else 0
        return _counts(counts, Count(tried))

    def estimate(self, known: _Known) -> Counts:
        counts: dict[Status, Count | None] = dict.fromkeys(Status)
        indexes = known.indexes
        for status in (Status.PENDING, Status.FAILED, Status.DISCARDED):
            index = indexes.pending if status is Status.PENDING else indexes.given_up
            counts[status] = self._of(status, index, known.capped)
        others = sum(count.number for count in counts.values() if count is not None)
        counts[Status.DELIVERED] = Count(max(0, self._total() - others), Precision.ABOUT)
        pending = counts[Status.PENDING]
        return _counts(counts, None if pending is None else self._retrying(pending, indexes.pending or ""))

    # ── by index ─────────────────────────────────────────────────────────────────────────────────────

    def _of(self, status: Status, index: str | None, capped: dict[Status, float]) -> Count | None:
        """From the index alone, where the database has its rows for visible."""
        if index is None:
            return None
        if status in capped and monotonic() - capped[status] < CAPPED_FOR:
            return Count(self._limit, Precision.AT_LEAST)
        rows = (
            f"SELECT {'bucket' if self._is_ours(index) else 'id'} FROM {self._source(index)} WHERE status = {status:d}"
        )
        (number,) = self._one(f"SELECT count(*) FROM ({rows} {self._order(index)} LIMIT {self._limit + 1}) AS t")
        if number <= self._limit:
            return Count(int(number))
        capped[status] = monotonic()
        return Count(self._limit, Precision.AT_LEAST)

    def _retrying(self, pending: Count, index: str) -> Count:
        """Of all pending rows, if they are few, else of the first of each bucket."""
        few = pending.precision is Precision.EXACT
        most = pending.number if few else FIRST * self._found.box.bucket_size
        rows = f"SELECT errors_count FROM {self._source(index)} WHERE status = {Status.PENDING:d}"
        if few or not self._is_ours(index):
            rows += f" {self._order(index)} LIMIT {most}"
        else:
            buckets = ", ".join(map(str, self._found.box.buckets))
            of_bucket = f"{rows} AND bucket = held.bucket ORDER BY bucket, id LIMIT {FIRST}"
            rows = f"SELECT i.errors_count FROM unnest(ARRAY[{buckets}]) AS held(bucket) CROSS JOIN LATERAL ({of_bucket}) AS i"
        (tried,) = self._one(f"SELECT count(*) FROM ({rows}) AS t WHERE t.errors_count > 0")
        if few:
            return Count(int(tried))
        return Count(int(tried), Precision.AT_LEAST if tried else Precision.ABOUT)

    def _is_ours(self, index: str) -> bool:
        return index == index_name("ix", self._name, "pending")

    def _order(self, index: str) -> str:
        """That of our index, so that nothing else can serve it."""
        return "ORDER BY bucket, id" if self._is_ours(index) else ""

    def _source(self, index: str) -> str:
        if self._postgresql:
            return self._found.in_text
        hint = quoted(self._connection.dialect, index).replace(":", "\\:")
        return f"{self._found.in_text} FORCE INDEX ({hint})"

    # ── by statistics ────────────────────────────────────────────────────────────────────────────────

    def _total(self) -> int:
        """As the planner does it on PostgreSQL: the density at the last look, times the size now."""
        schema, _, table = self._found.location.rpartition(".")
        if self._postgresql:
            (total,) = self._one(
                "SELECT CASE WHEN reltuples < 0 OR relpages = 0 THEN -1 "
                "ELSE reltuples / relpages * (pg_relation_size(oid) / current_setting('block_size')::int) END "
                "FROM pg_class WHERE oid = to_regclass(:name)",
                {"name": self._found.name},
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
        return self._found.box.table.rpartition(".")[2]

    def _one(self, query: str, values: Mapping[str, Any] | None = None) -> Any:
        return self._connection.execute(text(query), values or {}).one()


def _counts(counts: Mapping[Status, Count | None], retrying: Count | None) -> Counts:
    return Counts(
        pending=counts[Status.PENDING],
        retrying=retrying,
        failed=counts[Status.FAILED],
        delivered=counts[Status.DELIVERED],
        discarded=counts[Status.DISCARDED],
    )
