"""PostgreSQL: advisory locks for buckets, one partial index for pending rows, arrays for parameters.

How the plans are kept: every query for pending rows goes bucket by bucket (``LATERAL``) and asks for the order
``bucket, id`` over a range instead of an equal bucket. Only the partial index ``(bucket, id) WHERE status = 0`` can
serve that order, so no staleness of statistics leads the planner to walk the primary key through all delivered rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, assert_never

from boxengine.adapters.sql.dialects.base import Cursor, Row
from boxengine.adapters.sql.tables import BoxTable
from boxengine.domain.box import JITTER_STRIDE, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Settlement
from boxengine.ports import PendingRow

_MAX_EXPONENT = 64
"""Past it every pause has long reached its maximum, and the power still fits a float."""
_NO_ID = 2**63 - 1
"""Beyond every id."""


class PostgresStatements:
    """The statements of one box's table on PostgreSQL through psycopg."""

    def __init__(self, table: BoxTable, *, idle_timeout_ms: int) -> None:
        self._table = table
        self._space = _lock_space(table)
        self._idle_timeout = str(idle_timeout_ms)
        self._poll = self._pending("t.id, t.bucket, t.errors_count")
        self._poll_regular = self._pending("t.id, t.bucket, t.errors_count", extra="AND t.errors_count = 0")
        self._read = self._pending(self._item_columns(), suffix="FOR UPDATE OF t")
        self._due = self._pending("t.id, t.bucket")
        self._lock = (
            "SELECT wanted.bucket, now() FROM unnest(%s::int[]) AS wanted(bucket), "
            "(SELECT set_config('idle_in_transaction_session_timeout', %s, true)) AS limits "
            "WHERE pg_try_advisory_xact_lock(%s, wanted.bucket)"
        )
        self._later = self._later_delivered()
        self._deliver, self._discard, self._fail = self._outcomes()

    # ── the steps of a delivery ──────────────────────────────────────────────────────────────────────

    def poll(self, cursor: Cursor, buckets: Sequence[int], share: int, *, regular_only: bool) -> list[PendingRow]:
        statement = self._poll_regular if regular_only else self._poll
        cursor.execute(statement, (list(buckets), [0] * len(buckets), share), prepare=True)
        return list(map(PendingRow._make, cursor.fetchall()))

    def due_buckets(self, cursor: Cursor, buckets: Sequence[int]) -> list[int]:
        cursor.execute(self._due, (list(buckets), [0] * len(buckets), 1), prepare=True)
        return [row[1] for row in cursor.fetchall()]

    def lock(self, cursor: Cursor, buckets: Sequence[int]) -> tuple[list[int], datetime]:
        cursor.execute(self._lock, (list(buckets), self._idle_timeout, self._space), prepare=True)
        rows = cursor.fetchall()
        return [row[0] for row in rows], rows[0][1].astimezone(UTC) if rows else datetime.now(UTC)

    def read(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[Row]:
        cursor.execute(self._read, (list(buckets), list(buckets.values()), share), prepare=True)
        rows: list[Row] = cursor.fetchall()
        return rows

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> list[int]:
        ids, keys, names = zip(*((item.id, item.event_key, item.event_name) for item in items), strict=True)
        cursor.execute(self._later, (list(ids), list(keys), list(names)))
        return [row[0] for row in cursor.fetchall()]

    def record(self, cursor: Cursor, settlement: Settlement) -> None:
        if settlement.delivered:
            cursor.execute(self._deliver, (settlement.delivered,), prepare=True)
        if settlement.discarded:
            cursor.execute(self._discard, (settlement.discarded,))
        if settlement.failed:
            failed = settlement.failed
            values: list[list[Any]] = [
                [attempt.id for attempt in failed],
                [int(attempt.status) for attempt in failed],
                [attempt.errors_count for attempt in failed],
                # PostgreSQL's text takes every character but this one.
                [attempt.error_log.replace("\x00", "\N{REPLACEMENT CHARACTER}") for attempt in failed],
            ]
            cursor.execute(self._fail, values)

    def unlock(self, cursor: Cursor, buckets: Sequence[int]) -> None:
        """Nothing: transaction-scoped advisory locks go with the transaction."""

    def anchor(self, cursor: Cursor) -> None:
        """Nothing: a transaction in which something failed accepts nothing more, so it cannot end unnoticed."""

    def verify(self, cursor: Cursor) -> None:
        """Nothing, see ``anchor``."""

    # ── finished rows ────────────────────────────────────────────────────────────────────────────────

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        # The pending rows' own index serves them; finished rows stand at the beginning of the primary key.
        if list(statuses) == [Status.PENDING]:
            sql = f"SELECT min(created_at) FROM (SELECT created_at FROM {self._table.name} WHERE status = 0 LIMIT 100000) AS t"
            cursor.execute(sql)
        else:
            sql = f"SELECT created_at FROM {self._table.name} WHERE status = ANY(%s) ORDER BY id LIMIT 1"
            cursor.execute(sql, (list(statuses),))
        row = cursor.fetchone()
        return None if row is None or row[0] is None else _utc(row[0])

    def delete(
        self, cursor: Cursor, statuses: Sequence[int], created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        cursor.execute(
            f"DELETE FROM {self._table.name} WHERE id = ANY(ARRAY("
            f"SELECT id FROM {self._table.name} WHERE status = ANY(%s) AND created_at >= {self._moment('%s')} "
            f"AND created_at < {self._moment('%s')} ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED))",
            (list(statuses), created_from, created_before, limit),
        )
        return int(cursor.rowcount)

    # ── the texts ────────────────────────────────────────────────────────────────────────────────────

    def _pending(self, columns: str, *, extra: str = "", suffix: str = "") -> str:
        condition, head = f"AND {self._is_due('t')}", ""
        match self._table.box.strict_order:
            case StrictOrder.NONE:
                pass
            case StrictOrder.KEY:
                condition += f" AND NOT EXISTS ({self._holding_back_key()})"
            case StrictOrder.BUCKET:
                condition += " AND t.id < head.id"
                head = f"CROSS JOIN LATERAL ({self._holding_back_bucket()}) AS head"
            case never:
                assert_never(never)
        return (
            f"SELECT i.* FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after) {head} CROSS JOIN LATERAL ("
            f"SELECT {columns} FROM {self._table.name} AS t WHERE t.status = 0 "
            f"AND (t.bucket, t.id) > (held.bucket, held.after) AND t.bucket <= held.bucket {condition} {extra} "
            f"ORDER BY t.bucket, t.id LIMIT %s {suffix}) AS i"
        )

    def _item_columns(self) -> str:
        table = self._table
        return ", ".join(
            (
                "t.id",
                "t.uuid",
                "t.event_name" if table.has("event_name") else "NULL::text AS event_name",
                "t.event_key",
                "t.bucket",
                "t.status",
                "t.options::text AS options" if table.has("options") else "NULL::text AS options",
                f"t.{table.payload}",
                "t.errors_count",
                self._zoned("created_at"),
                self._zoned("processed_at"),
            )
        )

    def _is_due(self, row: str) -> str:
        backoff = self._table.box.backoff
        parts = []
        if backoff is not None:
            seconds = (
                f"least({backoff.maximal.total_seconds()}, {backoff.minimal.total_seconds()} * "
                f"power({backoff.multiplier}::float8, least({row}.errors_count - 1, {_MAX_EXPONENT})))"
            )
            if backoff.jitter:
                seconds += f" * (1 - {backoff.jitter} * ({row}.id * {JITTER_STRIDE} %% 1000) / 1000.0)"
            parts.append(
                f"({row}.errors_count = 0 OR {row}.processed_at IS NULL OR "
                f"{row}.processed_at + make_interval(secs => {seconds}) <= {self._now})"
            )
        if self._table.has("available_at"):
            parts.append(f"({row}.available_at IS NULL OR {row}.available_at <= {self._now})")
        return "(" + " AND ".join(parts or ["true"]) + ")"

    def _holding_back_key(self) -> str:
        """Earlier rows of the same key that are failed, or pending and not due: they park the key."""
        return (
            f"SELECT 1 FROM {self._table.name} AS e WHERE e.bucket = t.bucket AND e.event_key = t.event_key AND e.id < t.id "
            f"AND (e.status = 1 OR (e.status = 0 AND ({self._troubled}))) AND (e.status = 1 OR NOT {self._is_due('e')})"
        )

    def _holding_back_bucket(self) -> str:
        """The id of the bucket's first pending row that is not due, looked up once per bucket (that is what OFFSET 0 is for)."""
        first = (
            f"SELECT e.id FROM {self._table.name} AS e WHERE e.status = 0 AND ({self._troubled}) "
            f"AND (e.bucket, e.id) > (held.bucket, 0) AND e.bucket <= held.bucket AND NOT {self._is_due('e')} "
            "ORDER BY e.bucket, e.id LIMIT 1"
        )
        return f"SELECT coalesce(({first}), {_NO_ID}) AS id OFFSET 0"

    @property
    def _troubled(self) -> str:
        """What a row must be for it to be able to wait; the predicate of the index that serves strict order."""
        delayed = " OR e.available_at IS NOT NULL" if self._table.has("available_at") else ""
        return f"e.errors_count > 0{delayed}"

    def _later_delivered(self) -> str:
        same_event = "AND t.event_name IS NOT DISTINCT FROM i.event_name" if self._table.has("event_name") else ""
        return (
            "SELECT i.id FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS i(id, event_key, event_name) "
            f"WHERE EXISTS (SELECT 1 FROM {self._table.name} AS t WHERE t.event_key = i.event_key AND t.id > i.id "
            f"AND t.status = {Status.DELIVERED:d} {same_event})"
        )

    def _outcomes(self) -> tuple[str, str, str]:
        name, now = self._table.name, self._moment("clock_timestamp()")
        touched = f"processed_at = {now}, updated_at = {now}"
        deliver = (
            f"DELETE FROM {name} WHERE id = ANY(%s::bigint[])"
            if self._table.box.retention.deletes_on_delivery
            else f"UPDATE {name} SET status = {Status.DELIVERED:d}, {touched} WHERE id = ANY(%s::bigint[])"
        )
        discard = f"UPDATE {name} SET status = {Status.DISCARDED:d}, {touched} WHERE id = ANY(%s::bigint[])"
        log = ", error_log = f.error_log" if self._table.has("error_log") else ""
        fail = (
            f"UPDATE {name} AS t SET status = f.status, errors_count = f.errors_count{log}, {touched} "
            "FROM unnest(%s::bigint[], %s::int[], %s::int[], %s::text[]) AS f(id, status, errors_count, error_log) "
            "WHERE t.id = f.id"
        )
        return deliver, discard, fail

    @property
    def _now(self) -> str:
        return self._moment("now()")

    def _moment(self, expression: str) -> str:
        """A zoned moment in the form of this table's columns."""
        if expression == "%s":
            expression = "%s::timestamptz"
        return expression if self._table.zoned else f"({expression} AT TIME ZONE 'UTC')"

    def _zoned(self, column: str) -> str:
        return f"t.{column}" if self._table.zoned else f"t.{column} AT TIME ZONE 'UTC' AS {column}"


def _lock_space(table: BoxTable) -> int:
    """The first half of the advisory lock's key: a signed 32-bit number for this table; the bucket is the second."""
    number = zlib.crc32(f"boxengine:{table.name}".encode())
    return number - (1 << 32) if number >= 1 << 31 else number


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
