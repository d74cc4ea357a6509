"""``Inspector``: finds rows for people, by index where there is one, otherwise through windows of ids (see ``windows``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DataError, DBAPIError, NotSupportedError

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.connecting.limiting import SHORT, shortly, took_too_long
from boxengine.adapters.sql.connecting.reading import reading
from boxengine.adapters.sql.delivering.fronts import HELD, behind_front, held
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.item_rows import ItemRows
from boxengine.adapters.sql.looking.items import item_row
from boxengine.adapters.sql.looking.moments import Probes, span_of
from boxengine.adapters.sql.looking.recent import Recent
from boxengine.adapters.sql.looking.windows import Span, Windows, asks_for_more, is_by_index
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item_id import ItemId
from boxengine.ports import Count, ItemFilter, ItemRow, Precision
from boxengine.ports.people.inspection import Found, TableState, Towards

WINDOW = 2_500
"""Rows of a search's largest window."""
UNTIDY = 5_000
"""A search by time also finds a row whose id is up to this far from others of its time."""
PAGE = 50
"""Rows; every window has room for at least a page."""
CAPPED_FOR = 10.0
"""Seconds for which a count that reached its limit is not repeated."""
SPAN_FOR = 1.0
"""Seconds for which the ids of a period are known: a page searches among them and counts them."""
_Period = tuple[str, datetime | None, datetime | None]
"""The name of a box, and the beginning and the end."""
_TRIED_PER_BOX = 2_000
"""Pending rows of a box that are searched for failed attempts."""
_SEARCHED_BEFORE = 1_000
"""Pending rows that are searched at each end of a bucket for the one that holds back another."""
_FIRST, _WIDER = 500, 5
"""Rows of a search's first window, and the factor by which each next one is wider."""


