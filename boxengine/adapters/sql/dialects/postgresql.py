"""PostgreSQL: advisory locks for buckets, one partial index for pending rows, arrays for parameters.

How the plans are kept stable: every query for pending rows goes bucket by bucket (``LATERAL``) and asks for the order
``bucket, id`` over a range instead of an equal bucket. Only the partial index ``(bucket, id) WHERE status = 0`` can
serve that order, so stale statistics cannot make the planner walk the primary key through all delivered rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

from psycopg import DataError, pq
from psycopg.errors import LockNotAvailable

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.connecting.own_settings import TEXTS, set_again
from boxengine.adapters.sql.connecting.pooler import committing, is_known_as_pooled
from boxengine.adapters.sql.connecting.round_trip import Answer, Step
from boxengine.adapters.sql.dialects.base import (
    FIRST_GIVEN_UP,
    LOOKED_AT,
    LOOKED_THROUGH,
    MOST_PASSED,
    Behind,
    NextRows,
    Row,
    Taken,
)
from boxengine.adapters.sql.dialects.payloads import MAX_BATCH_BYTES, light, payload_of
from boxengine.adapters.sql.dialects.postgresql_reads import PATIENCE, SAVEPOINT, Reads, Values, make_reads
from boxengine.adapters.sql.dialects.postgresql_texts import PostgresTexts, numbers, still_pending
from boxengine.adapters.sql.dialects.unreadable import (
    EARLIEST,
    Unreadable,
    is_within_reach,
    legible,
    reason_of,
    without_values,
)
from boxengine.adapters.sql.sessions.constraints import CHECK_AT_ONCE
from boxengine.adapters.sql.shape.tables import BoxTable, for_driver
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Settlement
from boxengine.errors import StoreUnavailable
from boxengine.ports import Count, PendingRow

_BUCKET = Item._fields.index("bucket")
"""Its place in a row, which begins with an item's fields."""
_RESETS = ("RESET SESSION AUTHORIZATION", "RESET ROLE", "RESET ALL")
"""Back to what the connection was opened with."""
_LEFTOVERS = ("CLOSE ALL", "UNLISTEN *", "DISCARD TEMP", "SELECT pg_advisory_unlock_all()")
"""Clear what outlives a transaction, besides settings."""
ENDED = (
    "a handler has ended the transaction of its batch (COMMIT, ROLLBACK): its items' outcomes cannot be recorded with what it "
    "wrote; use session.begin_nested(), or leave commit and rollback to the engine"
)


