"""Windows: runs of neighbouring ids in which a query searches, so that no statement reads more rows than a window has.

A window's ids come from the index for the filter's statuses: pending rows bucket by bucket, failed and discarded
ones by the index that holds only these, all others along the primary key. The database applies the rest of the filter
while it walks the window, and returns only the matching ids and how far it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    String,
    and_,
    case,
    cast,
    func,
    literal,
    literal_column,
    select,
    true,
    tuple_,
    union_all,
)

from boxengine.adapters.sql.looking.counting import count_pending
from boxengine.adapters.sql.looking.item_rows import ItemRows
from boxengine.adapters.sql.shape.tables import PENDING_BY_BUCKET, BoxTable
from boxengine.domain.item import Status
from boxengine.ports import ItemFilter
from boxengine.ports.people.inspection import Towards

BEYOND = 2**63 - 1
"""Greater than every id."""
_GIVEN_UP = frozenset({Status.FAILED, Status.DISCARDED})


class Span(NamedTuple):
    """A range of ids to search."""

    low: int
    high: int

    def from_id(self, start: int | None, towards: Towards) -> Span:
        """The part of the span on one side of ``start``."""
        if start is None:
            return self
        if towards is Towards.OLDER:
            return Span(self.low, min(self.high, start))
        return Span(max(self.low, start), self.high)


class Seen(NamedTuple):
    """The result of searching one window."""

    ids: list[int]
    """Ids of matching rows, the nearest first, at most as many as asked for."""
    number: int
    """How many rows of the window match."""
    horizon: int | None
    """The id up to which all rows were read; None: there are none beyond the window."""


class Windows:
    """The windows of one table."""

    def __init__(self, found: BoxTable, rows: ItemRows, fronts: Callable[[], Mapping[int, int]]) -> None:
        """Args:
        fronts: by bucket, the id after which its pending rows begin.
        """
        self._found = found
        self._rows = rows
        self._fronts = fronts
        self._columns = rows.table.c
        self._postgresql = rows.dialect == "postgresql"

    def is_tested(self, which: ItemFilter) -> bool:
        """Whether the window's rows must be read to tell whether they match."""
        by_status = not which.statuses or is_by_index(which)
        return asks_for_more(which) or not by_status

    def by_key(self, which: ItemFilter) -> bool:
        """Whether an index finds the rows of the key asked for."""
        return which.event_key is not None and self._found.key_index

    def is_list(self, which: ItemFilter) -> bool:
        """Whether an index leads to the matching rows and to no others."""
        if which.ids:
            return False
        if not self.by_key(which):
            return not self.is_tested(which)
        # On MySQL the index may equate keys that differ.
        return self._postgresql and not which.statuses and not asks_for_more(replace(which, event_key=None))

    def rows(
        self, which: ItemFilter, span: Span, towards: Towards, *, limit: int, as_text: bool = False
    ) -> Sequence[Any]:
        """The matching rows of a filter that ``is_list``, the nearest first."""
        shown, runs = self._rows.shown(as_text=as_text), self._runs(which)
        if len(runs) == 1 and not runs[0].each_bucket:
            query = self._neighbours(runs[0], shown, span, towards, limit)
        else:
            window = self._window(which, span, towards, limit)
            near = select(window.c.id).order_by(_ordered(window.c.id, towards)).limit(literal_column(f"{limit:d}"))
            some, identity = near.subquery("near"), self._columns.id
            query = select(*shown).join(some, some.c.id == identity).order_by(_ordered(identity, towards))
        return self._rows.connection.execute(query).mappings().all()

    def look(self, which: ItemFilter, span: Span, towards: Towards, *, size: int, limit: int) -> Seen:
        """Searches one window.

        Args:
            size: rows of the window if it is one run; several runs share them.
            limit: the most ids to return.
        """
        # Several buckets share the window.
        share = max(limit, size // self._found.box.bucket_size) if self._by_bucket(which) else size
        window = self._window(which, span, towards, share)
        ids, number, cut = list[int](), 0, list[int]()
        for kind, place, met, looked_at in self._rows.connection.execute(_summary(window, towards, limit)):
            if kind:
                ids.append(int(place))
                continue
            number += int(met)
            if looked_at == share:
                cut.append(int(place))
        if not cut:
            return Seen(_nearest_first(ids, towards), number, None)
        # A run that was cut off may have more ids beyond its farthest, nearer than some found in other runs.
        older = towards is Towards.OLDER
        horizon = max(cut) if older else min(cut)
        near = [each for each in ids if (each >= horizon if older else each <= horizon)]
        return Seen(_nearest_first(near, towards), number, horizon)

    def of_statuses(self, which: ItemFilter, span: Span, *, limit: int) -> int:
        """How many rows have these statuses, counted by index and only up to ``limit``."""
        number, connection = 0, self._rows.connection
        by_bucket = self._postgresql and self._found.pending_first == PENDING_BY_BUCKET
        if by_bucket and Status.PENDING in which.statuses:
            below = span.high if span.high < BEYOND else None
            number = count_pending(connection, self._found.in_text, limit=limit, below=below)
            which = replace(which, statuses=which.statuses - {Status.PENDING})
        if not which.statuses or number == limit:
            return number
        window = self._window(which, span, Towards.OLDER, limit - number)
        some = select(window.c.id).limit(limit - number).subquery()
        return number + int(connection.execute(select(func.count()).select_from(some)).scalar_one())

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────

    def _window(self, which: ItemFilter, span: Span, towards: Towards, share: int) -> CTE:
        """A query for ``id``, the ``place`` of its run, and whether it is ``meant``, that is, matches."""
        tests = self._rows.meant(which, key=not self.by_key(which)) if self.is_tested(which) else []
        meant: ColumnElement[Any] = case((and_(*tests), 1), else_=0) if tests else literal_column("1")
        runs = enumerate(self._runs(which), 1)
        parts = [self._part(run, -number, meant, span, towards, share) for number, run in runs]
        if len(parts) == 1:
            return parts[0].cte("w")
        return union_all(*[select(part.subquery()) for part in parts]).cte("w")

    def _runs(self, which: ItemFilter) -> list[_Run]:
        if self.by_key(which):
            return [self._of_key(which)]
        if is_by_index(which):
            return [run for status in sorted(which.statuses) for run in self._of_status(Status(status))]
        return [_Run(order=("id",))]

    def _by_bucket(self, which: ItemFilter) -> bool:
        if self.by_key(which) or not is_by_index(which):
            return False
        return Status.PENDING in which.statuses or not self._postgresql

    def _of_key(self, which: ItemFilter) -> _Run:
        key = self._columns.event_key
        stored = cast(key, String) if self._found.numeric_keys and self._postgresql else key
        return _Run(order=("id",), where=(stored == which.event_key,))

    def _of_status(self, status: Status) -> list[_Run]:
        """The runs of one status's rows, each in the order of an index."""
        # A literal: a partial index on a status cannot serve a statement in which the status is a parameter.
        own = self._columns.status == literal_column(f"{status:d}")
        if not self._postgresql:
            return [
                _Run(order=("id",), where=(own, self._columns.bucket == bucket), hint=self._hint)
                for bucket in self._found.box.buckets
            ]
        if status in _GIVEN_UP:
            return [_Run(order=("status", "id"), where=(own,))]
        return [_Run(order=("bucket", "id"), where=(own,), each_bucket=True)]

    @property
    def _hint(self) -> str | None:
        # A percent sign is doubled for SQLAlchemy, and each of the two for the driver.
        index = (self._found.status_index or "").replace("%", "%%%%")
        return f"FORCE INDEX ({index})" if index else None

    def _part(
        self, run: _Run, place: int, meant: ColumnElement[Any], span: Span, towards: Towards, share: int
    ) -> Select[Any]:
        """A query for one run, with a ``place`` that no other run has."""
        identity = self._columns.id
        query = self._neighbours(run, [identity, meant.label("meant")], span, towards, share)
        if not run.each_bucket:
            one = query.subquery()
            return select(one.c.id, literal_column(f"{place:d}").label("place"), one.c.meant)
        # From the fronts on: before them, dead entries of delivered rows would be walked over. As parameters, so that the text of
        # the statement stays the same and the driver prepares it.
        fronts = self._fronts()
        arrays = [literal(list(fronts), ARRAY(Integer)), literal(list(fronts.values()), ARRAY(BigInteger))]
        held = func.unnest(*arrays).table_valued("bucket", "after", name="held").render_derived()
        # Compared as pairs, so that only the index of bucket and id fits both bounds and the order.
        position = tuple_(self._columns.bucket, identity)
        low, high = (literal(end, BigInteger) for end in span)
        first = tuple_(held.c.bucket, func.greatest(held.c.after, low))
        each = query.where(position > first, position < tuple_(held.c.bucket, high)).lateral("i")
        return select(each.c.id, held.c.bucket.label("place"), each.c.meant).select_from(held.join(each, true()))

    def _neighbours(
        self, run: _Run, columns: Sequence[ColumnElement[Any]], span: Span, towards: Towards, limit: int
    ) -> Select[Any]:
        """The rows of one run in the order of its index; within the span, except for a run of each bucket."""
        table, identity = self._rows.table, self._columns.id
        query = select(*columns).where(*run.where)
        # An open end is left out: a plan made for all values could not tell it from a narrow range.
        if not run.each_bucket and span.low > 0:
            query = query.where(identity > span.low)
        if not run.each_bucket and span.high < BEYOND:
            query = query.where(identity < span.high)
        query = query.order_by(*(_ordered(self._columns[name], towards) for name in run.order))
        query = query.limit(literal_column(f"{limit:d}"))
        return query.with_hint(table, run.hint, self._rows.dialect) if run.hint else query


class _Run(NamedTuple):
    """Neighbouring entries of one index."""

    order: Sequence[str]
    """Its columns."""
    where: Iterable[ColumnElement[bool]] = ()
    each_bucket: bool = False
    """Whether there is one run for each bucket."""
    hint: str | None = None


def is_by_index(which: ItemFilter) -> bool:
    """Whether all of the filter's statuses have an index of their own."""
    return bool(which.statuses) and Status.DELIVERED not in which.statuses


def asks_for_more(which: ItemFilter) -> bool:
    """Whether the filter has conditions other than statuses and ids."""
    of_pending = not which.statuses or Status.PENDING in which.statuses
    return (
        (which.tried and of_pending)
        or any(value is not None for value in (which.event_key, which.uuid, which.event_name, which.error))
        or which.created_from is not None
        or which.created_before is not None
    )


def _summary(window: CTE, towards: Towards, limit: int) -> Any:
    """For each run (0) its farthest id, how many of its rows match and how many there are; then (1) the matching ids."""
    older = towards is Towards.OLDER
    far = (func.min if older else func.max)(window.c.id)
    runs: Any = select(literal_column("0"), far, func.sum(window.c.meant), func.count()).group_by(window.c.place)
    order = window.c.id.desc() if older else window.c.id.asc()
    meant = select(window.c.id).where(window.c.meant == literal_column("1")).order_by(order).limit(limit).subquery()
    return union_all(runs, select(literal_column("1"), meant.c.id, literal_column("0"), literal_column("0")))


def _ordered(column: ColumnElement[Any], towards: Towards) -> ColumnElement[Any]:
    """From the nearest on."""
    return column.desc() if towards is Towards.OLDER else column.asc()


def _nearest_first(ids: list[int], towards: Towards) -> list[int]:
    return sorted(ids, reverse=towards is Towards.OLDER)