class SqlInspector:
    """``Inspector`` over the database of a ``SqlStore``."""

    def __init__(self, store: SqlStore, *, window: int = WINDOW, untidy: int = UNTIDY) -> None:
        self._store = store
        self._window = window
        self._untidy = untidy
        self._capped = Recent[tuple[str, ItemFilter, int], Count]()
        """Counts that came to their limit."""
        self._followers = Recent[tuple[str, ItemId, int], Count]()
        """The same of the items behind one."""
        self._spans = Recent[_Period, Span]()

    def find(
        self,
        box: Box,
        which: ItemFilter,
        *,
        start: int | None,
        towards: Towards,
        limit: int,
        enough: Callable[[], bool] = lambda: True,
    ) -> Found:
        with self._look(box) as look:
            rows, searched_to = look.page(which, start, towards, limit, window=self._window, enough=enough)
        return Found(_newest_first(rows, towards), searched_to)

    def count(self, box: Box, which: ItemFilter, *, limit: int) -> Count:
        asked = (box.name, which, limit)
        capped = self._capped.get(asked, seconds=CAPPED_FOR)
        if capped is not None:
            return capped
        with self._look(box) as look:
            if is_by_index(which) and not asks_for_more(which) and not which.ids:
                count = _limited(look.of_statuses(which, limit + 1), limit)
                if count.precision is Precision.AT_LEAST:
                    self._capped.put(asked, count)
                return count
            count = look.count(which, self._window)
        return Count(limit, Precision.AT_LEAST) if count.number > limit else count

    def tried(self, box: Box, *, limit: int) -> list[ItemRow]:
        share = max(20, _TRIED_PER_BOX // box.bucket_size)
        with self._look(box) as look:
            return look.rows(ItemFilter(), look.tried(share, self._store.fronts(box)), Towards.NEWER, limit)

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
        asked = (box.name, row.id, limit)
        capped = self._followers.get(asked, seconds=CAPPED_FOR)
        if capped is not None:
            return capped
        with self._look(box) as look:
            number, looked_at = look.pending_after(row, limit)
        if looked_at < limit:
            return Count(number)
        count = Count(number, Precision.AT_LEAST)
        self._followers.put(asked, count)
        return count

    def neighbours(self, box: Box, row: ItemRow, *, limit: int) -> tuple[list[ItemRow], list[ItemRow]]:
        which = ItemFilter(event_key=row.event_key)
        sides = []
        with self._look(box) as look:
            for towards in (Towards.OLDER, Towards.NEWER):
                rows, _ = look.page(which, row.id, towards, limit, window=self._window)
                sides.append(_newest_first(rows, towards))
        return sides[0], sides[1]

    def table(self, box: Box) -> TableState:
        with self._look(box) as look:
            return look.state()

    @contextmanager
    def _look(self, box: Box) -> Iterator[_Look]:
        found = self._store.table(box)
        with translated(self._store.engine), reading(self._store.engine) as connection:
            yield _Look(found, connection, self._untidy, partial(self._store.fronts, box), self._spans)


class _Look:
    """The statements of one question."""

    def __init__(
        self,
        found: BoxTable,
        connection: Connection,
        untidy: int,
        fronts: Callable[[], Mapping[int, int]],
        spans: Recent[_Period, Span],
    ) -> None:
        self._found = found
        self._untidy = untidy
        self._box = found.box
        self._connection = connection
        self._postgresql = connection.dialect.name == "postgresql"
        self._rows = ItemRows(found, connection)
        self._fronts = fronts
        self._spans = spans
        self._windows = Windows(found, self._rows, fronts)

    # ── searching ────────────────────────────────────────────────────────────────────────────────────

    def page(
        self,
        which: ItemFilter,
        start: int | None,
        towards: Towards,
        limit: int,
        *,
        window: int,
        enough: Callable[[], bool] = lambda: True,
    ) -> tuple[list[ItemRow], int | None]:
        """The matching rows, the nearest first, and the id up to which it searched; see ``search``."""
        if self._windows.is_list(which):
            rows = self._listed(which, self._span(which).from_id(start, towards), towards, limit + 1)
            return rows[:limit], rows[limit - 1].id if len(rows) > limit else None
        ids, searched_to = self.search(which, start, towards, limit, window=window, enough=enough)
        rows = self.rows(which, ids, towards, limit)
        if which.ids and len(rows) == limit and rows[-1].id != ids[-1]:
            searched_to = rows[-1].id
        return rows, searched_to

    def search(
        self,
        which: ItemFilter,
        start: int | None,
        towards: Towards,
        limit: int,
        *,
        window: int,
        enough: Callable[[], bool] = lambda: True,
    ) -> tuple[list[int], int | None]:
        """The matching ids, the nearest first, and the id up to which it searched; None: to the end.

        Args:
            window: rows of the largest window.
            enough: called after each window that did not complete the search; true ends it there.
        """
        if which.ids:
            some = [each for each in which.ids if start is None or _lies(each, start, towards)]
            return sorted(some, reverse=towards is Towards.OLDER), None
        span, size = self._span(which), self._first_size(which, window, limit)
        ids, limited = list[int](), False
        with ExitStack() as stack:
            while True:
                wanted = limit - len(ids)
                part = span.from_id(start, towards)
                try:
                    seen = self._windows.look(which, part, towards, size=size, limit=wanted + 1)
                except DBAPIError as error:
                    if not limited or error.orig is None or not took_too_long(error.orig):
                        raise
                    return ids, start
                ids += seen.ids[:wanted]
                if len(seen.ids) > wanted:
                    return ids, ids[-1]
                if seen.horizon is None or len(ids) == limit or enough():
                    return ids, seen.horizon
                if not limited:
                    # The first window's answer is enough for a page: the next page may search the others.
                    stack.enter_context(shortly(self._connection, SHORT))
                    limited = True
                start, size = seen.horizon, min(max(window, size), _WIDER * size)

    def _first_size(self, which: ItemFilter, window: int, limit: int) -> int:
        """The first window's rows. A search that an index answers needs no wide window; nor, often, one that many rows match."""
        if not self._windows.is_tested(which):
            return limit + 1
        return max(limit + 1, min(window, _FIRST))

    def count(self, which: ItemFilter, window: int) -> Count:
        """How many rows of the latest window match: at least so many, and exactly if nothing lies beyond the window."""
        if which.ids:
            return Count(self._rows.count_among(which, which.ids))
        seen = self._windows.look(which, self._span(which), Towards.OLDER, size=max(window, PAGE + 1), limit=1)
        return Count(seen.number, Precision.EXACT if seen.horizon is None else Precision.AT_LEAST)

    def of_statuses(self, which: ItemFilter, limit: int) -> int:
        """How many rows have these statuses, which indexes serve."""
        return self._windows.of_statuses(which, self._span(which), limit=limit)

    def _span(self, which: ItemFilter) -> Span:
        """The span of ids that contains the rows of the filter's period."""
        period = (self._box.name, which.created_from, which.created_before)
        span = self._spans.get(period, seconds=SPAN_FOR)
        if span is None:
            span = span_of(self._connection, Probes(self._name), *period[1:], untidy=self._untidy)
            self._spans.put(period, span)
        return span if which.up_to is None else Span(span.low, min(span.high, which.up_to + 1))

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────

    def rows(self, which: ItemFilter, ids: Sequence[int], towards: Towards, limit: int) -> list[ItemRow]:
        """The matching rows with these ids, the nearest first."""
        if not ids:
            return []
        newest_first = towards is Towards.OLDER
        return _readable(partial(self._rows.among, which, ids, newest_first=newest_first, limit=limit))

    def _listed(self, which: ItemFilter, span: Span, towards: Towards, limit: int) -> list[ItemRow]:
        """The matching rows in one statement, where an index lists them; the nearest first."""
        return _readable(partial(self._windows.rows, which, span, towards, limit=limit))

    def tried(self, share: int, fronts: Mapping[int, int]) -> list[int]:
        """Pending rows with failed attempts among the first of each bucket, beginning at the ids of ``fronts``."""
        first = f"ORDER BY t.bucket, t.id LIMIT {share:d}"
        if self._postgresql:
            of_bucket = f"SELECT t.id, t.errors_count FROM {self._name} AS t WHERE t.status = 0 AND {behind_front('t.')} {first}"
            union = f"SELECT i.* FROM {HELD} CROSS JOIN LATERAL ({of_bucket}) AS i"
        else:
            union = " UNION ALL ".join(
                f"(SELECT t.id, t.errors_count FROM {self._name} AS t {self._hint} "
                f"WHERE t.status = 0 AND t.bucket = {bucket} AND t.id > 0 {first})"
                for bucket in self._box.buckets
            )
        query = f"SELECT id FROM ({union}) AS w WHERE errors_count > 0 ORDER BY id LIMIT 1000"
        values = held(fronts) if self._postgresql else {}
        return [int(row[0]) for row in self._connection.execute(text(query), values)]

    def first_troubled_before(self, row: ItemRow) -> int | None:
        """The first pending or failed row that keeps this one waiting."""
        if self._box.strict_order is StrictOrder.BUCKET:
            return self._first_troubled_of_bucket(row)
        delayed = " OR e.available_at IS NOT NULL" if self._found.has("available_at") else ""
        of_bucket = "e.bucket = :bucket AND e.id < :id"
        if self._postgresql:
            troubled = f"(e.status = 1 OR (e.status = 0 AND (e.errors_count > 0{delayed})))"
            where = [f"{of_bucket} AND e.event_key = :key AND {troubled} ORDER BY e.bucket, e.event_key, e.id"]
        else:
            key = "e.event_key = :key"
            where = [
                f"{of_bucket} AND {key} AND e.status = 1 ORDER BY e.id",
                f"{of_bucket} AND {key} AND e.status = 0 AND (e.errors_count > 0{delayed}) ORDER BY e.id",
            ]
        values = {"bucket": row.bucket, "id": row.id, "key": row.event_key}
        found = [
            self._connection.execute(text(f"SELECT e.id FROM {self._name} AS e WHERE {each} LIMIT 1"), values).scalar()
            for each in where
        ]
        return min((int(each) for each in found if each is not None), default=None)

    def _first_troubled_of_bucket(self, row: ItemRow) -> int | None:
        """Among the first pending rows of its bucket, which workers go through first, and the last ones before it.

        No index leads to it in every table, and so all rows between them would have to be read.
        """
        delayed = "t.available_at" if self._found.has("available_at") else "NULL"
        side = (
            f"SELECT t.id, t.errors_count, {delayed} AS not_before FROM {self._name} AS t {self._mysql_hint} "
            "WHERE t.status = 0 AND t.bucket = :bucket AND t.id > :front AND t.id < :id ORDER BY "
        )
        first, last = f"({side} t.bucket, t.id LIMIT :limit)", f"({side} t.bucket DESC, t.id DESC LIMIT :limit)"
        query = f"SELECT min(id) FROM ({first} UNION ALL {last}) AS w WHERE errors_count > 0 OR not_before IS NOT NULL"
        values = {"bucket": row.bucket, "front": self._front(row), "id": row.id, "limit": _SEARCHED_BEFORE}
        found = self._connection.execute(text(query), values).scalar()
        return None if found is None else int(found)

    def pending_before(self, row: ItemRow, limit: int) -> int:
        return self._counted(
            f"SELECT t.id FROM {self._name} AS t {self._mysql_hint} "
            "WHERE t.status = 0 AND t.bucket = :bucket AND t.id > :front AND t.id < :id "
            "ORDER BY t.bucket, t.id LIMIT :limit",
            {"bucket": row.bucket, "front": self._front(row), "id": row.id, "limit": limit},
        )

    def pending_after(self, row: ItemRow, limit: int) -> tuple[int, int]:
        """How many of the next pending rows of the bucket wait for this one, and how many were looked at."""
        window = (
            f"SELECT t.id, t.event_key FROM {self._name} AS t {self._mysql_hint} "
            "WHERE t.status = 0 AND t.bucket = :bucket AND t.id > :id ORDER BY t.bucket, t.id LIMIT :limit"
        )
        values: dict[str, Any] = {"bucket": row.bucket, "id": max(row.id, self._front(row)), "limit": limit}
        same = "1"
        if self._box.strict_order is not StrictOrder.BUCKET:
            stored = "w.event_key::text" if self._found.numeric_keys and self._postgresql else "w.event_key"
            same, values["key"] = f"CASE WHEN {stored} = :key THEN 1 ELSE 0 END", row.event_key
        query = f"SELECT coalesce(sum({same}), 0), count(*) FROM ({window}) AS w"
        number, looked_at = self._connection.execute(text(query), values).one()
        return int(number), int(looked_at)

    def _front(self, row: ItemRow) -> int:
        """The id after which the pending rows of its bucket begin."""
        return self._fronts().get(row.bucket, 0)

    def _counted(self, rows: str, values: dict[str, Any]) -> int:
        return int(self._connection.execute(text(f"SELECT count(*) FROM ({rows}) AS w"), values).scalar_one())

    @property
    def _mysql_hint(self) -> str:
        return "" if self._postgresql else self._hint

    @property
    def _hint(self) -> str:
        index = self._found.status_index
        return "" if index is None else f"FORCE INDEX ({_literal(index)})"

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


def _readable(ask: Callable[..., Sequence[Any]]) -> list[ItemRow]:
    try:
        found = ask()
    except (DataError, NotSupportedError, ValueError, RecursionError):
        # A row is shown even if the driver cannot read one of its values; and a type may have changed since the driver prepared
        # the statement.
        found = ask(as_text=True)
    return [item_row(row) for row in found]


def _lies(item_id: int, start: int, towards: Towards) -> bool:
    return item_id < start if towards is Towards.OLDER else item_id > start


def _newest_first(rows: list[ItemRow], towards: Towards) -> list[ItemRow]:
    return rows if towards is Towards.OLDER else rows[::-1]


def _limited(number: int, limit: int) -> Count:
    return Count(limit, Precision.AT_LEAST) if number > limit else Count(number)


def _literal(name: str) -> str:
    """A quoted name escaped for SQLAlchemy's ``text``, where a colon begins a parameter."""
    return name.replace(":", "\\:")


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
