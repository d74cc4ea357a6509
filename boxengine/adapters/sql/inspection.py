"""``Inspector``: rows for people, by index where one leads to them, else through a window of ids.

A window is a run of neighbouring ids, taken from the index that serves the statuses asked for: pending rows bucket by
bucket, failed and discarded ones by the index that holds nothing else, all others along the primary key. Whatever else
is asked for is then looked for among these ids alone, so that no statement reads more than a window of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DataError

from boxengine.adapters.sql.errors import translated
from boxengine.adapters.sql.item_rows import ItemRows
from boxengine.adapters.sql.items import item_row
from boxengine.adapters.sql.store import SqlStore
from boxengine.adapters.sql.tables import BoxTable
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Status
from boxengine.ports import Count, ItemFilter, ItemRow, Precision
from boxengine.ports.people.inspection import Found, TableState, Towards

WINDOW = 10_000
"""Ids among which a look searches."""
PAGE = 50
"""Rows of which a window is at least wide enough to hold them."""
UNTIDY = timedelta(minutes=10)
"""By how much the order of ids may differ from that of ``created_at``."""
_TROUBLED_PER_BOX = 4_000
"""Pending rows that are looked at for failed attempts."""
_BEYOND = 2**63 - 1
_OF_ALL = "SELECT id, 0 AS place FROM {table} WHERE id > :low AND id < :high ORDER BY id {way} LIMIT :share"
_GIVEN_UP = frozenset({Status.FAILED, Status.DISCARDED})


class SqlInspector:
    """``Inspector`` over the database of a ``SqlStore``."""

    def __init__(self, store: SqlStore, *, window: int = WINDOW) -> None:
        self._store = store
        self._window = window

    def find(self, box: Box, which: ItemFilter, *, start: int | None, towards: Towards, limit: int) -> Found:
        with self._look(box) as look:
            ids, more = look.window(which, start, towards, self._window, limit)
            rows = look.rows(which, ids, towards, limit)
        if len(rows) == limit and (more or rows[-1].id != ids[-1]):
            return Found(_newest_first(rows, towards), rows[-1].id)
        return Found(_newest_first(rows, towards), ids[-1] if more else None)

    def count(self, box: Box, which: ItemFilter, *, limit: int) -> Count:
        with self._look(box) as look:
            if _is_of_statuses(which) and not _asks_for_more(which) and not which.ids:
                return _limited(look.of_statuses(which, limit + 1), limit)
            ids, more = look.window(which, None, Towards.OLDER, self._window, PAGE)
            number = look.count(which, ids)
        if number > limit:
            return Count(limit, Precision.AT_LEAST)
        return Count(number, Precision.AT_LEAST if more else Precision.EXACT)

    def troubled(self, box: Box, *, limit: int) -> list[ItemRow]:
        failed = ItemFilter(statuses=frozenset({Status.FAILED}))
        with self._look(box) as look:
            ids, _ = look.window(failed, None, Towards.OLDER, limit, limit)
            rows = look.rows(failed, ids, Towards.OLDER, limit)
            share = max(20, _TROUBLED_PER_BOX // box.bucket_size)
            waiting = look.tried(share)
            return [*rows, *look.rows(ItemFilter(), waiting, Towards.NEWER, limit)]

    def holding_back(self, box: Box, row: ItemRow) -> ItemRow | None:
        if box.strict_order is StrictOrder.NONE:
            return None
        with self._look(box) as look:
            found = look.first_troubled_before(row)
            rows = look.rows(ItemFilter(), [found], Towards.OLDER, 1) if found is not None else []
        return rows[0] if rows else None

    def ahead(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        with self._look(box) as look:
            return _limited(look.pending_before(row, limit + 1), limit)

    def followers(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        with self._look(box) as look:
            number, looked_at = look.pending_after(row, limit)
        return Count(number, Precision.AT_LEAST if looked_at == limit else Precision.EXACT)

    def neighbours(self, box: Box, row: ItemRow, *, limit: int) -> tuple[list[ItemRow], list[ItemRow]]:
        which = ItemFilter(event_key=row.event_key)
        sides = []
        with self._look(box) as look:
            for towards in (Towards.OLDER, Towards.NEWER):
                ids, _ = look.window(which, row.id, towards, self._window // 4, limit)
                sides.append(_newest_first(look.rows(which, ids, towards, limit), towards))
        return sides[0], sides[1]

    def table(self, box: Box) -> TableState:
        with self._look(box) as look:
            return look.state()

    @contextmanager
    def _look(self, box: Box) -> Iterator[_Look]:
        found = self._store.table(box)
        with translated(self._store.engine), self._store.engine.connect() as connection:
            yield _Look(found, connection)


class _Look:
    """The statements of one question."""

    def __init__(self, found: BoxTable, connection: Connection) -> None:
        self._found = found
        self._box = found.box
        self._connection = connection
        self._postgresql = connection.dialect.name == "postgresql"
        self._rows = ItemRows(found, connection)

    # ── windows ──────────────────────────────────────────────────────────────────────────────────────

    def window(
        self, which: ItemFilter, start: int | None, towards: Towards, size: int, limit: int
    ) -> tuple[list[int], bool]:
        """The ids to look at, the nearest first, and whether there may be more beyond them."""
        if which.ids:
            ids = [each for each in which.ids if start is None or _lies(each, start, towards)]
            return sorted(ids, reverse=towards is Towards.OLDER), False
        by_status = _is_of_statuses(which)
        by_key = which.event_key is not None and self._found.key_index
        # What an index alone finds needs no wider look.
        size = limit + 1 if by_key or (by_status and not _asks_for_more(which)) else max(size, limit + 1)
        low, high = self._span(which)
        low, high = (low, min(high, start or _BEYOND)) if towards is Towards.OLDER else (max(low, start or 0), high)
        branches, share = [self._of_key() if by_key else _OF_ALL], size
        if by_status and not by_key:
            branches = self._of_statuses(which)
            # Of each bucket so many that all together fill the window.
            share = max(limit + 1, size // self._box.bucket_size)
        values = {"low": low, "high": high, "share": share} | ({"key": which.event_key} if by_key else {})
        return self._merged(branches, values, towards)

    def of_statuses(self, which: ItemFilter, limit: int) -> int:
        """How many rows have these statuses, which indexes serve."""
        _, high = self._span(which)
        values = {"low": 0, "high": high, "share": limit}
        parts = self._texts(self._of_statuses(which), Towards.OLDER)
        union = " UNION ALL ".join(f"(SELECT b.id FROM ({part}) AS b)" for part in parts)
        return self._counted(f"SELECT u.id FROM ({union}) AS u LIMIT :share", values)

    def _merged(self, branches: Sequence[str], values: dict[str, Any], towards: Towards) -> tuple[list[int], bool]:
        """The ids of all branches, as far as none of them was cut off."""
        parts = self._texts(branches, towards)
        query = " UNION ALL ".join(f"(SELECT b.id, b.place FROM ({part}) AS b)" for part in parts)
        by_place: dict[Any, list[int]] = {}
        for item_id, place in self._connection.execute(text(query), values):
            by_place.setdefault(place, []).append(int(item_id))
        sign = -1 if towards is Towards.OLDER else 1
        # Beyond the farthest id of a branch that was cut off there may be others of it, nearer than those at hand.
        cut = [max(sign * each for each in ids) for ids in by_place.values() if len(ids) == values["share"]]
        horizon = min(cut, default=_BEYOND)
        ids = sorted(sign * each for found in by_place.values() for each in found)
        return [sign * each for each in ids if each <= horizon], bool(cut)

    def _texts(self, branches: Sequence[str], towards: Towards) -> list[str]:
        way = "DESC" if towards is Towards.OLDER else "ASC"
        return [branch.format(table=self._name, way=way, number=number) for number, branch in enumerate(branches)]

    def _of_statuses(self, which: ItemFilter) -> list[str]:
        return [branch for status in sorted(which.statuses) for branch in self._of_status(Status(status))]

    def _of_key(self) -> str:
        stored = "event_key::text" if self._found.numeric_keys and self._postgresql else "event_key"
        return (
            f"SELECT id, 0 AS place FROM {{table}} WHERE {stored} = :key AND id > :low AND id < :high "
            "ORDER BY id {way} LIMIT :share"
        )

    def _of_status(self, status: Status) -> list[str]:
        """Rows of one status, each branch in the order of an index."""
        where = f"FROM {{table}} AS t WHERE t.status = {status:d} AND t.id > :low AND t.id < :high"
        if self._postgresql and status in _GIVEN_UP:
            return [f"SELECT t.id, -{status:d} AS place {where} ORDER BY t.status {{way}}, t.id {{way}} LIMIT :share"]
        if self._postgresql:
            buckets = ", ".join(map(str, self._box.buckets))
            of_bucket = (
                f"SELECT t.id {where} AND t.bucket = held.bucket ORDER BY t.bucket {{way}}, t.id {{way}} LIMIT :share"
            )
            held = f"unnest(ARRAY[{buckets}]) AS held(bucket)"
            return [f"SELECT i.id, held.bucket AS place FROM {held} CROSS JOIN LATERAL ({of_bucket}) AS i"]
        return [
            f"SELECT t.id, {{number}} AS place FROM {{table}} AS t {self._hint} WHERE t.status = {status:d} "
            f"AND t.bucket = {bucket} AND t.id > :low AND t.id < :high ORDER BY t.id {{way}} LIMIT :share"
            for bucket in self._box.buckets
        ]

    @property
    def _hint(self) -> str:
        index = self._found.status_index
        return "" if index is None else f"FORCE INDEX ({_literal(index)})"

    def _span(self, which: ItemFilter) -> tuple[int, int]:
        """Ids between which rows of these moments lie, both ends outside."""
        low, high = 0, _BEYOND if which.up_to is None else which.up_to + 1
        if which.created_from is not None:
            low = max(low, self._first_since(which.created_from - UNTIDY) - 1)
        if which.created_before is not None:
            high = min(high, self._first_since(which.created_before + UNTIDY))
        return low, high

    def _first_since(self, moment: datetime) -> int:
        """The id from which on rows are as young, found by halving."""
        name = self._found.in_text
        first, last = self._connection.execute(text(f"SELECT min(id), max(id) FROM {name}")).one()
        if first is None:
            return 0
        low, high = int(first), int(last) + 1
        probe = text(f"SELECT id, created_at FROM {name} WHERE id >= :id ORDER BY id LIMIT 1")
        while low < high:
            middle = (low + high) // 2
            row = self._connection.execute(probe, {"id": middle}).one_or_none()
            if row is None or _utc(row[1]) >= moment:
                high = middle
            else:
                low = int(row[0]) + 1
        return low

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────

    def rows(self, which: ItemFilter, ids: Sequence[int], towards: Towards, limit: int) -> list[ItemRow]:
        """Those of the ids that are meant, the nearest first."""
        if not ids:
            return []
        newest_first = towards is Towards.OLDER
        try:
            found = self._rows.among(which, ids, newest_first=newest_first, limit=limit)
        except (DataError, ValueError):
            # A value that the driver cannot read is no reason not to show the row.
            found = self._rows.among(which, ids, newest_first=newest_first, limit=limit, as_text=True)
        return [item_row(row) for row in found]

    def count(self, which: ItemFilter, ids: Sequence[int]) -> int:
        return self._rows.count_among(which, ids) if ids else 0

    def tried(self, share: int) -> list[int]:
        """Pending rows with failed attempts among the first of each bucket."""
        first = "AND t.id > 0 ORDER BY t.bucket, t.id LIMIT :share"
        if self._postgresql:
            buckets = ", ".join(map(str, self._box.buckets))
            of_bucket = (
                f"SELECT t.id, t.errors_count FROM {self._name} AS t WHERE t.status = 0 AND t.bucket = held.bucket"
            )
            union = f"SELECT i.* FROM unnest(ARRAY[{buckets}]) AS held(bucket) CROSS JOIN LATERAL ({of_bucket} {first}) AS i"
        else:
            union = " UNION ALL ".join(
                f"(SELECT t.id, t.errors_count FROM {self._name} AS t {self._hint} "
                f"WHERE t.status = 0 AND t.bucket = {bucket} {first})"
                for bucket in self._box.buckets
            )
        query = f"SELECT id FROM ({union}) AS w WHERE errors_count > 0 ORDER BY id LIMIT :most"
        return [int(row[0]) for row in self._connection.execute(text(query), {"share": share, "most": 1000})]

    def first_troubled_before(self, row: ItemRow) -> int | None:
        delayed = " OR e.available_at IS NOT NULL" if self._found.has("available_at") else ""
        of_bucket = "e.bucket = :bucket AND e.id < :id"
        if self._box.strict_order is StrictOrder.BUCKET:
            order = "ORDER BY e.bucket, e.id"
            where = [f"{of_bucket} AND e.status = 0 AND (e.errors_count > 0{delayed}) {order}"]
        elif self._postgresql:
            troubled = f"(e.status = 1 OR (e.status = 0 AND (e.errors_count > 0{delayed})))"
            where = [f"{of_bucket} AND e.event_key = :key AND {troubled} ORDER BY e.bucket, e.event_key, e.id"]
        else:
            key = "e.event_key = :key"
            where = [
                f"{of_bucket} AND {key} AND e.status = 1 ORDER BY e.id",
                f"{of_bucket} AND {key} AND e.status = 0 AND (e.errors_count > 0{delayed}) ORDER BY e.id",
            ]
        values = {"bucket": row.bucket, "id": row.id, "key": row.event_key}
        if self._box.strict_order is StrictOrder.BUCKET:
            values.pop("key")
        found = [
            self._connection.execute(text(f"SELECT e.id FROM {self._name} AS e WHERE {each} LIMIT 1"), values).scalar()
            for each in where
        ]
        return min((int(each) for each in found if each is not None), default=None)

    def pending_before(self, row: ItemRow, limit: int) -> int:
        return self._counted(
            f"SELECT t.id FROM {self._name} AS t {self._mysql_hint} WHERE t.status = 0 AND t.bucket = :bucket AND t.id < :id "
            "ORDER BY t.bucket, t.id LIMIT :limit",
            {"bucket": row.bucket, "id": row.id, "limit": limit},
        )

    def pending_after(self, row: ItemRow, limit: int) -> tuple[int, int]:
        """How many of the next pending rows of the bucket wait for this one, and how many were looked at."""
        window = (
            f"SELECT t.id, t.event_key FROM {self._name} AS t {self._mysql_hint} "
            "WHERE t.status = 0 AND t.bucket = :bucket AND t.id > :id ORDER BY t.bucket, t.id LIMIT :limit"
        )
        values: dict[str, Any] = {"bucket": row.bucket, "id": row.id, "limit": limit}
        same = "1"
        if self._box.strict_order is not StrictOrder.BUCKET:
            stored = "w.event_key::text" if self._found.numeric_keys and self._postgresql else "w.event_key"
            same, values["key"] = f"CASE WHEN {stored} = :key THEN 1 ELSE 0 END", row.event_key
        query = f"SELECT coalesce(sum({same}), 0), count(*) FROM ({window}) AS w"
        number, looked_at = self._connection.execute(text(query), values).one()
        return int(number), int(looked_at)

    def _counted(self, rows: str, values: dict[str, Any]) -> int:
        return int(self._connection.execute(text(f"SELECT count(*) FROM ({rows}) AS w"), values).scalar_one())

    @property
    def _mysql_hint(self) -> str:
        return "" if self._postgresql else self._hint

    @property
    def _name(self) -> str:
        return self._found.in_text

    # ── statistics ───────────────────────────────────────────────────────────────────────────────────

    def state(self) -> TableState:
        if self._postgresql:
            query = (
                "SELECT pg_total_relation_size(c.oid), s.n_dead_tup, s.n_live_tup, "
                "greatest(s.last_vacuum, s.last_autovacuum) FROM pg_class AS c "
                "LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid WHERE c.oid = to_regclass(:name)"
            )
            row = self._connection.execute(text(query), {"name": self._found.name}).one_or_none()
            size, dead, live, vacuumed = row if row is not None else (None, None, None, None)
            return TableState(
                bytes=size, dead_rows=dead, live_rows=live, vacuumed_at=None if vacuumed is None else _utc(vacuumed)
            )
        schema, _, name = self._found.location.rpartition(".")
        query = (
            "SELECT data_length + index_length, table_rows FROM information_schema.tables "
            "WHERE table_schema = :schema AND table_name = :name"
        )
        row = self._connection.execute(text(query), {"schema": schema, "name": name}).one_or_none()
        size, live = row if row is not None else (None, None)
        return TableState(
            bytes=None if size is None else int(size),
            dead_rows=None,
            live_rows=None if live is None else int(live),
            vacuumed_at=None,
        )


def _is_of_statuses(which: ItemFilter) -> bool:
    """Whether all of its statuses have an index of their own."""
    return bool(which.statuses) and Status.DELIVERED not in which.statuses


def _asks_for_more(which: ItemFilter) -> bool:
    """Whether it says more than statuses and ids."""
    return (
        which.tried
        or any(value is not None for value in (which.event_key, which.uuid, which.event_name, which.error))
        or which.created_from is not None
        or which.created_before is not None
    )


def _lies(item_id: int, start: int, towards: Towards) -> bool:
    return item_id < start if towards is Towards.OLDER else item_id > start


def _newest_first(rows: list[ItemRow], towards: Towards) -> list[ItemRow]:
    return rows if towards is Towards.OLDER else rows[::-1]


def _limited(number: int, limit: int) -> Count:
    return Count(limit, Precision.AT_LEAST) if number > limit else Count(number)


def _literal(name: str) -> str:
    """A quoted name in SQLAlchemy's ``text``, to which a colon begins a parameter, and in a format."""
    return name.replace(":", "\\:").replace("{", "{{").replace("}", "}}")


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
