"""The texts of MySQL's and MariaDB's statements over one box's table, made once for each box."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, assert_never

from boxengine.adapters.sql.dialects.branch import Branch
from boxengine.adapters.sql.dialects.unreadable import is_within_reach
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import JITTER_STRIDE, StrictOrder
from boxengine.domain.item import Status

_MAX_EXPONENT = 64
"""With this exponent every pause has long reached its maximum, and the power still fits a double."""
_NO_ID = 2**63 - 1
"""Greater than every id."""
NOW = "UTC_TIMESTAMP(6)"


class MySqlTexts:
    """The texts of one box's statements."""

    def __init__(self, table: BoxTable, *, light: int) -> None:
        """Args:
        light: bytes up to which a payload is read with its row; a heavier one is returned as NULL.
        """
        self._table = table
        self._name = table.name.replace("%", "%%")
        self._light = light

    def pending(self, columns: Mapping[str, str], *, regular_only: bool = False) -> Branch:
        """The query of one bucket's rows that are due.

        Args:
            columns: the expressions to select, by the names that they get.
        """
        conditions = [self.is_due("t")]
        match self._table.box.strict_order:
            case StrictOrder.NONE:
                pass
            case StrictOrder.KEY:
                conditions += self._key_is_free()
            case StrictOrder.BUCKET:
                conditions += self._bucket_is_free(regular_only=regular_only)
            case never:
                assert_never(never)
        if regular_only:
            conditions.append(f"{self.errors('t')} = 0")
        chosen = ", ".join(f"{column} AS {name}" for name, column in columns.items())
        rows = f"FROM {self._name} AS t {self.index} WHERE t.status = {Status.PENDING:d} AND t.bucket = :bucket"
        rest = f"AND {' AND '.join(conditions)} ORDER BY t.id LIMIT :share"
        if self._table.box.strict_order is StrictOrder.BUCKET:  # whose conditions speak of the bucket and the id, too
            return Branch.of(f"SELECT {chosen} {rows} AND t.id > :after {rest}")

        def near(after: int, buckets: str, share: int) -> str:
            return (
                f"SELECT {', '.join(columns)} FROM (SELECT {chosen}, "
                "ROW_NUMBER() OVER (PARTITION BY t.bucket ORDER BY t.id) AS place "
                f"FROM {self.by_id} WHERE t.id > {after} AND t.status = {Status.PENDING:d} AND t.bucket IN ({buckets}) "
                f"AND {' AND '.join(conditions)}) AS near WHERE near.place <= {share}"
            )

        return Branch.of(
            f"SELECT {chosen} {rows} AND t.id > :after {rest}", start=f"SELECT {chosen} {rows} {rest}", near=near
        )

    @cached_property
    def waiting(self) -> Branch:
        since, condition = "t.created_at", ""
        if self._table.has("available_at"):
            since = "GREATEST(t.created_at, COALESCE(t.available_at, t.created_at))"
            condition = f"AND (t.available_at IS NULL OR t.available_at <= {NOW})"
        return Branch.of(
            f"SELECT {since} AS since FROM {self._name} AS t {self.index} "
            f"WHERE t.status = {Status.PENDING:d} AND t.bucket = :bucket {condition} "
            f"AND {is_within_reach('t.created_at')} ORDER BY t.id LIMIT :share"
        )

    @property
    def index(self) -> str:
        """Names the index. Otherwise the optimizer, to get the order, may walk the primary key through all delivered rows."""
        index = self._table.status_index
        return "" if index is None else f"FORCE INDEX ({index.replace('%', '%%')})"

    @cached_property
    def item_columns(self) -> str:
        table = self._table
        return ", ".join(
            (
                "t.id",
                "t.uuid",
                "t.event_name" if table.has("event_name") else "NULL AS event_name",
                "t.event_key",
                "t.bucket",
                "t.status",
                "t.options" if table.has("options") else "NULL AS options",
                f"CASE WHEN OCTET_LENGTH(t.{table.payload}) <= {self._light} THEN t.{table.payload} END",
                self.errors("t"),
                "t.created_at",
                "t.processed_at",
                *(["t.seq"] if table.numbered else []),
            )
        )

    @property
    def first_delayed(self) -> str:
        """A query to be joined to the due buckets: the seconds until the first delayed row's ``available_at``."""
        index = self._table.delayed_index
        if index is None:
            return ""
        return (
            f" UNION ALL (SELECT NULL, TIMESTAMPDIFF(MICROSECOND, {NOW}, t.available_at) / 1000000 "
            f"FROM {self._name} AS t FORCE INDEX ({index.replace('%', '%%')}) "
            f"WHERE t.available_at > {NOW} AND t.status = {Status.PENDING:d} ORDER BY t.available_at LIMIT 1)"
        )

    def is_due(self, row: str) -> str:
        backoff = self._table.box.backoff
        parts = []
        if backoff is not None:
            seconds = (
                f"LEAST({backoff.maximal.total_seconds()}, {backoff.minimal.total_seconds()} * "
                f"POWER({backoff.multiplier}, LEAST(GREATEST({self.errors(row)}, 1) - 1, {_MAX_EXPONENT})))"
            )
            if backoff.jitter:
                seconds += f" * (1 - {backoff.jitter} * MOD(MOD({row}.id, 1000) * {JITTER_STRIDE}, 1000) / 1000)"
            parts.append(
                f"({self.errors(row)} = 0 OR {row}.processed_at IS NULL OR "
                f"{row}.processed_at <= {NOW} - INTERVAL ROUND(1000000 * {seconds}) MICROSECOND)"
            )
        if self._table.has("available_at"):
            parts.append(f"({row}.available_at IS NULL OR {row}.available_at <= {NOW})")
        return "(" + " AND ".join(parts or ["TRUE"]) + ")"

    def kept_since(self, statuses: Collection[int], row: str = "") -> str:
        """From when on rows of these statuses count as kept; see ``HistoryStore.oldest_finished``."""
        created = f"{row}created_at"
        since = f"GREATEST({created}, COALESCE({row}processed_at, {created}))"
        if Status.DELIVERED not in statuses:
            return since
        alone = set(statuses) == {Status.DELIVERED}
        return created if alone else f"IF({row}status = {Status.DELIVERED:d}, {created}, {since})"

    def errors(self, row: str) -> str:
        column = f"{row}.errors_count"
        return f"COALESCE({column}, 0)" if "errors_count" in self._table.nullable else column

    def _key_is_free(self) -> Iterable[str]:
        """No earlier row of the same key is failed, or pending and not due: such a row parks its key."""
        index = self._table.status_of_key_index
        # Without statistics, as in a new table, the optimizer may read all earlier rows of the bucket for each row.
        hint = "" if index is None else f" FORCE INDEX ({index.replace('%', '%%')})"
        earlier = (
            f"SELECT 1 FROM {self._name} AS e{hint} WHERE {same_key('e', 't')} AND e.bucket = t.bucket AND e.id < t.id "
            "AND e.status = "
        )
        yield f"NOT EXISTS ({earlier}{Status.FAILED:d})"
        yield f"NOT EXISTS ({earlier}{Status.PENDING:d} AND NOT {self.is_due('e')})"

    def _bucket_is_free(self, *, regular_only: bool) -> Iterable[str]:
        """No earlier pending row of the bucket waits.

        Few rows have ids up to ``after``. Of the others only as many as are asked for need reading: either one of them
        waits, and no row after it is wanted, or none does, and they are the answer.
        """
        pending = (
            f"FROM {self._name} AS e {self.index} WHERE e.status = {Status.PENDING:d} AND e.bucket = :bucket AND e.id"
        )
        waits = f"NOT {self.is_due('e')}"
        columns = "e.id, e.errors_count, e.processed_at" + (
            ", e.available_at" if self._table.has("available_at") else ""
        )
        looked_at = f"AND (e.errors_count = 0 OR {waits})" if regular_only else ""
        next_rows = f"SELECT {columns} {pending} > :after {looked_at} ORDER BY e.id LIMIT :share"
        yield f"NOT EXISTS (SELECT 1 {pending} <= :after AND {waits})"
        yield f"t.id < COALESCE((SELECT MIN(e.id) FROM ({next_rows}) AS e WHERE {waits}), {_NO_ID})"

    def deliver(self, ids: Sequence[int]) -> tuple[str, Sequence[Any]]:
        """The statement for delivered rows, and its values."""
        if self._table.box.retention.deletes_on_delivery:
            # A DELETE takes no hint to heart: from a small table it would read every row. A join looks each one up.
            wanted = "JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT PATH '$')) AS wanted"
            return f"DELETE t FROM {wanted} STRAIGHT_JOIN {self.by_id} ON t.id = wanted.id", [str(list(ids))]
        touched, places = f"processed_at = {NOW}, updated_at = {NOW}", ", ".join(["%s"] * len(ids))
        return f"UPDATE {self.by_id} SET status = {Status.DELIVERED:d}, {touched} WHERE t.id IN ({places})", ids

    @property
    def by_id(self) -> str:
        """Forces the primary key: the optimizer reads every row of a small table, and would wait for rows others have locked."""
        return f"{self._name} AS t FORCE INDEX (PRIMARY)"

    def fail(self, count: int) -> str:
        rows = [
            "SELECT %s AS id, %s AS status, %s AS errors_count, %s AS error_log",
            *["SELECT %s, %s, %s, %s"] * (count - 1),
        ]
        log = ""
        if self._table.has("error_log"):
            # Converted: a column in another character set, such as latin1, cannot be combined with the connection's texts.
            discarded = "CONCAT_WS('\\n', f.error_log, CONVERT(t.error_log USING utf8mb4))"
            if (limit := self._table.log.always_fit) is not None:
                discarded = f"LEFT({discarded}, {limit})"
            log = f"t.error_log = IF(f.status = {Status.DISCARDED:d}, {discarded}, f.error_log), "
        # STRAIGHT_JOIN: goes from the attempts to their rows by primary key, and never reads other rows.
        return (
            f"UPDATE ({' UNION ALL '.join(rows)}) AS f STRAIGHT_JOIN {self._name} AS t ON t.id = f.id SET {log}"
            f"t.status = f.status, t.errors_count = f.errors_count, t.processed_at = {NOW}, t.updated_at = {NOW}"
        )


def same_key(one: str, other: str) -> str:
    """Compares to the byte. The first comparison uses the index, whose collation may equate different keys."""
    return (
        f"{one}.event_key = {other}.event_key AND CAST({one}.event_key AS BINARY) = CAST({other}.event_key AS BINARY)"
    )
