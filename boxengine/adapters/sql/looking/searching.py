"""Finds matching rows: from an index where one lists them, otherwise window by window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, NotSupportedError

from boxengine.adapters.sql.connecting.limiting import SHORT, shortly, took_too_long
from boxengine.adapters.sql.looking.item_rows import ItemRows
from boxengine.adapters.sql.looking.items import item_row
from boxengine.adapters.sql.looking.moments import Probes, span_of
from boxengine.adapters.sql.looking.recent import Recent
from boxengine.adapters.sql.looking.windows import Span, Windows
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.ports import Count, ItemFilter, ItemRow, Precision
from boxengine.ports.people.inspection import Towards

PAGE = 50
"""Rows; every window has room for at least a page."""
SPAN_FOR = 1.0
"""Seconds for which the ids of a period are known: a page searches among them and counts them."""
Period = tuple[str, datetime | None, datetime | None]
"""The name of a box, and the beginning and the end."""
_FIRST, _WIDER = 500, 5
"""Rows of a search's first window, and the factor by which each next one is wider."""


class Search:
    """The searches of one question."""

    def __init__(
        self,
        found: BoxTable,
        connection: Connection,
        *,
        untidy: int,
        fronts: Callable[[], Mapping[int, int]],
        spans: Recent[Period, Span],
    ) -> None:
        """Args:
        untidy: how far a row's id may be from others of its time.
        fronts: by bucket, the id after which its pending rows begin.
        """
        self._found = found
        self._connection = connection
        self._untidy = untidy
        self._spans = spans
        self._rows = ItemRows(found, connection)
        self._windows = Windows(found, self._rows, fronts)

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
        period = (self._found.box.name, which.created_from, which.created_before)
        span = self._spans.get(period, seconds=SPAN_FOR)
        if span is None:
            span = span_of(self._connection, Probes(self._found.in_text), *period[1:], untidy=self._untidy)
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
