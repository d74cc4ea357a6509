"""MySQL 8 and MariaDB: user-level locks for buckets, an index that begins with the status, one SELECT per bucket.

MariaDB knows no ``LATERAL``, so the buckets' rows come from a ``UNION ALL`` of one ordered and limited ``SELECT`` each.
They are found without locks, and then locked by primary key: a locking scan of an index range also locks the entry
behind its end, which belongs to another bucket and so to another worker. For the same reason whatever is written names
ids, and the primary key's index. User-level locks (``GET_LOCK``) belong to the connection, not to the transaction:
the store frees them after the commit, and the server when the connection goes.
Moments are stored without a zone, in UTC, whatever the session's zone is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, assert_never
from uuid import UUID

from boxengine.adapters.sql.dialects.base import LOOKED_AT, LOOKED_THROUGH, Cursor, Row, Taken
from boxengine.adapters.sql.dialects.branch import Branch
from boxengine.adapters.sql.tables import BoxTable
from boxengine.domain.box import JITTER_STRIDE, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Settlement
from boxengine.ports import PendingRow

_MAX_EXPONENT = 64
"""Past it every pause has long reached its maximum, and the power still fits a double."""
_NO_ID = 2**63 - 1
"""Beyond every id."""
_MAX_LOG_BYTES = 65_535
"""What a TEXT column takes."""
_NO_BUCKET = -1
_NOW = "UTC_TIMESTAMP(6)"
_MOMENTS = 9
"""The first of a row's moments."""
_SAVEPOINT = "boxengine_claim"


