"""PostgreSQL: advisory locks for buckets, one partial index for pending rows, arrays for parameters.

How the plans are kept stable: every query for pending rows goes bucket by bucket (``LATERAL``) and asks for the order
``bucket, id`` over a range instead of an equal bucket. Only the partial index ``(bucket, id) WHERE status = 0`` can
serve that order, so stale statistics cannot make the planner walk the primary key through all delivered rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self, assert_never

from psycopg import DataError, pq

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.connecting.pooler import committing
from boxengine.adapters.sql.dialects.base import LOOKED_AT, LOOKED_THROUGH, Row, Taken
from boxengine.adapters.sql.dialects.payloads import MAX_BATCH_BYTES, light, payload_of
from boxengine.adapters.sql.dialects.unreadable import EARLIEST, is_within_reach, legible, reason_of, without_values
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import JITTER_STRIDE, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Settlement
from boxengine.errors import StoreUnavailable
from boxengine.ports import PendingRow

_MAX_EXPONENT = 64
"""With this exponent every pause has long reached its maximum, and the power still fits a float."""
_NO_ID = 2**63 - 1
"""Greater than every id."""
_LONG = 10**9
"""Seconds; a cap for the time until a delayed row is due, which may be infinite."""
_SAVEPOINT = "boxengine_claim"
_RESETS = ("RESET SESSION AUTHORIZATION", "RESET ROLE", "RESET ALL")
"""Back to what the connection was opened with."""
_LEFTOVERS = ("CLOSE ALL", "UNLISTEN *", "DISCARD TEMP", "SELECT pg_advisory_unlock_all()")
"""Clear what outlives a transaction, besides settings."""
ENDED = (
    "a handler has ended the transaction of its batch (COMMIT, ROLLBACK): its items' outcomes cannot be recorded with what it "
    "wrote; use session.begin_nested(), or leave commit and rollback to the engine"
)
ONE_PLAN = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off"}
"""For a transaction with only boxengine's statements: planned once per connection, by index, whatever the table held then.
Otherwise the server plans them again for each batch, half a millisecond, because it expects longer arrays."""


class PostgresStatements:
    """The statements of one box's table on PostgreSQL through psycopg."""

    def __init__(self, table: BoxTable, *, idle_timeout_ms: int, light: int = light(MAX_BATCH_BYTES)) -> None:
        """Args:
        light: bytes up to which a payload is read with its row; a heavier one is returned as NULL.
        """
        self._light = light
        # Doubled, because the driver looks for placeholders.
        self._table = replace(table, name=table.name.replace("%", "%%"))
        self._space = lock_space(table)
        self.strict_order = table.box.strict_order
        self._idle_timeout = str(idle_timeout_ms)
        columns = f"t.id, t.bucket, {self._errors('t')}"
        self._poll = self._pending(columns)
        self._poll_regular = self._pending(columns, extra=f"AND {self._errors('t')} = 0")
        # A claim's two statements travel together, so the first hands its result to the second inside the server.
        held = "current_setting('boxengine.held')::int[]"
        share, of = f"greatest(1, %s / greatest(1, cardinality({held})))", f"WHERE held.bucket = ANY({held})"
        self._read = self._pending(self._item_columns(), share=share, suffix="FOR UPDATE OF t", of=of)
        # The condition is tested again: somebody else may have changed a row since the inner query found it.
        self._remove = (
            f"DELETE FROM {self._table.name} AS t WHERE t.id = ANY(ARRAY({self._pending('t.id', share=share, of=of)})) "
            f"AND {_still_pending('t.')} AND {self._is_due('t')} RETURNING {self._item_columns()}"
        )
        self._due = self._outlook()
        self._lock = self._take_locks({})
        self._lock_alone = self._take_locks(ONE_PLAN)
        self._later = self._later_delivered()
        self._waiting = self._longest_waiting()
        self._deliver, self._fail = self._outcomes()

    # ── the steps of a delivery ──────────────────────────────────────────────────────────────────────

    def poll(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        return self._polled(cursor, self._poll, buckets, share)

    def poll_regular(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        return self._polled(cursor, self._poll_regular, buckets, share)

    def _polled(self, cursor: Cursor, statement: str, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        cursor.execute(statement, (_array(buckets), _array(buckets.values()), share), prepare=True)
        return list(map(PendingRow._make, cursor.fetchall()))

    def outlook(self, cursor: Cursor, buckets: Mapping[int, int]) -> list[tuple[int | None, float]]:
        cursor.execute(self._due, (_array(buckets), _array(buckets.values()), 1), prepare=True)
        rows: list[tuple[int | None, float]] = cursor.fetchall()
        return rows

    def for_claim(self) -> Self:
        """Itself: every step gets all it needs as arguments."""
        return self

    def claim(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        return self._claim(cursor, buckets, limit, lock=self._lock, remove=False)

    def claim_plain(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        # Where all rows are delivered, nearly always, this takes one pass over them instead of two and sends no ids back.
        remove = self._table.box.retention.deletes_on_delivery
        return self._claim(cursor, buckets, limit, lock=self._lock_alone, remove=remove)

    def _claim(self, cursor: Cursor, buckets: Mapping[int, int], limit: int, *, lock: str, remove: bool) -> Taken:
        wanted = _array(buckets)
        with cursor.connection.cursor(binary=True) as locks:
            # A fetch inside a pipeline costs a round trip of its own, before the one that ends the pipeline.
            with cursor.connection.pipeline():
                locks.execute(lock, (self._idle_timeout, wanted, self._space), prepare=True)
                if remove:
                    cursor.connection.execute(f"SAVEPOINT {_SAVEPOINT}", prepare=False)
                statement = self._remove if remove else self._read
                cursor.execute(statement, (wanted, _array(buckets.values()), limit), prepare=True)
            granted, moment, *_ = locks.fetchone()
        now = moment.astimezone(UTC)
        rows, unreadable = self._fetch(cursor, now)
        if remove and None in map(payload_of, rows):
            # A payload too heavy to come with its row cannot be read later, because the row is deleted.
            self.bring_back(cursor)
            cursor.execute(self._read, (wanted, _array(buckets.values()), limit))
            (rows, unreadable), remove = self._fetch(cursor, now), False
        return Taken(granted, now, max(1, limit // max(1, len(granted))), rows, remove, unreadable)

    def _fetch(self, cursor: Cursor, now: datetime) -> tuple[list[Row], dict[int, str]]:
        try:
            rows, unreadable = cursor.fetchall(), dict[int, str]()
        except (DataError, ValueError, OverflowError):
            rows, unreadable = _one_by_one(cursor, now)
        if self._table.nullable:
            unreadable |= without_values(rows, self._table.nullable)
        return rows, unreadable

    def sizes(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, int]:
        column, name = self._table.payload, self._table.name
        cursor.execute(
            f"SELECT id, octet_length({column}) FROM {name} WHERE id = ANY(%s::bigint[]) AND {column} IS NOT NULL",
            (_array(ids),),
        )
        return dict(cursor.fetchall())

    def payloads(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, bytes]:
        cursor.execute(
            f"SELECT id, {self._table.payload} FROM {self._table.name} WHERE id = ANY(%s::bigint[])", (_array(ids),)
        )
        return dict(cursor.fetchall())

    def bring_back(self, cursor: Cursor) -> None:
        cursor.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}", prepare=False)

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> dict[int, int]:
        cursor.execute(self._later, (_array(item.id for item in items),))
        return dict(cursor.fetchall())

    def record(self, cursor: Cursor, settlement: Settlement) -> int:
        return sum(each.rowcount for each in self._write(cursor, settlement))

    def _write(self, cursor: Cursor, settlement: Settlement) -> list[Cursor]:
        """Executes the writes. Inside a pipeline the cursors do not know yet how many rows they changed."""
        used: list[Cursor] = []
        if settlement.delivered:
            used.append(cursor.execute(self._deliver, (_array(settlement.delivered),), prepare=True))
        if others := settlement.not_delivered:
            table = self._table
            values: list[list[Any]] = [
                [each.id for each in others],
                [int(each.status) for each in others],
                [min(each.errors_count, table.most_errors) for each in others],
                [table.log.fit(each.error_log) for each in others],
            ]
            used.append(cursor.connection.cursor().execute(self._fail, values))
        return used

    def finish(self, cursor: Cursor, settlement: Settlement) -> int:
        with committing(cursor.connection):
            used = self._write(cursor, settlement)
        return sum(each.rowcount for each in used)

    def seal(self, cursor: Cursor) -> None:
        """Does nothing: the outcomes are all there is to write."""

    def hold_again(self, cursor: Cursor, buckets: Sequence[int]) -> list[int]:
        cursor.execute(self._lock, (self._idle_timeout, _array(buckets), self._space))
        granted: list[int] = cursor.fetchone()[0]
        return granted

    def hold_pending(self, cursor: Cursor, ids: Sequence[int]) -> list[int]:
        cursor.execute(
            f"SELECT id FROM {self._table.name} WHERE id = ANY(%s::bigint[]) AND {_still_pending()} ORDER BY id FOR UPDATE",
            (_array(ids),),
        )
        return [row[0] for row in cursor.fetchall()]

    def errors_count(self, cursor: Cursor, item_id: int) -> int:
        cursor.execute(f"SELECT errors_count FROM {self._table.name} WHERE id = %s", (item_id,))
        return int(cursor.fetchone()[0] or 0)

    def unlock(self, cursor: Cursor, buckets: Sequence[int]) -> None:
        """Does nothing: transaction-scoped advisory locks end with the transaction."""

    def anchor(self, cursor: Cursor) -> None:
        """Does nothing: the claim has already made a setting that lasts as long as its transaction."""

    def take_back(self, cursor: Cursor) -> None:
        with cursor.connection.pipeline():
            held = cursor.connection.execute("SELECT current_setting('boxengine.held', true)", prepare=False)
            for statement in _RESETS:
                cursor.connection.execute(statement, prepare=False)
        if not held.fetchone()[0]:
            raise StoreUnavailable(ENDED)

    def clean(self, cursor: Cursor) -> bool:
        # Not through the driver, which would open a transaction for it and need another round trip to commit it.
        connection = cursor.connection
        result = connection.pgconn.exec_("; ".join((*_RESETS, *_LEFTOVERS)).encode())
        return bool(result.status == pq.ExecStatus.TUPLES_OK)

    # ── finished rows ────────────────────────────────────────────────────────────────────────────────

    def pending_in_log(self, cursor: Cursor, limit: int) -> int:  # noqa: ARG002 - a log's statements use them
        """Zero: there is no log."""
        return 0

    def unread_since(self, cursor: Cursor) -> datetime | None:  # noqa: ARG002 - as above
        """None, as above."""
        return None

    def oldest_pending(self, cursor: Cursor, buckets: Mapping[int, int]) -> datetime | None:
        cursor.execute(self._waiting, (_array(buckets), _array(buckets.values()), LOOKED_AT), prepare=True)
        return _moment_of(cursor.fetchone())

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        finished = self._finished(statuses, condition=f"AND {is_within_reach('created_at')}")
        cursor.execute(f"SELECT created_at FROM {finished} LIMIT 1", ())
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

    def sweep(self, cursor: Cursor, before: Mapping[int, datetime], after: int, limit: int) -> tuple[int, int | None]:
        name, old, moments = self._table.name, f"({self._old(before)})", list(before.values())
        cursor.execute(
            f"WITH looked AS MATERIALIZED (SELECT id, status, created_at FROM {name} WHERE id > %s ORDER BY id LIMIT %s), "
            f"gone AS (DELETE FROM {name} WHERE id = ANY(ARRAY(SELECT id FROM {name} WHERE id = ANY(ARRAY("
            f"SELECT id FROM looked WHERE {old} ORDER BY id LIMIT %s)) AND {old} FOR UPDATE SKIP LOCKED)) RETURNING 1) "
            "SELECT (SELECT count(*) FROM gone), (SELECT max(id) FROM looked)",
            (after, LOOKED_THROUGH * limit, *moments, limit, *moments),
        )
        deleted, last = cursor.fetchone()
        return int(deleted), last

    def _old(self, before: Mapping[int, datetime]) -> str:
        # An infinitely early moment is no age: a row that failed because of it must stay until somebody has looked at it.
        real = f"created_at >= {EARLIEST}"
        return " OR ".join(
            f"(status = {int(status)} AND created_at < {self._moment('%s')} AND {real})" for status in before
        )

    def _finished(self, statuses: Sequence[int], *, condition: str = "") -> str:
        """Rows of these statuses by ascending id. Delivered ones are at the beginning of the primary key; failed and
        discarded ones have their own index, which is used only if the statuses are literals in the statement."""
        return f"{self._table.name} WHERE status IN ({_listed(statuses)}) {condition} ORDER BY id"

    # ── the texts ────────────────────────────────────────────────────────────────────────────────────

    def _take_locks(self, settings: Mapping[str, str]) -> str:
        """Takes a claim's locks; sets its limits, and these settings, for the transaction only."""
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
            # If the condition were inside the limit, the planner would expect few rows to meet it and read the whole table.
            f"SELECT min(i.since) FILTER (WHERE {is_within_reach('i.since')}) "
            f"FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after) CROSS JOIN LATERAL ("
            f"SELECT {since} AS since FROM {self._table.name} AS t WHERE t.status = 0 "
            f"AND (t.bucket, t.id) > (held.bucket, held.after) AND t.bucket <= held.bucket {condition} "
            f"ORDER BY t.bucket, t.id LIMIT %s) AS i"
        )

    def _outlook(self) -> str:
        due = self._pending("t.bucket, 0::float8")
        if self._table.delayed_index is None:
            return due
        return (
            # The difference itself may be infinite, or beyond what Python holds.
            f"{due} UNION ALL (SELECT NULL, "
            f"least(extract(epoch FROM t.available_at) - extract(epoch FROM {self._now}), {_LONG})::float8 "
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
                f"CASE WHEN octet_length(t.{table.payload}) <= {self._light} THEN t.{table.payload} END",
                self._errors("t"),
                # In UTC without its zone: the driver takes ten times as long to decode a moment with a zone.
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
                f"power({backoff.multiplier}::float8, least({self._errors(row)} - 1, {_MAX_EXPONENT})))"
            )
            if backoff.jitter:
                seconds += f" * (1 - {backoff.jitter} * ({row}.id * {JITTER_STRIDE} %% 1000) / 1000.0)"
            parts.append(
                f"({self._errors(row)} = 0 OR {row}.processed_at IS NULL OR "
                f"{row}.processed_at <= {self._now} - make_interval(secs => {seconds}))"
            )
        if self._table.has("available_at"):
            parts.append(f"({row}.available_at IS NULL OR {row}.available_at <= {self._now})")
        return "(" + " AND ".join(parts or ["true"]) + ")"

    def _errors(self, row: str) -> str:
        column = f"{row}.errors_count"
        return f"coalesce({column}, 0)" if "errors_count" in self._table.nullable else column

    def _holding_back_key(self) -> str:
        """Earlier rows of the same key that are failed, or pending and not due: they park the key."""
        return (
            f"SELECT 1 FROM {self._table.name} AS e WHERE e.bucket = t.bucket AND e.event_key = t.event_key AND e.id < t.id "
            f"AND (e.status = 1 OR (e.status = 0 AND ({self._troubled}))) AND (e.status = 1 OR NOT {self._is_due('e')})"
        )

    def _holding_back_bucket(self) -> str:
        """The id of the bucket's first pending row that is not due. OFFSET 0 makes PostgreSQL look it up once per bucket."""
        first = (
            f"SELECT e.id FROM {self._table.name} AS e WHERE e.status = 0 AND ({self._troubled}) "
            f"AND (e.bucket, e.id) > (held.bucket, 0) AND e.bucket <= held.bucket AND NOT {self._is_due('e')} "
            "ORDER BY e.bucket, e.id LIMIT 1"
        )
        return f"SELECT coalesce(({first}), {_NO_ID}) AS id OFFSET 0"

    @property
    def _troubled(self) -> str:
        """The condition that every waiting row meets; also the predicate of the index that serves strict order."""
        delayed = " OR e.available_at IS NOT NULL" if self._table.has("available_at") else ""
        return f"e.errors_count > 0{delayed}"

    def _later_delivered(self) -> str:
        # The stored keys are compared with each other: in old tables they are numbers.
        name = self._table.name
        same_event = "AND t.event_name IS NOT DISTINCT FROM i.event_name" if self._table.has("event_name") else ""
        return (
            f"SELECT i.id, later.id FROM {name} AS i CROSS JOIN LATERAL ("
            f"SELECT t.id FROM {name} AS t WHERE t.event_key = i.event_key AND t.id > i.id "
            f"AND t.status = {Status.DELIVERED:d} {same_event} LIMIT 1) AS later WHERE i.id = ANY(%s::bigint[])"
        )

    def _outcomes(self) -> tuple[str, str]:
        # One moment for all rows of a statement tells an audit that none of them overtook another. An undelivered row
        # must still be pending: rows whose deletion was undone are not locked, and an operator may have discarded one.
        name, now = self._table.name, self._moment("statement_timestamp()")
        touched = f"processed_at = {now}, updated_at = {now}"
        deliver = (
            f"DELETE FROM {name} WHERE id = ANY(%s::bigint[])"
            if self._table.box.retention.deletes_on_delivery
            else f"UPDATE {name} SET status = {Status.DELIVERED:d}, {touched} WHERE id = ANY(%s::bigint[])"
        )
        log = ""
        if self._table.has("error_log"):
            discarded = "concat_ws(E'\\n', f.error_log, t.error_log)"
            if (limit := self._table.log.always_fit) is not None:
                discarded = f"left({discarded}, {limit})"
            log = f", error_log = CASE f.status WHEN {Status.DISCARDED:d} THEN {discarded} ELSE f.error_log END"
        fail = (
            f"UPDATE {name} AS t SET status = f.status, errors_count = f.errors_count{log}, {touched} "
            "FROM unnest(%s::bigint[], %s::int[], %s::int[], %s::text[]) AS f(id, status, errors_count, error_log) "
            f"WHERE t.id = f.id AND {_still_pending('t.')}"
        )
        return deliver, fail

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


def _one_by_one(cursor: Cursor, now: datetime) -> tuple[list[Row], dict[int, str]]:
    """Decodes row by row a result that fails as a whole: its rows, and why those failed that cannot be read."""
    rows: list[Row] = []
    unreadable: dict[int, str] = {}
    for place in range(cursor.rowcount):
        # Scrolls to each row, not one past the row that failed: there is no position after the last.
        cursor.scroll(place, mode="absolute")
        try:
            rows.append(cursor.fetchone())
        except (DataError, ValueError, OverflowError) as error:
            result = cursor.pgresult
            cells = [result.get_value(place, column) for column in range(result.nfields)]
            rows.append(legible(cells, now=now.replace(tzinfo=None)))
            unreadable[rows[-1][0]] = reason_of(error)
    return rows, unreadable


def _still_pending(row: str = "") -> str:
    """Tests that a row found by its id is pending, in a form that keeps the planner from using the index on pending rows: it
    would walk all of it for a few ids."""
    return f"{row}status + 0 = {Status.PENDING:d}"


def _listed(statuses: Sequence[int]) -> str:
    return ", ".join(str(int(status)) for status in statuses)


def lock_space(table: BoxTable) -> int:
    """The first half of the advisory lock's key: a signed 32-bit number for this table; the bucket is the second."""
    number = zlib.crc32(f"boxengine:{table.location}".encode())
    return number - (1 << 32) if number >= 1 << 31 else number


def _array(numbers: Iterable[int]) -> str:
    """An array in PostgreSQL's text form: the driver's own dumper takes ten times as long for a list."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _moment_of(row: Row | None) -> datetime | None:
    return None if row is None or row[0] is None else _utc(row[0])


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
