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
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.connecting.writes import refusal
from boxengine.adapters.sql.dialects.base import FIRST_GIVEN_UP, LOOKED_AT, LOOKED_THROUGH, Behind, NextRows, Row, Taken
from boxengine.adapters.sql.dialects.mysql_texts import NOW, MySqlTexts, same_key
from boxengine.adapters.sql.dialects.payloads import MAX_BATCH_BYTES, light
from boxengine.adapters.sql.dialects.unreadable import EARLIEST, is_within_reach, legible, reason_of, without_values
from boxengine.adapters.sql.shape.replayed import is_copy
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Settlement
from boxengine.ports import Count, PendingRow

_NO_BUCKET = -1
_READ_ONLY = "@@global.read_only"
_MOMENTS = 9
"""The position of the first moment in a row."""
_SAVEPOINT = "boxengine_claim"
_LOCKED = frozenset({1205, 3572})
"""Somebody else has locked a row: MariaDB says so with the number of a wait that took too long, MySQL with one of its own."""
_PATIENCE = 1
"""Seconds for which a claim waits for such rows. Those who change a few rows are done sooner."""


class MySqlStatements:
    """The statements of one box's table on MySQL or MariaDB, through PyMySQL or mysqlclient."""

    def __init__(self, table: BoxTable, *, light: int = light(MAX_BATCH_BYTES)) -> None:
        """Args:
        light: bytes up to which a payload is read with its row; a heavier one is returned as NULL.
        """
        self._table = table
        self._name = table.name.replace("%", "%%")
        self._texts = texts = MySqlTexts(table, light=light)
        self.strict_order = table.box.strict_order
        # The server's locks belong to no database, so the name must contain it, in at most 64 characters.
        self._lock_prefix = f"boxengine:{hashlib.sha256(table.location.lower().encode()).hexdigest()[:32]}:"
        columns = {"id": "t.id", "bucket": "t.bucket", "errors": texts.errors("t")}
        self._poll = texts.pending(columns)
        self._poll_regular = texts.pending(columns, regular_only=True)
        self._due = texts.pending({"bucket": "t.bucket", "seconds": "0"})
        self._ids = texts.pending({"id": "t.id"})
        self._lock_rows = (
            f"AS found STRAIGHT_JOIN {self._texts.by_id} ON t.id = found.id "
            f"WHERE t.status = {Status.PENDING:d} FOR UPDATE NOWAIT"
        )

    # ── the steps of a delivery ──────────────────────────────────────────────────────────────────────

    def poll(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        return list(
            map(PendingRow._make, self._poll.rows(cursor, buckets, share, newest=self._newest(cursor, buckets)))
        )

    def poll_regular(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        rows = self._poll_regular.rows(cursor, buckets, share, newest=self._newest(cursor, buckets))
        return list(map(PendingRow._make, rows))

    def outlook(self, cursor: Cursor, buckets: Mapping[int, int]) -> list[tuple[int | None, float]]:
        due, values = self._due.of_all(buckets or {_NO_BUCKET: 0}, 1, newest=self._newest(cursor, buckets))
        cursor.execute(f"({due}){self._texts.first_delayed}", values)
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
            newest = self._newest(cursor, buckets)
            held = {bucket: buckets[bucket] for bucket in granted}
            rows, unreadable = self._read(cursor, held, share, now, newest=newest)
        return Taken(granted, now, share, rows, unreadable=unreadable)

    def claim_plain(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        return self.claim(cursor, buckets, limit)  # a DELETE returns no rows here

    def hit_a_lock(self, error: Exception) -> bool:
        return next(iter(error.args), None) in _LOCKED

    def next_rows(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> NextRows:
        granted, _ = self._take_locks(cursor, list(buckets))
        share = max(1, limit // max(1, len(granted)))
        held = {bucket: buckets[bucket] for bucket in granted}
        rows = self.poll(cursor, held, share) if held else ()
        return NextRows(len(granted), {row.id: row.bucket for row in rows})

    def locked(self, cursor: Cursor, ids: Collection[int]) -> set[int]:
        free = set[int]()
        if ids:
            text = f"SELECT t.id FROM {self._texts.by_id} WHERE t.id IN ({_places(ids)}) FOR UPDATE SKIP LOCKED"
            cursor.execute(text, list(ids))
            free = {row_id for (row_id,) in cursor.fetchall()}
            cursor.execute("ROLLBACK")
        return set(ids) - free

    def wait_for(self, cursor: Cursor, row_id: int) -> None:
        cursor.execute("SELECT @@SESSION.innodb_lock_wait_timeout")
        (usual,) = cursor.fetchone()
        cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", (_PATIENCE,))
        try:
            cursor.execute(f"SELECT t.id FROM {self._texts.by_id} WHERE t.id = %s FOR UPDATE", (row_id,))
        except Exception as error:
            if not self.hit_a_lock(error):
                raise
        finally:
            cursor.execute("ROLLBACK")
            cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", (usual,))

    def sizes(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, int]:
        column = self._table.payload
        cursor.execute(
            f"SELECT t.id, OCTET_LENGTH(t.{column}) FROM {self._texts.by_id} "
            f"WHERE t.id IN ({_places(ids)}) AND t.{column} IS NOT NULL",
            list(ids),
        )
        return dict(cursor.fetchall())

    def payloads(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, bytes]:
        cursor.execute(
            f"SELECT t.id, t.{self._table.payload} FROM {self._texts.by_id} WHERE t.id IN ({_places(ids)})", list(ids)
        )
        return dict(cursor.fetchall())

    def bring_back(self, cursor: Cursor) -> None:
        """Does nothing: claims never delete rows as they read them."""

    def _take_locks(self, cursor: Cursor, buckets: Sequence[int]) -> tuple[list[int], datetime]:
        cursor.execute(f"SELECT {NOW}, {_READ_ONLY}" + ", GET_LOCK(%s, 0)" * len(buckets), self._lock_names(buckets))
        now, read_only, *answers = cursor.fetchone()
        if str(read_only).lower() not in ("off", "0"):
            # Rows could be locked and sent, but not recorded: they would be sent again and again.
            raise refusal(cursor.connection)
        granted = [bucket for bucket, answer in zip(buckets, answers, strict=True) if answer == 1]
        return granted, now.replace(tzinfo=UTC)

    def _read(
        self, cursor: Cursor, buckets: Mapping[int, int], share: int, now: datetime, *, newest: int | None
    ) -> tuple[list[Row], dict[int, str]]:
        found, values = self._ids.of_all(buckets, share, newest=newest)
        cursor.execute(f"SELECT {self._texts.item_columns} FROM ({found}) {self._lock_rows}", values)
        raw = cursor.fetchall()
        absent = without_values(raw, self._table.nullable) if self._table.nullable else {}
        if not absent:
            with suppress(ValueError, TypeError, AttributeError, OverflowError):
                return list(map(_item_row, raw)), {}
        return _one_by_one(raw, absent, now)

    def _newest(self, cursor: Cursor, buckets: Mapping[int, int]) -> int | None:
        """See ``Branch.of_all``."""
        if not isinstance(buckets, Behind):
            return None
        cursor.execute(f"SELECT MAX(id) FROM {self._name}", ())
        return int(cursor.fetchone()[0] or 0)

    def waiting_keys(self, cursor: Cursor, items: Sequence[Item], upto: Mapping[int, int]) -> set[str]:
        due = f"AND {self._texts.is_due('t')}" if self._table.box.strict_order is StrictOrder.NONE else ""
        keys = defaultdict[int, set[str]](set)
        for item in items:
            if item.bucket in upto:
                keys[item.bucket].add(item.event_key)
        branches, values = list[str](), list[Any]()
        for bucket, wanted in sorted(keys.items()):
            branches.append(
                # Without its bytes, a UNION would keep one of several keys that the collation takes for the same.
                f"SELECT t.event_key, CAST(t.event_key AS BINARY) FROM {self._name} AS t {self._texts.index} "
                f"WHERE t.status = {Status.PENDING:d} "
                f"AND t.bucket = %s AND t.id <= %s AND t.event_key IN ({_places(wanted)}) {due}"
            )
            values += (bucket, upto[bucket], *sorted(wanted))
        if branches:
            cursor.execute(" UNION ".join(branches), values)
        return {str(key) for key, _ in cursor.fetchall()} if branches else set()

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> dict[int, int]:
        # The stored keys are compared with each other, so no conversion between character sets can change them.
        same_event = "AND t.event_name <=> i.event_name" if self._table.has("event_name") else ""
        # A copy that a replay has made stands behind newer items and holds an older state.
        original = f"AND NOT {is_copy(postgresql=False)}" if self._table.has("options") else ""
        cursor.execute(
            f"SELECT i.id, (SELECT t.id FROM {self._name} AS t WHERE {same_key('t', 'i')} AND t.id > i.id "
            f"AND t.status = {Status.DELIVERED:d} {same_event} {original} LIMIT 1) AS later "
            f"FROM {self._name} AS i WHERE i.id IN ({_places(items)}) HAVING later IS NOT NULL",
            [item.id for item in items],
        )
        return dict(cursor.fetchall())

    def record(self, cursor: Cursor, settlement: Settlement) -> int:
        written = 0
        if settlement.delivered:
            cursor.execute(*self._texts.deliver(settlement.delivered))
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
            cursor.execute(self._texts.fail(len(others)), values)
            written += cursor.rowcount
        return written

    def finish(self, cursor: Cursor, settlement: Settlement) -> int:
        written = self.record(cursor, settlement)
        if written == len(settlement):
            cursor.connection.commit()
        else:
            cursor.connection.rollback()
        return written

    def seal(self, cursor: Cursor, buckets: Collection[int] | None = None) -> None:
        """Does nothing: the outcomes are all there is to write."""

    def forget(self) -> None:
        """Does nothing: only the table knows of outcomes."""

    def hold_again(self, cursor: Cursor, buckets: Sequence[int]) -> list[int]:  # noqa: ARG002 - see base
        return list(buckets)  # these locks are the connection's and outlive its transactions

    def hold_pending(self, cursor: Cursor, ids: Sequence[int]) -> list[int]:
        cursor.execute(
            f"SELECT t.id FROM {self._texts.by_id} WHERE t.id IN ({_places(ids)}) AND t.status = {Status.PENDING:d} "
            "ORDER BY t.id FOR UPDATE",
            list(ids),
        )
        return [row[0] for row in cursor.fetchall()]

    def errors_count(self, cursor: Cursor, item_id: int) -> int:
        cursor.execute(f"SELECT errors_count FROM {self._name} WHERE id = %s", (item_id,))
        return int(cursor.fetchone()[0] or 0)

    def check_at_once(self, cursor: Cursor) -> None:
        """Does nothing: these databases defer no constraint."""

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

    def pending_in_log(self, cursor: Cursor, most: int) -> Count:  # noqa: ARG002 - a log's statements use them
        """Zero: there is no log."""
        return Count(0)

    def unread_since(self, cursor: Cursor) -> datetime | None:  # noqa: ARG002 - as above
        """None, as above."""
        return None

    def oldest_pending(self, cursor: Cursor, buckets: Mapping[int, int]) -> datetime | None:
        found, values = self._texts.waiting.of_all(buckets, LOOKED_AT)
        cursor.execute(f"SELECT MIN(found.since) FROM ({found}) AS found", values)
        return _moment_of(cursor.fetchone())

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        finished = self._finished(statuses, condition=f"AND {is_within_reach('created_at')}")
        since, first = self._texts.kept_since(statuses), 1 if set(statuses) == {Status.DELIVERED} else FIRST_GIVEN_UP
        cursor.execute(
            f"SELECT MIN(first.since) FROM (SELECT {since} AS since FROM {finished} LIMIT {first}) AS first "
            f"WHERE {is_within_reach('first.since')}",
            list(statuses),
        )
        return _moment_of(cursor.fetchone())

    def delete(
        self, cursor: Cursor, statuses: Sequence[int], created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        if not statuses:
            return 0
        since = self._texts.kept_since(statuses)
        # A DELETE that searches for its rows waits for every locked one that it passes, those of open claims too.
        cursor.execute(
            f"SELECT first.id FROM (SELECT id, {since} AS since FROM {self._finished(statuses)} LIMIT %s) AS first "
            "WHERE first.since >= %s AND first.since < %s ORDER BY first.id LIMIT %s",
            [*statuses, LOOKED_THROUGH * limit, _naive(created_from), _naive(created_before), limit],
        )
        ids = [row[0] for row in cursor.fetchall()]
        if not ids:
            return 0
        cursor.execute(
            f"DELETE t FROM {self._texts.by_id} WHERE t.id IN ({_places(ids)}) AND t.status IN ({_places(statuses)})",
            [*ids, *statuses],
        )
        return int(cursor.rowcount)

    def sweep(self, cursor: Cursor, before: Mapping[int, datetime], after: int, limit: int) -> tuple[int, int | None]:
        # An infinitely early moment is no age: a row that failed because of it must stay until somebody has looked at it.
        real = f"t.created_at >= {EARLIEST}"
        old = " OR ".join(
            f"(t.status = {int(status)} AND {self._texts.kept_since([status], 't.')} < %s AND {real})"
            for status in before
        )
        moments = [_naive(moment) for moment in before.values()]
        # As in delete: a DELETE that searches for its rows waits for every locked one that it passes.
        looked = (
            f"SELECT id, status, created_at, processed_at FROM {self._name} FORCE INDEX (PRIMARY) WHERE id > %s "
            "ORDER BY id LIMIT %s"
        )
        part = [after, LOOKED_THROUGH * limit]
        cursor.execute(f"SELECT MAX(t.id) FROM ({looked}) AS t", part)
        last = cursor.fetchone()[0]
        cursor.execute(f"SELECT t.id FROM ({looked}) AS t WHERE {old} ORDER BY t.id LIMIT %s", [*part, *moments, limit])
        ids = [row[0] for row in cursor.fetchall()]
        if not ids:
            return 0, last
        cursor.execute(
            f"DELETE t FROM {self._texts.by_id} WHERE t.id IN ({_places(ids)}) AND ({old})", [*ids, *moments]
        )
        return int(cursor.rowcount), last

    def _finished(self, statuses: Sequence[int], *, condition: str = "") -> str:
        """Rows of these statuses by ascending id. Delivered ones are at the beginning of the primary key; to reach the
        others it would have to walk through all of those."""
        hint = "FORCE INDEX (PRIMARY)" if Status.DELIVERED in statuses else self._texts.index
        return f"{self._name} {hint} WHERE status IN ({_places(statuses)}) {condition} ORDER BY id"

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


def _places(values: Collection[Any]) -> str:
    return ", ".join(["%s"] * len(values))


def _naive(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)