class MySqlStatements:
    """The statements of one box's table on MySQL or MariaDB, through PyMySQL or mysqlclient."""

    def __init__(self, table: BoxTable) -> None:
        self._table = table
        self._name = table.name.replace("%", "%%")
        # The server's locks are of no database: the name must tell it, in at most 64 characters.
        self._lock_prefix = f"boxengine:{hashlib.sha256(table.location.lower().encode()).hexdigest()[:32]}:"
        self._poll = self._pending("t.id, t.bucket, t.errors_count")
        self._poll_regular = self._pending("t.id, t.bucket, t.errors_count", regular_only=True)
        self._due = self._pending("t.bucket, 0")
        self._ids = self._pending("t.id")
        self._lock_rows = (
            f"AS found STRAIGHT_JOIN {self._name} AS t ON t.id = found.id "
            f"WHERE t.status = {Status.PENDING:d} FOR UPDATE"
        )
        self._deliver, self._discard = self._outcomes()

    # ── the steps of a delivery ──────────────────────────────────────────────────────────────────────

    def poll(self, cursor: Cursor, buckets: Sequence[int], share: int, *, regular_only: bool) -> list[PendingRow]:
        branch = self._poll_regular if regular_only else self._poll
        return list(map(PendingRow._make, branch.rows(cursor, dict.fromkeys(buckets, 0), share)))

    def outlook(self, cursor: Cursor, buckets: Sequence[int]) -> list[tuple[int | None, float]]:
        due, values = self._due.of_all(dict.fromkeys(buckets or [_NO_BUCKET], 0), 1)
        cursor.execute(f"({due}){self._first_delayed}", values)
        return [(bucket, float(seconds)) for bucket, seconds in cursor.fetchall()]

    def claim(
        self,
        cursor: Cursor,
        buckets: Mapping[int, int],
        limit: int,
        *,
        only_outcomes: bool = False,  # noqa: ARG002 - a DELETE returns no rows here
    ) -> Taken:
        granted, now = self._take_locks(cursor, list(buckets))
        share = max(1, limit // max(1, len(granted)))
        rows = self._read(cursor, {bucket: buckets[bucket] for bucket in granted}, share) if granted else []
        return Taken(granted, now, share, rows)

    def bring_back(self, cursor: Cursor) -> None:
        """Nothing: claims delete nothing ahead."""

    def _take_locks(self, cursor: Cursor, buckets: Sequence[int]) -> tuple[list[int], datetime]:
        cursor.execute(f"SELECT {_NOW}" + ", GET_LOCK(%s, 0)" * len(buckets), self._lock_names(buckets))
        now, *answers = cursor.fetchone()
        granted = [bucket for bucket, answer in zip(buckets, answers, strict=True) if answer == 1]
        return granted, now.replace(tzinfo=UTC)

    def _read(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[Row]:
        found, values = self._ids.of_all(buckets, share)
        cursor.execute(f"SELECT {self._item_columns} FROM ({found}) {self._lock_rows}", values)
        return list(map(_item_row, cursor.fetchall()))

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> list[int]:
        # The keys are compared where they are stored, so that no character set comes between them.
        same_event = "AND t.event_name <=> i.event_name" if self._table.has("event_name") else ""
        cursor.execute(
            f"SELECT i.id FROM {self._name} AS i WHERE i.id IN ({_places(items)}) AND EXISTS ("
            f"SELECT 1 FROM {self._name} AS t WHERE {_same_key('t', 'i')} AND t.id > i.id "
            f"AND t.status = {Status.DELIVERED:d} {same_event})",
            [item.id for item in items],
        )
        return [row[0] for row in cursor.fetchall()]

    def record(self, cursor: Cursor, settlement: Settlement) -> None:
        if settlement.delivered:
            cursor.execute(self._deliver + f"({_places(settlement.delivered)})", settlement.delivered)
        if settlement.discarded:
            cursor.execute(self._discard + f"({_places(settlement.discarded)})", settlement.discarded)
        if settlement.failed:
            values: list[Any] = []
            for attempt in settlement.failed:
                values += (attempt.id, int(attempt.status), attempt.errors_count, _clipped(attempt.error_log))
            cursor.execute(self._fail(len(settlement.failed)), values)

    def finish(self, cursor: Cursor, settlement: Settlement) -> None:
        self.record(cursor, settlement)
        cursor.connection.commit()

    def unlock(self, cursor: Cursor, buckets: Sequence[int]) -> None:
        cursor.execute("DO " + ", ".join(["RELEASE_LOCK(%s)"] * len(buckets)), self._lock_names(buckets))

    def anchor(self, cursor: Cursor) -> None:
        """Sets a savepoint: a deadlock or DDL in a handler ends the whole transaction, and the next statement begins another."""
        cursor.execute(f"SAVEPOINT {_SAVEPOINT}")

    def verify(self, cursor: Cursor) -> None:
        cursor.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")

    # ── finished rows ────────────────────────────────────────────────────────────────────────────────

    def oldest_pending(self, cursor: Cursor) -> datetime | None:
        found, values = self._waiting.of_all(dict.fromkeys(self._table.box.buckets, 0), LOOKED_AT)
        cursor.execute(f"SELECT MIN(found.since) FROM ({found}) AS found", values)
        return _moment_of(cursor.fetchone())

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        cursor.execute(f"SELECT created_at FROM {self._finished(statuses)} LIMIT 1", list(statuses))
        return _moment_of(cursor.fetchone())

    def delete(
        self, cursor: Cursor, statuses: Sequence[int], created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        if not statuses:
            return 0
        # A DELETE that looks for its rows waits for every locked one on its way, those of open claims too.
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

    def _finished(self, statuses: Sequence[int]) -> str:
        """Rows of these statuses from the first id on: delivered ones stand at the beginning of the primary key, and for the
        others it would lead through all of them."""
        hint = "FORCE INDEX (PRIMARY)" if Status.DELIVERED in statuses else self._index
        return f"{self._name} {hint} WHERE status IN ({_places(statuses)}) ORDER BY id"

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
            conditions.append("t.errors_count = 0")
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
            f"WHERE t.status = {Status.PENDING:d} AND t.bucket = :bucket {condition} ORDER BY t.id LIMIT :share"
        )

    @property
    def _index(self) -> str:
        """Without it, for the order's sake, the optimizer may walk the primary key through all delivered rows."""
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
                f"t.{table.payload}",
                "t.errors_count",
                "t.created_at",
                "t.processed_at",
                *(["t.seq"] if table.numbered else []),
            )
        )

    @property
    def _first_delayed(self) -> str:
        """To be joined to the due buckets: the seconds until the first row that waits for its ``available_at`` has it."""
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
                f"POWER({backoff.multiplier}, LEAST(GREATEST({row}.errors_count, 1) - 1, {_MAX_EXPONENT})))"
            )
            if backoff.jitter:
                seconds += f" * (1 - {backoff.jitter} * MOD(MOD({row}.id, 1000) * {JITTER_STRIDE}, 1000) / 1000)"
            parts.append(
                f"({row}.errors_count = 0 OR {row}.processed_at IS NULL OR "
                f"{row}.processed_at + INTERVAL ROUND(1000000 * {seconds}) MICROSECOND <= {_NOW})"
            )
        if self._table.has("available_at"):
            parts.append(f"({row}.available_at IS NULL OR {row}.available_at <= {_NOW})")
        return "(" + " AND ".join(parts or ["TRUE"]) + ")"

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

        Among those up to ``after`` there are few, and of the others no more than are asked for need looking at: either
        one of them waits, and nothing after it is wanted, or none does, and they are the answer.
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

    def _outcomes(self) -> tuple[str, str]:
        touched = f"processed_at = {_NOW}, updated_at = {_NOW}"
        deliver = (
            f"DELETE t FROM {self._by_id} WHERE t.id IN "
            if self._table.box.retention.deletes_on_delivery
            else f"UPDATE {self._by_id} SET status = {Status.DELIVERED:d}, {touched} WHERE t.id IN "
        )
        return deliver, f"UPDATE {self._by_id} SET status = {Status.DISCARDED:d}, {touched} WHERE t.id IN "

    @property
    def _by_id(self) -> str:
        """Of a small table the optimizer would rather read every row, and wait for those that others have locked."""
        return f"{self._name} AS t FORCE INDEX (PRIMARY)"

    def _fail(self, count: int) -> str:
        rows = [
            "SELECT %s AS id, %s AS status, %s AS errors_count, %s AS error_log",
            *["SELECT %s, %s, %s, %s"] * (count - 1),
        ]
        log = "t.error_log = f.error_log, " if self._table.has("error_log") else ""
        # STRAIGHT_JOIN: from the attempts to their rows by primary key, never by way of other rows.
        return (
            f"UPDATE ({' UNION ALL '.join(rows)}) AS f STRAIGHT_JOIN {self._name} AS t ON t.id = f.id SET {log}"
            f"t.status = f.status, t.errors_count = f.errors_count, t.processed_at = {_NOW}, t.updated_at = {_NOW}"
        )

    def _lock_names(self, buckets: Sequence[int]) -> list[str]:
        return [f"{self._lock_prefix}{bucket}" for bucket in buckets]


def _item_row(row: Row) -> Row:
    """With the uuid as its canonical text, the key as text (it may be a number), and moments with their zone."""
    item_id, uuid, event_name, event_key, *middle = row[:_MOMENTS]
    created_at, processed_at, *number = row[_MOMENTS:]
    created = created_at.replace(tzinfo=UTC)
    tried = None if processed_at is None else processed_at.replace(tzinfo=UTC)
    return (item_id, _canonical(uuid), event_name, str(event_key), *middle, created, tried, *number)


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
    """Equal to the byte: the first comparison uses the index, whose collation may take different keys for one."""
    return (
        f"{one}.event_key = {other}.event_key AND CAST({one}.event_key AS BINARY) = CAST({other}.event_key AS BINARY)"
    )


def _places(values: Sequence[Any]) -> str:
    return ", ".join(["%s"] * len(values))


def _clipped(log: str) -> str:
    return log.encode(errors="replace")[:_MAX_LOG_BYTES].decode(errors="ignore")


def _naive(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)
