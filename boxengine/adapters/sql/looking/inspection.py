"""``Inspector``: finds rows for people, by index where there is one, otherwise through windows of ids (see ``windows``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.connecting.reading import reading
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.in_line import InLine
from boxengine.adapters.sql.looking.recent import Recent
from boxengine.adapters.sql.looking.searching import Period, Search
from boxengine.adapters.sql.looking.table_state import table_state
from boxengine.adapters.sql.looking.windows import Span, asks_for_more, is_by_index
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item_id import ItemId
from boxengine.ports import Count, ItemFilter, ItemRow, Precision
from boxengine.ports.people.inspection import Found, TableState, Towards

WINDOW = 2_500
"""Rows of a search's largest window."""
UNTIDY = 5_000
"""A search by time also finds a row whose id is up to this far from others of its time."""
CAPPED_FOR = 10.0
"""Seconds for which a count that reached its limit is not repeated."""
_TRIED_PER_BOX = 2_000
"""Pending rows of a box that are searched for failed attempts."""


class _Look(NamedTuple):
    """What answers one question."""

    found: BoxTable
    connection: Connection
    search: Search
    line: InLine


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
        self._spans = Recent[Period, Span]()

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
            rows, searched_to = look.search.page(which, start, towards, limit, window=self._window, enough=enough)
        return Found(_newest_first(rows, towards), searched_to)

    def count(self, box: Box, which: ItemFilter, *, limit: int) -> Count:
        asked = (box.name, which, limit)
        capped = self._capped.get(asked, seconds=CAPPED_FOR)
        if capped is not None:
            return capped
        with self._look(box) as look:
            if is_by_index(which) and not asks_for_more(which) and not which.ids:
                count = _limited(look.search.of_statuses(which, limit + 1), limit)
                if count.precision is Precision.AT_LEAST:
                    self._capped.put(asked, count)
                return count
            count = look.search.count(which, self._window)
        return Count(limit, Precision.AT_LEAST) if count.number > limit else count

    def tried(self, box: Box, *, limit: int) -> list[ItemRow]:
        share = max(20, _TRIED_PER_BOX // box.bucket_size)
        with self._look(box) as look:
            return look.search.rows(ItemFilter(), look.line.tried(share), Towards.NEWER, limit)

    def holding_back(self, box: Box, row: ItemRow) -> ItemRow | None:
        if box.strict_order is StrictOrder.NONE:
            return None
        with self._look(box) as look:
            found = look.line.first_troubled_before(row)
            rows = look.search.rows(ItemFilter(), [found], Towards.OLDER, 1) if found is not None else []
        return rows[0] if rows else None

    def ahead(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        with self._look(box) as look:
            return _limited(look.line.pending_before(row, limit + 1), limit)

    def followers(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        asked = (box.name, row.id, limit)
        capped = self._followers.get(asked, seconds=CAPPED_FOR)
        if capped is not None:
            return capped
        with self._look(box) as look:
            number, looked_at = look.line.pending_after(row, limit)
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
                rows, _ = look.search.page(which, row.id, towards, limit, window=self._window)
                sides.append(_newest_first(rows, towards))
        return sides[0], sides[1]

    def table(self, box: Box) -> TableState:
        with self._look(box) as look:
            return table_state(look.found, look.connection)

    @contextmanager
    def _look(self, box: Box) -> Iterator[_Look]:
        found = self._store.table(box)
        with translated(self._store.engine), reading(self._store.engine) as connection:
            fronts = partial(self._store.fronts, box)
            search = Search(found, connection, untidy=self._untidy, fronts=fronts, spans=self._spans)
            yield _Look(found, connection, search, InLine(found, connection, fronts))


def _newest_first(rows: list[ItemRow], towards: Towards) -> list[ItemRow]:
    return rows if towards is Towards.OLDER else rows[::-1]


def _limited(number: int, limit: int) -> Count:
    return Count(limit, Precision.AT_LEAST) if number > limit else Count(number)