class PostgresStatements:
    """The statements of one box's table on PostgreSQL through psycopg."""

    def __init__(self, table: BoxTable, *, idle_timeout_ms: int, light: int = light(MAX_BATCH_BYTES)) -> None:
        """Args:
        light: bytes up to which a payload is read with its row; a heavier one is returned as NULL.
        """
        self._table = replace(table, name=for_driver(table.name))
        self._texts = texts = PostgresTexts(self._table, light=light)
        self._space = lock_space(table)
        self.strict_order = texts.strict_order
        self._idle_timeout = str(idle_timeout_ms)
        self._from_start = make_reads(texts, passed=False)
        self._behind = make_reads(texts, passed=True) if table.passes_delayed else self._from_start
        self._lock = texts.take_locks({})
        self._later = texts.later_delivered()
        self._waiting_keys = texts.waiting_keys()
        self._deliver, self._fail = texts.outcomes()

    # ── the steps of a delivery ──────────────────────────────────────────────────────────────────────

    def poll(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        return self._polled(cursor, self._reads(buckets).poll, buckets, share)

    def poll_regular(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        return self._polled(cursor, self._reads(buckets).poll_regular, buckets, share)

    def _polled(self, cursor: Cursor, statement: str, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        values = self._reads(buckets).of(buckets, share, most=share * len(buckets))
        cursor.execute(statement, values, prepare=True)
        return list(map(PendingRow._make, cursor.fetchall()))

    def outlook(self, cursor: Cursor, buckets: Mapping[int, int]) -> list[tuple[int | None, float]]:
        reads = self._reads(buckets)
        cursor.execute(reads.outlook, reads.of(buckets, 1, most=MOST_PASSED), prepare=True)
        rows: list[tuple[int | None, float]] = cursor.fetchall()
        return rows

    def _reads(self, buckets: Mapping[int, int]) -> Reads:
        return self._behind if isinstance(buckets, Behind) else self._from_start

    def for_claim(self) -> Self:
        """Itself: every step gets all it needs as arguments."""
        return self

    def claim(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        reads = self._reads(buckets)
        return self._claim(cursor, buckets, limit, reads=reads, step=reads.claiming)

    def claim_plain(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        reads = self._reads(buckets)
        if self._table.box.retention.deletes_on_delivery:
            # Where all rows are delivered, nearly always, this takes one pass over them instead of two and sends no ids back.
            return self._claim_by_deleting(cursor, buckets, limit, reads=reads)
        return self._claim(cursor, buckets, limit, reads=reads, step=reads.claiming_alone)

    def _claim(self, cursor: Cursor, buckets: Mapping[int, int], limit: int, *, reads: Reads, step: Step) -> Taken:
        values = reads.of(buckets, limit, most=limit)
        locks, found = step.run(cursor, (self._idle_timeout, values[0], self._space), values)
        granted, moment, *_ = locks.fetchone()
        now = moment.astimezone(UTC)
        rows, unreadable = self._fetch(found, now)
        return _taken(granted, now, rows, unreadable, buckets=buckets, limit=limit, reads=reads)

    def _claim_by_deleting(self, cursor: Cursor, buckets: Mapping[int, int], limit: int, *, reads: Reads) -> Taken:
        values = reads.of(buckets, limit, most=limit)
        nothing: Sequence[Values] = [()] * reads.counted
        locking = (self._idle_timeout, values[0], self._space)
        locks, _, found, *counted = reads.claiming_removed.run(cursor, locking, (), values, *nothing)
        granted, moment, *_ = locks.fetchone()
        now, gone = moment.astimezone(UTC), True
        rows, unreadable = self._fetch(found, now)
        # Under strict order, a row that somebody has just put off holds back others among these.
        is_short = any((each.fetchone()[0] or 0) > len(rows) for each in counted)
        # A payload too heavy to come with its row cannot be read later, because the row is deleted.
        if is_short or None in map(payload_of, rows):
            self.bring_back(cursor)
            cursor.execute(reads.read, values)
            (rows, unreadable), gone = self._fetch(cursor, now), False
        return _taken(granted, now, rows, unreadable, buckets=buckets, limit=limit, reads=reads, gone=gone)

    def hit_a_lock(self, error: Exception) -> bool:
        return isinstance(error, LockNotAvailable)

    def next_rows(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> NextRows:
        reads = self._reads(buckets)
        values = reads.of(buckets, limit, most=limit)
        locks, found = reads.looking.run(cursor, (self._idle_timeout, values[0], self._space), values)
        rows = NextRows(len(locks.fetchone()[0]), dict(found.fetchall()))
        cursor.execute(f"SAVEPOINT {SAVEPOINT}")
        return rows

    def locked(self, cursor: Cursor, ids: Collection[int]) -> set[int]:
        cursor.execute(
            f"SELECT id FROM {self._table.name} WHERE id = ANY(%s::bigint[]) FOR UPDATE SKIP LOCKED", (numbers(ids),)
        )
        free = {row_id for (row_id,) in cursor.fetchall()}
        self._return(cursor)
        return set(ids) - free

    def wait_for(self, cursor: Cursor, row_id: int) -> None:
        with suppress(LockNotAvailable):
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", (PATIENCE["lock_timeout"],))
            cursor.execute(f"SELECT id FROM {self._table.name} WHERE id = %s FOR UPDATE", (row_id,))
        self._return(cursor)

    def _fetch(self, cursor: Cursor | Answer, now: datetime) -> tuple[list[Row], dict[int, str]]:
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
            (numbers(ids),),
        )
        return dict(cursor.fetchall())

    def payloads(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, bytes]:
        cursor.execute(
            f"SELECT id, {self._table.payload} FROM {self._table.name} WHERE id = ANY(%s::bigint[])", (numbers(ids),)
        )
        return dict(cursor.fetchall())

    def bring_back(self, cursor: Cursor) -> None:
        self._return(cursor)
        # From here on the items are sent: whoever has locked their rows meanwhile is waited for, or all would be sent again.
        cursor.execute("SET LOCAL lock_timeout TO DEFAULT", prepare=False)

    def _return(self, cursor: Cursor) -> None:
        cursor.execute(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}", prepare=False)

    def waiting_keys(self, cursor: Cursor, items: Sequence[Item], upto: Mapping[int, int]) -> set[str]:
        looked = {bucket: upto[bucket] for bucket in sorted({item.bucket for item in items} & upto.keys())}
        keys = sorted({item.event_key for item in items})
        cursor.execute(self._waiting_keys, (numbers(looked), numbers(looked.values()), keys))
        return {key for (key,) in cursor.fetchall()}

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> dict[int, int]:
        cursor.execute(self._later, (numbers(item.id for item in items),))
        return dict(cursor.fetchall())

    def record(self, cursor: Cursor, settlement: Settlement) -> int:
        return sum(each.rowcount for each in self._write(cursor, settlement))

    def _write(self, cursor: Cursor, settlement: Settlement) -> list[Cursor]:
        """Executes the writes. Inside a pipeline the cursors do not know yet how many rows they changed."""
        used: list[Cursor] = []
        if settlement.delivered:
            used.append(cursor.execute(self._deliver, (numbers(settlement.delivered),), prepare=True))
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

    def seal(self, cursor: Cursor, buckets: Collection[int] | None = None) -> None:
        """Does nothing: the outcomes are all there is to write."""

    def forget(self) -> None:
        """Does nothing: only the table knows of outcomes."""

    def hold_again(self, cursor: Cursor, buckets: Sequence[int]) -> list[int]:
        cursor.execute(self._lock, (self._idle_timeout, numbers(buckets), self._space))
        granted: list[int] = cursor.fetchone()[0]
        return granted

    def hold_pending(self, cursor: Cursor, ids: Sequence[int]) -> list[int]:
        cursor.execute(
            f"SELECT id FROM {self._table.name} WHERE id = ANY(%s::bigint[]) AND {still_pending()} ORDER BY id FOR UPDATE",
            (numbers(ids),),
        )
        return [row[0] for row in cursor.fetchall()]

    def check_at_once(self, cursor: Cursor) -> None:
        cursor.execute(CHECK_AT_ONCE, prepare=False)

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
            ours = () if is_known_as_pooled(cursor.connection) else (TEXTS,)
            for statement in (*_RESETS, *ours):
                cursor.connection.execute(statement, prepare=False)
        if not held.fetchone()[0]:
            raise StoreUnavailable(ENDED)

    def clean(self, cursor: Cursor) -> bool:
        # Not through the driver, which would open a transaction for it and need another round trip to commit it.
        connection = cursor.connection
        statements = (*_RESETS, *_LEFTOVERS, *set_again(connection))
        result = connection.pgconn.exec_("; ".join(statements).encode())
        return bool(result.status == pq.ExecStatus.TUPLES_OK)

    # ── finished rows ────────────────────────────────────────────────────────────────────────────────

    def pending_in_log(self, cursor: Cursor, most: int) -> Count:  # noqa: ARG002 - a log's statements use them
        """Zero: there is no log."""
        return Count(0)

    def unread_since(self, cursor: Cursor) -> datetime | None:  # noqa: ARG002 - as above
        """None, as above."""
        return None

    def oldest_pending(self, cursor: Cursor, buckets: Mapping[int, int]) -> datetime | None:
        reads = self._reads(buckets)
        cursor.execute(reads.oldest, reads.of(buckets, LOOKED_AT, most=LOOKED_AT), prepare=True)
        return _moment_of(cursor.fetchone())

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        finished = self._finished(statuses, condition=f"AND {is_within_reach('created_at')}")
        since, first = self._texts.kept_since(statuses), 1 if set(statuses) == {Status.DELIVERED} else FIRST_GIVEN_UP
        cursor.execute(
            f"SELECT min(first.since) FILTER (WHERE {is_within_reach('first.since')}) "
            f"FROM (SELECT {since} AS since FROM {finished} LIMIT {first}) AS first",
            (),
        )
        return _moment_of(cursor.fetchone())

    def delete(
        self, cursor: Cursor, statuses: Sequence[int], created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        if not statuses:
            return 0
        since, moment = self._texts.kept_since(statuses), self._texts.moment("%s", "created_at")
        cursor.execute(
            f"DELETE FROM {self._table.name} WHERE id = ANY(ARRAY(SELECT id FROM {self._table.name} WHERE id = ANY(ARRAY("
            f"SELECT first.id FROM (SELECT id, {since} AS since FROM {self._finished(statuses)} LIMIT %s) AS first "
            f"WHERE first.since >= {moment} AND first.since < {moment} "
            f"ORDER BY first.id LIMIT %s)) AND status IN ({_listed(statuses)}) FOR UPDATE SKIP LOCKED))",
            (LOOKED_THROUGH * limit, created_from, created_before, limit),
        )
        return int(cursor.rowcount)

    def sweep(self, cursor: Cursor, before: Mapping[int, datetime], after: int, limit: int) -> tuple[int, int | None]:
        name, old, moments = self._table.name, f"({self._old(before)})", list(before.values())
        cursor.execute(
            f"WITH looked AS MATERIALIZED (SELECT id, status, created_at, processed_at FROM {name} WHERE id > %s "
            "ORDER BY id LIMIT %s), "
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
        moment = self._texts.moment("%s", "created_at")
        return " OR ".join(
            f"(status = {int(status)} AND {self._texts.kept_since([status])} < {moment} AND {real})"
            for status in before
        )

    def _finished(self, statuses: Sequence[int], *, condition: str = "") -> str:
        """Rows of these statuses by ascending id. Delivered ones are at the beginning of the primary key; failed and
        discarded ones have their own index, which is used only if the statuses are literals in the statement."""
        return f"{self._table.name} WHERE status IN ({_listed(statuses)}) {condition} ORDER BY id"


def _one_by_one(cursor: Cursor | Answer, now: datetime) -> tuple[list[Row], dict[int, str]]:
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


def _listed(statuses: Sequence[int]) -> str:
    return ", ".join(str(int(status)) for status in statuses)


def lock_space(table: BoxTable) -> int:
    """The first half of the advisory lock's key: a signed 32-bit number for this table; the bucket is the second."""
    # Workers of 0.1.0 make it of the name as their statements write it: quoted where necessary, and without a schema that only
    # search_path names. In the usual schema, they and these must exclude each other.
    number = zlib.crc32(f"boxengine:{for_driver(table.name).removeprefix('public.')}".encode())
    return number - (1 << 32) if number >= 1 << 31 else number


def _taken(
    granted: list[int],
    now: datetime,
    rows: list[Row],
    unreadable: Unreadable,
    *,
    buckets: Mapping[int, int],
    limit: int,
    reads: Reads,
    gone: bool = False,
) -> Taken:
    share, exhausted = max(1, limit // max(1, len(granted))), None
    most = min(limit, MOST_PASSED)
    if reads.passed and len(rows) >= most and sum(row[0] <= buckets[row[_BUCKET]] for row in rows) >= most:
        exhausted = frozenset[int]()  # any bucket may have more of those that bounds have passed
    return Taken(granted, now, share, rows, gone, unreadable, exhausted)


def _moment_of(row: Row | None) -> datetime | None:
    return None if row is None or row[0] is None else _utc(row[0])


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
