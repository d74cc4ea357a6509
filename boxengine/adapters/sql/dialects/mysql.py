"""MySQL 8 and MariaDB: user-level locks for buckets, an index that begins with the status, one SELECT per bucket.

MariaDB has no ``LATERAL``, so the buckets' rows come from a ``UNION ALL`` of one ordered and limited ``SELECT`` each.
Rows are found without locks, and then locked by primary key: a locking scan of an index range also locks the entry
after its end, which belongs to another bucket and so to another worker. For the same reason every write names
ids, and the primary key's index. User-level locks (``GET_LOCK``) belong to the connection, not to the transaction:
the store frees them after the commit, and the server when the connection closes.
Moments are stored without a zone, in UTC, whatever the session's zone is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self, assert_never
from uuid import UUID

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.connecting.writes import refusal
from boxengine.adapters.sql.dialects.base import LOOKED_AT, LOOKED_THROUGH, Row, Taken
from boxengine.adapters.sql.dialects.branch import Branch
from boxengine.adapters.sql.dialects.payloads import MAX_BATCH_BYTES, light
from boxengine.adapters.sql.dialects.unreadable import EARLIEST, is_within_reach, legible, reason_of, without_values
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import JITTER_STRIDE, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Settlement
from boxengine.ports import PendingRow

_MAX_EXPONENT = 64
"""With this exponent every pause has long reached its maximum, and the power still fits a double."""
_NO_ID = 2**63 - 1
"""Greater than every id."""
_NO_BUCKET = -1
_NOW = "UTC_TIMESTAMP(6)"
_READ_ONLY = "@@global.read_only"
_MOMENTS = 9
"""The position of the first moment in a row."""
_SAVEPOINT = "boxengine_claim"


class MySqlStatements:
    """The statements of one box's table on MySQL or MariaDB, through PyMySQL or mysqlclient."""

    def __init__(self, table: BoxTable, *, light: int = light(MAX_BATCH_BYTES)) -> None:
        """Args:
        light: bytes up to which a payload is read with its row; a heavier one is returned as NULL.
        """
        self._light = light
        self._table = table
        self._name = table.name.replace("%", "%%")
        self.strict_order = table.box.strict_order
        # The server's locks belong to no database, so the name must contain it, in at most 64 characters.
        self._lock_prefix = f"boxengine:{hashlib.sha256(table.location.lower().encode()).hexdigest()[:32]}:"
        columns = f"t.id, t.bucket, {self._errors('t')}"
        self._poll = self._pending(columns)
        self._poll_regular = self._pending(columns, regular_only=True)
        self._due = self._pending("t.bucket, 0")
        self._ids = self._pending("t.id")
        self._lock_rows = (
            f"AS found STRAIGHT_JOIN {self._name} AS t ON t.id = found.id "
            f"WHERE t.status = {Status.PENDING:d} FOR UPDATE"
        )
        self._deliver = self._outcome()

    # ── the steps of a delivery ──────────────────────────────────────────────────────────────────────

    def poll(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        return list(map(PendingRow._make, self._poll.rows(cursor, buckets, share)))

    def poll_regular(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        return list(map(PendingRow._make, self._poll_regular.rows(cursor, buckets, share)))

    def outlook(self, cursor: Cursor, buckets: Mapping[int, int]) -> list[tuple[int | None, float]]:
        due, values = self._due.of_all(buckets or {_NO_BUCKET: 0}, 1)
        cursor.execute(f"({due}){self._first_delayed}", values)
        return [(bucket, float(seconds)) for bucket, seconds in cursor.fetchall()]

    def for_claim(self) -> Self:
        """Itself: every step gets all it needs as arguments."""
        return self

    def claim(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        granted, now = self._take_locks(cursor, list(buckets))
        share = max(1, limit // max(1, len(granted)))
        unreadable: dict[int, str] = {}
        rows: list[Row] = []
        if granted:
            rows, unreadable = self._read(cursor, {bucket: buckets[bucket] for bucket in granted}, share, now)
        return Taken(granted, now, share, rows, unreadable=unreadable)

    def claim_plain(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        return self.claim(cursor, buckets, limit)  # a DELETE returns no rows here

    def sizes(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, int]:
        column = self._table.payload
        cursor.execute(
            f"SELECT t.id, OCTET_LENGTH(t.{column}) FROM {self._by_id} "
            f"WHERE t.id IN ({_places(ids)}) AND t.{column} IS NOT NULL",
            list(ids),
        )
        return dict(cursor.fetchall())

    def payloads(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, bytes]:
        cursor.execute(
            f"SELECT t.id, t.{self._table.payload} FROM {self._by_id} WHERE t.id IN ({_places(ids)})", list(ids)
        )
        return dict(cursor.fetchall())

    def bring_back(self, cursor: Cursor) -> None:
        """Does nothing: claims never delete rows as they read them."""

    def _take_locks(self, cursor: Cursor, buckets: Sequence[int]) -> tuple[list[int], datetime]:
        cursor.execute(f"SELECT {_NOW}, {_READ_ONLY}" + ", GET_LOCK(%s, 0)" * len(buckets), self._lock_names(buckets))
        now, read_only, *answers = cursor.fetchone()
        if str(read_only).lower() not in ("off", "0"):
            # Rows could be locked and sent, but not recorded: they would be sent again and again.
            raise refusal(cursor.connection)
        granted = [bucket for bucket, answer in zip(buckets, answers, strict=True) if answer == 1]
        return granted, now.replace(tzinfo=UTC)

    def _read(
        self, cursor: Cursor, buckets: Mapping[int, int], share: int, now: datetime
    ) -> tuple[list[Row], dict[int, str]]:
        found, values = self._ids.of_all(buckets, share)
        cursor.execute(f"SELECT {self._item_columns} FROM ({found}) {self._lock_rows}", values)
        raw = cursor.fetchall()
        absent = without_values(raw, self._table.nullable) if self._table.nullable else {}
        if not absent:
            with suppress(ValueError, TypeError, AttributeError, OverflowError):
                return list(map(_item_row, raw)), {}
        return _one_by_one(raw, absent, now)

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> dict[int, int]:
        # The stored keys are compared with each other, so no conversion between character sets can change them.
        same_event = "AND t.event_name <=> i.event_name" if self._table.has("event_name") else ""
        cursor.execute(
            f"SELECT i.id, (SELECT t.id FROM {self._name} AS t WHERE {_same_key('t', 'i')} AND t.id > i.id "
            f"AND t.status = {Status.DELIVERED:d} {same_event} LIMIT 1) AS later "
            f"FROM {self._name} AS i WHERE i.id IN ({_places(items)}) HAVING later IS NOT NULL",
            [item.id for item in items],
        )
        return dict(cursor.fetchall())

    def record(self, cursor: Cursor, settlement: Settlement) -> int:
        written = 0
        if settlement.delivered:
            cursor.execute(self._deliver + f"({_places(settlement.delivered)})", settlement.delivered)
            written += cursor.rowcount
        if others := settlement.not_delivered:
            values: list[Any] = []
            table = self._table
            for each in others:
                values += (
                    each.id,
                    int(each.status),
                    min(each.errors_count, table.most_errors),
                    table.log.fit(each.error_log),
                )
            cursor.execute(self._fail(len(others)), values)
            written += cursor.rowcount
        return written

    def finish(self, cursor: Cursor, settlement: Settlement) -> int:
        written = self.record(cursor, settlement)
        if written == len(settlement):
            cursor.connection.commit()
        else:
            cursor.connection.rollback()
        return written

    def seal(self, cursor: Cursor) -> None:
        """Does nothing: the outcomes are all there is to write."""

    def hold_again(self, cursor: Cursor, buckets: Sequence[int]) -> list[int]:  # noqa: ARG002 - see base
        return list(buckets)  # these locks are the connection's and outlive its transactions

    def hold_pending(self, cursor: Cursor, ids: Sequence[int]) -> list[int]:
        cursor.execute(
            f"SELECT t.id FROM {self._by_id} WHERE t.id IN ({_places(ids)}) AND t.status = {Status.PENDING:d} "
            "ORDER BY t.id FOR UPDATE",
            list(ids),
        )
        return [row[0] for row in cursor.fetchall()]

    def errors_count(self, cursor: Cursor, item_id: int) -> int:
        cursor.execute(f"SELECT errors_count FROM {self._name} WHERE id = %s", (item_id,))
        return int(cursor.fetchone()[0] or 0)

    def unlock(self, cursor: Cursor, buckets: Sequence[int]) -> None:
        cursor.execute("DO " + ", ".join(["RELEASE_LOCK(%s)"] * len(buckets)), self._lock_names(buckets))

    def anchor(self, cursor: Cursor) -> None:
        """Sets a savepoint: a deadlock or DDL in a handler ends the whole transaction, and the next statement begins another."""
        cursor.execute(f"SAVEPOINT {_SAVEPOINT}")

    def take_back(self, cursor: Cursor) -> None:
        cursor.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")

    def clean(self, cursor: Cursor) -> bool:  # noqa: ARG002 - see base
        """No statement brings back a session's variables, user variables, temporary tables and database at once."""
        return False

    # ── finished rows ────────────────────────────────────────────────────────────────────────────────

    def pending_in_log(self, cursor: Cursor, limit: int) -> int:  # noqa: ARG002 - a log's statements use them
        """Zero: there is no log."""
        return 0

    def unread_since(self, cursor: Cursor) -> datetime | None:  # noqa: ARG002 - as above
        """None, as above."""
        return None

    def oldest_pending(self, cursor: Cursor, buckets: Mapping[int, int]) -> datetime | None:
        found, values = self._waiting.of_all(buckets, LOOKED_AT)
        cursor.execute(f"SELECT MIN(found.since) FROM ({found}) AS found", values)
        return _moment_of(cursor.fetchone())

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        finished = self._finished(statuses, condition=f"AND {is_within_reach('created_at')}")
        cursor.execute(f"SELECT created_at FROM {finished} LIMIT 1", list(statuses))
        return _moment_of(cursor.fetchone())

    def delete(
        self, cursor: Cursor, statuses: Sequence[int], created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        if not statuses:
            return 0
        # A DELETE that searches for its rows waits for every locked one that it passes, those of open claims too.
        cursor.execute(
            f"SELECT first.id FROM (SELECT id, created_at FROM {self._finished(statuses)} LIMIT %s) AS first "
            "WHERE first.created_at >= %s AND first.created_at < %s ORDER BY first.id LIMIT %s",
            [*statuses, LOOKED_THROUGH * limit, _naive(created_from), _naive(created_before), limit],
        )
        ids = [row[0] for row in cursor.fetchall()]
        if not ids:
            return 0
        cursor.execute(
            f"DELETE t FROM {self._by_id} WHERE t.id IN ({_places(ids)}) AND t.status IN ({_places(statuses)})",
            [*ids, *statuses],
        )
        return int(cursor.rowcount)

    def sweep(self, cursor: Cursor, before: Mapping[int, datetime], after: int, limit: int) -> tuple[int, int | None]:
        # An infinitely early moment is no age: a row that failed because of it must stay until somebody has looked at it.
        real = f"t.created_at >= {EARLIEST}"
        old = " OR ".join(f"(t.status = {int(status)} AND t.created_at < %s AND {real})" for status in before)
        moments = [_naive(moment) for moment in before.values()]
        # As in delete: a DELETE that searches for its rows waits for every locked one that it passes.
        looked = (
            f"SELECT id, status, created_at FROM {self._name} FORCE INDEX (PRIMARY) WHERE id > %s ORDER BY id LIMIT %s"
        )
        part = [after, LOOKED_THROUGH * limit]
        cursor.execute(f"SELECT MAX(t.id) FROM ({looked}) AS t", part)
        last = cursor.fetchone()[0]
        cursor.execute(f"SELECT t.id FROM ({looked}) AS t WHERE {old} ORDER BY t.id LIMIT %s", [*part, *moments, limit])
        ids = [row[0] for row in cursor.fetchall()]
        if not ids:
            return 0, last
        cursor.execute(f"DELETE t FROM {self._by_id} WHERE t.id IN ({_places(ids)}) AND ({old})", [*ids, *moments])
        return int(cursor.rowcount), last

    def _finished(self, statuses: Sequence[int], *, condition: str = "") -> str:
        """Rows of these statuses by ascending id. Delivered ones are at the beginning of the primary key; to reach the
        others it would have to walk through all of those."""
        hint = "FORCE INDEX (PRIMARY)" if Status.DELIVERED in statuses else self._index
        return f"{self._name} {hint} WHERE status IN ({_places(statuses)}) {condition} ORDER BY id"

    # ── the texts ────────────────────────────────────────────────────────────────────────────────────

    def _pending(self, columns: str, *, regular_only: bool = False) -> Branch:
        conditions = [f"t.status = {Status.PENDING:d} AND t.bucket = :bucket AND t.id > :after", self._is_due("t")]
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
            conditions.append(f"{self._errors('t')} = 0")
        return Branch.of(
            f"SELECT {columns} FROM {self._name} AS t {self._index} WHERE {' AND '.join(conditions)} "
            "ORDER BY t.id LIMIT :share"
        )

    @cached_property
    def _waiting(self) -> Branch:
        since, condition = "t.created_at", ""
        if self._table.has("available_at"):
            since = "GREATEST(t.created_at, COALESCE(t.available_at, t.created_at))"
            condition = f"AND (t.available_at IS NULL OR t.available_at <= {_NOW})"
        return Branch.of(
            f"SELECT {since} AS since FROM {self._name} AS t {self._index} "
            f"WHERE t.status = {Status.PENDING:d} AND t.bucket = :bucket {condition} "
            f"AND {is_within_reach('t.created_at')} ORDER BY t.id LIMIT :share"
        )

    @property
    def _index(self) -> str:
        """Names the index. Otherwise the optimizer, to get the order, may walk the primary key through all delivered rows."""
        index = self._table.status_index
        return "" if index is None else f"FORCE INDEX ({index.replace('%', '%%')})"

    @cached_property
    def _item_columns(self) -> str:
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
                self._errors("t"),
                "t.created_at",
                "t.processed_at",
                *(["t.seq"] if table.numbered else []),
            )
        )

    @property
    def _first_delayed(self) -> str:
        """A query to be joined to the due buckets: the seconds until the first delayed row's ``available_at``."""
        index = self._table.delayed_index
        if index is None:
            return ""
        return (
            f" UNION ALL (SELECT NULL, TIMESTAMPDIFF(MICROSECOND, {_NOW}, t.available_at) / 1000000 "
            f"FROM {self._name} AS t FORCE INDEX ({index.replace('%', '%%')}) "
            f"WHERE t.available_at > {_NOW} AND t.status = {Status.PENDING:d} ORDER BY t.available_at LIMIT 1)"
        )

    def _is_due(self, row: str) -> str:
        backoff = self._table.box.backoff
        parts = []
        if backoff is not None:
            seconds = (
                f"LEAST({backoff.maximal.total_seconds()}, {backoff.minimal.total_seconds()} * "
                f"POWER({backoff.multiplier}, LEAST(GREATEST({self._errors(row)}, 1) - 1, {_MAX_EXPONENT})))"
            )
            if backoff.jitter:
                seconds += f" * (1 - {backoff.jitter} * MOD(MOD({row}.id, 1000) * {JITTER_STRIDE}, 1000) / 1000)"
            parts.append(
                f"({self._errors(row)} = 0 OR {row}.processed_at IS NULL OR "
                f"{row}.processed_at <= {_NOW} - INTERVAL ROUND(1000000 * {seconds}) MICROSECOND)"
            )
        if self._table.has("available_at"):
            parts.append(f"({row}.available_at IS NULL OR {row}.available_at <= {_NOW})")
        return "(" + " AND ".join(parts or ["TRUE"]) + ")"

    def _errors(self, row: str) -> str:
        column = f"{row}.errors_count"
        return f"COALESCE({column}, 0)" if "errors_count" in self._table.nullable else column

    def _key_is_free(self) -> Iterable[str]:
        """No earlier row of the same key is failed, or pending and not due: such a row parks its key."""
        earlier = (
            f"SELECT 1 FROM {self._name} AS e WHERE {_same_key('e', 't')} AND e.bucket = t.bucket AND e.id < t.id "
            "AND e.status = "
        )
        yield f"NOT EXISTS ({earlier}{Status.FAILED:d})"
        yield f"NOT EXISTS ({earlier}{Status.PENDING:d} AND NOT {self._is_due('e')})"

    def _bucket_is_free(self, *, regular_only: bool) -> Iterable[str]:
        """No earlier pending row of the bucket waits.

        Few rows have ids up to ``after``. Of the others only as many as are asked for need reading: either one of them
        waits, and no row after it is wanted, or none does, and they are the answer.
        """
        pending = (
            f"FROM {self._name} AS e {self._index} WHERE e.status = {Status.PENDING:d} AND e.bucket = :bucket AND e.id"
        )
        waits = f"NOT {self._is_due('e')}"
        columns = "e.id, e.errors_count, e.processed_at" + (
            ", e.available_at" if self._table.has("available_at") else ""
        )
        looked_at = f"AND (e.errors_count = 0 OR {waits})" if regular_only else ""
        next_rows = f"SELECT {columns} {pending} > :after {looked_at} ORDER BY e.id LIMIT :share"
        yield f"NOT EXISTS (SELECT 1 {pending} <= :after AND {waits})"
        yield f"t.id < COALESCE((SELECT MIN(e.id) FROM ({next_rows}) AS e WHERE {waits}), {_NO_ID})"

    def _outcome(self) -> str:
        """Of delivered rows."""
        if self._table.box.retention.deletes_on_delivery:
            return f"DELETE t FROM {self._by_id} WHERE t.id IN "
        touched = f"processed_at = {_NOW}, updated_at = {_NOW}"
        return f"UPDATE {self._by_id} SET status = {Status.DELIVERED:d}, {touched} WHERE t.id IN "

    @property
    def _by_id(self) -> str:
        """Forces the primary key: the optimizer reads every row of a small table, and would wait for rows others have locked."""
        return f"{self._name} AS t FORCE INDEX (PRIMARY)"

    def _fail(self, count: int) -> str:
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
            f"t.status = f.status, t.errors_count = f.errors_count, t.processed_at = {_NOW}, t.updated_at = {_NOW}"
        )

    def _lock_names(self, buckets: Sequence[int]) -> list[str]:
        return [f"{self._lock_prefix}{bucket}" for bucket in buckets]


def _item_row(row: Row) -> Row:
    """The row with its uuid as canonical text, its key as text (it may be a number), and its moments with a zone."""
    item_id, uuid, event_name, event_key, *middle = row[:_MOMENTS]
    created_at, processed_at, *number = row[_MOMENTS:]
    created = created_at.replace(tzinfo=UTC)
    tried = None if processed_at is None else processed_at.replace(tzinfo=UTC)
    return (item_id, _canonical(uuid), event_name, str(event_key), *middle, created, tried, *number)


def _one_by_one(raw: Sequence[Row], absent: Mapping[int, str], now: datetime) -> tuple[list[Row], dict[int, str]]:
    """Decodes row by row: the readable rows, the others as far as they can be decoded, and why those failed."""
    rows: list[Row] = []
    unreadable = dict(absent)
    for row in raw:
        if row[0] not in absent:
            try:
                rows.append(_item_row(row))
                continue
            except (ValueError, TypeError, AttributeError, OverflowError) as error:
                unreadable[row[0]] = reason_of(error)
        rows.append(legible(row, now=now))
    return rows, unreadable


def _moment_of(row: Row | None) -> datetime | None:
    return None if row is None or row[0] is None else row[0].replace(tzinfo=UTC)


def _canonical(uuid: Any) -> str:
    match uuid:
        case str() if len(uuid) == 36:  # noqa: PLR2004 - the length of the canonical text
            return uuid
        case bytes() if len(uuid) == 16:  # noqa: PLR2004 - binary(16)
            return str(UUID(bytes=uuid))
        case _:
            return str(UUID(str(uuid)))


def _same_key(one: str, other: str) -> str:
    """Compares to the byte. The first comparison uses the index, whose collation may equate different keys."""
    return (
        f"{one}.event_key = {other}.event_key AND CAST({one}.event_key AS BINARY) = CAST({other}.event_key AS BINARY)"
    )


def _places(values: Sequence[Any]) -> str:
    return ", ".join(["%s"] * len(values))


def _naive(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)
