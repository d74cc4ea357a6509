"""PostgreSQL: advisory locks for buckets, one partial index for pending rows, arrays for parameters.

How the plans are kept: every query for pending rows goes bucket by bucket (``LATERAL``) and asks for the order
``bucket, id`` over a range instead of an equal bucket. Only the partial index ``(bucket, id) WHERE status = 0`` can
serve that order, so no staleness of statistics leads the planner to walk the primary key through all delivered rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, assert_never

from boxengine.adapters.sql.dialects.base import LOOKED_AT, LOOKED_THROUGH, Cursor, Row, Taken
from boxengine.adapters.sql.tables import BoxTable
from boxengine.domain.box import JITTER_STRIDE, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Settlement
from boxengine.ports import PendingRow

_MAX_EXPONENT = 64
"""Past it every pause has long reached its maximum, and the power still fits a float."""
_NO_ID = 2**63 - 1
"""Beyond every id."""
_SAVEPOINT = "boxengine_claim"
_ONE_PLAN = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off"}
"""For a transaction with none but our own statements: planned once for a connection, by index, whatever the table held then.
The server would plan them anew for each batch, half a millisecond, for it takes the arrays to be longer than they are."""


class PostgresStatements:
    """The statements of one box's table on PostgreSQL through psycopg."""

    def __init__(self, table: BoxTable, *, idle_timeout_ms: int) -> None:
        # Doubled, for the driver looks for placeholders.
        self._table = replace(table, name=table.name.replace("%", "%%"))
        self._space = _lock_space(table)
        self._idle_timeout = str(idle_timeout_ms)
        self._poll = self._pending("t.id, t.bucket, t.errors_count")
        self._poll_regular = self._pending("t.id, t.bucket, t.errors_count", extra="AND t.errors_count = 0")
        # Both statements of a claim travel together, so what the first has got reaches the second within the server.
        held = "current_setting('boxengine.held')::int[]"
        share, of = f"greatest(1, %s / greatest(1, cardinality({held})))", f"WHERE held.bucket = ANY({held})"
        self._read = self._pending(self._item_columns(), share=share, suffix="FOR UPDATE OF t", of=of)
        # Asked again whether they are due: somebody else may have changed a row since the inner query found it.
        self._remove = (
            f"DELETE FROM {self._table.name} AS t WHERE t.id = ANY(ARRAY({self._pending('t.id', share=share, of=of)})) "
            f"AND {_still_pending('t.')} AND {self._is_due('t')} RETURNING {self._item_columns()}"
        )
        self._due = self._outlook()
        self._lock = self._take_locks({})
        self._lock_alone = self._take_locks(_ONE_PLAN)
        self._later = self._later_delivered()
        self._waiting = self._longest_waiting()
        self._deliver, self._discard, self._fail = self._outcomes()

    # ── the steps of a delivery ──────────────────────────────────────────────────────────────────────

    def poll(self, cursor: Cursor, buckets: Sequence[int], share: int, *, regular_only: bool) -> list[PendingRow]:
        statement = self._poll_regular if regular_only else self._poll
        cursor.execute(statement, (_array(buckets), _array([0] * len(buckets)), share), prepare=True)
        return list(map(PendingRow._make, cursor.fetchall()))

    def outlook(self, cursor: Cursor, buckets: Sequence[int]) -> list[tuple[int | None, float]]:
        cursor.execute(self._due, (_array(buckets), _array([0] * len(buckets)), 1), prepare=True)
        rows: list[tuple[int | None, float]] = cursor.fetchall()
        return rows

    def claim(self, cursor: Cursor, buckets: Mapping[int, int], limit: int, *, only_outcomes: bool = False) -> Taken:
        wanted = _array(buckets)
        # One pass over the rows instead of two, and no ids to send back, in the case that nearly always comes.
        remove = only_outcomes and self._table.box.retention.deletes_on_delivery
        with cursor.connection.cursor(binary=True) as locks:
            # What is fetched within a pipeline costs a round trip of its own, before the one that ends it.
            with cursor.connection.pipeline():
                lock = self._lock_alone if only_outcomes else self._lock
                locks.execute(lock, (self._idle_timeout, wanted, self._space), prepare=True)
                if remove:
                    cursor.connection.execute(f"SAVEPOINT {_SAVEPOINT}", prepare=False)
                statement = self._remove if remove else self._read
                cursor.execute(statement, (wanted, _array(buckets.values()), limit), prepare=True)
            granted, now, *_ = locks.fetchone()
            return Taken(granted, now.astimezone(UTC), max(1, limit // max(1, len(granted))), cursor.fetchall(), remove)

    def bring_back(self, cursor: Cursor) -> None:
        cursor.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}", prepare=False)

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> list[int]:
        cursor.execute(self._later, (_array(item.id for item in items),))
        return [row[0] for row in cursor.fetchall()]

    def record(self, cursor: Cursor, settlement: Settlement) -> None:
        if settlement.delivered:
            cursor.execute(self._deliver, (_array(settlement.delivered),), prepare=True)
        if settlement.discarded:
            cursor.execute(self._discard, (_array(settlement.discarded),))
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

    def finish(self, cursor: Cursor, settlement: Settlement) -> None:
        with cursor.connection.pipeline():
            self.record(cursor, settlement)
            # The connection's own commit() would make two round trips of it, before and after.
            cursor.execute("COMMIT", prepare=False)

    def unlock(self, cursor: Cursor, buckets: Sequence[int]) -> None:
        """Nothing: transaction-scoped advisory locks go with the transaction."""

    def anchor(self, cursor: Cursor) -> None:
        """Nothing: a transaction in which something failed accepts nothing more, so it cannot end unnoticed."""

    def verify(self, cursor: Cursor) -> None:
        """Nothing, see ``anchor``."""

    # ── finished rows ────────────────────────────────────────────────────────────────────────────────

    def oldest_pending(self, cursor: Cursor) -> datetime | None:
        cursor.execute(self._waiting, (_array(self._table.box.buckets), LOOKED_AT), prepare=True)
        return _moment_of(cursor.fetchone())

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        cursor.execute(f"SELECT created_at FROM {self._finished(statuses)} LIMIT 1", ())
        return _moment_of(cursor.fetchone())

    def delete(
        self, cursor: Cursor, statuses: Sequence[int], created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        if not statuses:
            return 0
        cursor.execute(
            f"DELETE FROM {self._table.name} WHERE id = ANY(ARRAY(SELECT id FROM {self._table.name} WHERE id = ANY(ARRAY("
            f"SELECT first.id FROM (SELECT id, created_at FROM {self._finished(statuses)} LIMIT %s) AS first "
            f"WHERE first.created_at >= {self._moment('%s')} AND first.created_at < {self._moment('%s')} "
            f"ORDER BY first.id LIMIT %s)) AND status IN ({_listed(statuses)}) FOR UPDATE SKIP LOCKED))",
            (LOOKED_THROUGH * limit, created_from, created_before, limit),
        )
        return int(cursor.rowcount)

    def _finished(self, statuses: Sequence[int]) -> str:
        """Rows of these statuses from the first id on. Delivered ones stand at the beginning of the primary key; failed and
        discarded ones have an index of their own, which is used only if the statuses stand in the statement's text."""
        return f"{self._table.name} WHERE status IN ({_listed(statuses)}) ORDER BY id"

    # ── the texts ────────────────────────────────────────────────────────────────────────────────────

    def _take_locks(self, settings: Mapping[str, str]) -> str:
        """The locks of a claim; its limits, and these settings, are the transaction's own."""
        others = "".join(f"set_config('{name}', '{value}', true), " for name, value in settings.items())
        return (
            "SELECT coalesce(array_agg(wanted.bucket), '{}') AS granted, now(), "
            "set_config('boxengine.held', coalesce(array_agg(wanted.bucket), '{}')::text, true), "
            f"{others}set_config('idle_in_transaction_session_timeout', %s, true) "
            "FROM unnest(%s::int[]) AS wanted(bucket) WHERE pg_try_advisory_xact_lock(%s, wanted.bucket)"
        )

    def _pending(self, columns: str, *, extra: str = "", share: str = "%s", suffix: str = "", of: str = "") -> str:
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
            f"ORDER BY t.bucket, t.id LIMIT {share} {suffix}) AS i {of}"
        )

    def _longest_waiting(self) -> str:
        since, condition = "t.created_at", ""
        if self._table.has("available_at"):
            since = "greatest(t.created_at, t.available_at)"
            condition = f"AND (t.available_at IS NULL OR t.available_at <= {self._now})"
        return (
            f"SELECT min(i.since) FROM unnest(%s::int[]) AS held(bucket) CROSS JOIN LATERAL ("
            f"SELECT {since} AS since FROM {self._table.name} AS t WHERE t.status = 0 "
            f"AND (t.bucket, t.id) > (held.bucket, 0) AND t.bucket <= held.bucket {condition} "
            "ORDER BY t.bucket, t.id LIMIT %s) AS i"
        )

    def _outlook(self) -> str:
        due = self._pending("t.bucket, 0::float8")
        if self._table.delayed_index is None:
            return due
        return (
            f"{due} UNION ALL (SELECT NULL, extract(epoch FROM t.available_at - {self._now})::float8 "
            f"FROM {self._table.name} AS t WHERE t.status = 0 AND t.available_at > {self._now} "
            "ORDER BY t.available_at LIMIT 1)"
        )

    def _item_columns(self) -> str:
        table = self._table
        return ", ".join(
            (
                "t.id",
                "t.uuid::text",
                "t.event_name" if table.has("event_name") else "NULL::text AS event_name",
                "t.event_key::text",
                "t.bucket",
                "t.status",
                "t.options::text AS options" if table.has("options") else "NULL::text AS options",
                f"t.{table.payload}",
                "t.errors_count",
                # Without its zone, which is UTC: the driver takes ten times as long to make a moment with one.
                "t.created_at AT TIME ZONE 'UTC'" if table.zoned else "t.created_at",
                self._zoned("processed_at"),
                *(["t.seq"] if table.numbered else []),
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
        # The keys are compared where they are stored: in old tables they are numbers.
        name = self._table.name
        same_event = "AND t.event_name IS NOT DISTINCT FROM i.event_name" if self._table.has("event_name") else ""
        return (
            f"SELECT i.id FROM {name} AS i WHERE i.id = ANY(%s::bigint[]) AND EXISTS ("
            f"SELECT 1 FROM {name} AS t WHERE t.event_key = i.event_key AND t.id > i.id "
            f"AND t.status = {Status.DELIVERED:d} {same_event})"
        )

    def _outcomes(self) -> tuple[str, str, str]:
        # One moment for all rows of a statement: an audit tells from it that none of them overtook another. What did not go out
        # must still be pending: rows that were brought back are not locked, and an operator may have discarded one.
        name, now = self._table.name, self._moment("statement_timestamp()")
        touched = f"processed_at = {now}, updated_at = {now}"
        deliver = (
            f"DELETE FROM {name} WHERE id = ANY(%s::bigint[])"
            if self._table.box.retention.deletes_on_delivery
            else f"UPDATE {name} SET status = {Status.DELIVERED:d}, {touched} WHERE id = ANY(%s::bigint[])"
        )
        discard = (
            f"UPDATE {name} SET status = {Status.DISCARDED:d}, {touched} "
            f"WHERE id = ANY(%s::bigint[]) AND {_still_pending()}"
        )
        log = ", error_log = f.error_log" if self._table.has("error_log") else ""
        fail = (
            f"UPDATE {name} AS t SET status = f.status, errors_count = f.errors_count{log}, {touched} "
            "FROM unnest(%s::bigint[], %s::int[], %s::int[], %s::text[]) AS f(id, status, errors_count, error_log) "
            f"WHERE t.id = f.id AND {_still_pending('t.')}"
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


def _still_pending(row: str = "") -> str:
    """That a row, found by its id, is pending. Said so that the planner does not take the index on pending rows, which it would
    walk from end to end for a few ids."""
    return f"{row}status + 0 = {Status.PENDING:d}"


def _listed(statuses: Sequence[int]) -> str:
    return ", ".join(str(int(status)) for status in statuses)


def _lock_space(table: BoxTable) -> int:
    """The first half of the advisory lock's key: a signed 32-bit number for this table; the bucket is the second."""
    number = zlib.crc32(f"boxengine:{table.name}".encode())
    return number - (1 << 32) if number >= 1 << 31 else number


def _array(numbers: Iterable[int]) -> str:
    """An array as PostgreSQL writes it: the driver's own dumper takes ten times as long for a list."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _moment_of(row: Row | None) -> datetime | None:
    return None if row is None or row[0] is None else _utc(row[0])


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
