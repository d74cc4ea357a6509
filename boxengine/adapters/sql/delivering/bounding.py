"""What PostgreSQL shows of a box, so that its bounds can move; and the bounds of all boxes of a store.

Whoever draws an id locks the sequence until the transaction ends, whether it has a transaction id yet or not. So the locks
tell who may still commit a lower id. A transaction that only reads, or writes elsewhere, is not among them, however long it runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Self

from boxengine.adapters.sql.connecting.cursors import Opened
from boxengine.adapters.sql.connecting.identity import START
from boxengine.adapters.sql.delivering.bounding_mysql import MySqlSight
from boxengine.adapters.sql.dialects.base import MOST_IN_PAUSE, MOST_PASSED
from boxengine.adapters.sql.dialects.postgresql_texts import PostgresTexts
from boxengine.adapters.sql.shape.tables import PENDING_BY_BUCKET, BoxTable, for_driver
from boxengine.domain.bounds import PACE, RENAMED, Bounds, Pace, Range, Seen, Sight
from boxengine.domain.box import Box, Storage, StrictOrder
from boxengine.errors import StoreUnavailable

_SEQUENCE = """
SELECT s.name, q.seqrelid FROM (SELECT pg_get_serial_sequence(%(table)s, 'id') AS name) AS s
JOIN pg_sequence AS q ON q.seqrelid = s.name::regclass
JOIN pg_attribute AS a ON a.attrelid = %(table)s::regclass AND a.attname = 'id'
WHERE q.seqincrement > 0 AND q.seqcache = 1 AND NOT q.seqcycle AND has_sequence_privilege(s.name, 'SELECT')
AND (a.attidentity <> '' OR EXISTS (
    SELECT 1 FROM pg_attrdef AS f JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid
    WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum AND d.refobjid = q.seqrelid))
"""
_WRITERS = """
SELECT DISTINCT l.virtualtransaction FROM pg_locks AS l
WHERE l.locktype = 'relation' AND l.relation = %s::oid AND l.mode = 'RowExclusiveLock'
AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
"""
_PREPARED = "-1/"
"""The name of a prepared transaction begins with this once the server was restarted; before, it keeps the name it had."""


class PostgresSight:
    """``Sight`` of one table."""

    def __init__(self, table: BoxTable, sequence: tuple[str, int], opened: Opened) -> None:
        """Args:
        sequence: its quoted name and its number, of the ids.
        """
        name, self._sequence = sequence
        self._opened = opened
        last = f"SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM {for_driver(name)}"
        if table.passes_delayed:
            last = f"SELECT CASE WHEN ({_few_passed_are_due(table)}) THEN ({last}) ELSE 0 END"
        self._last = f"SELECT ({last}), {START}"
        self._server: str | None = None
        self._look = first_stops(table)

    @classmethod
    def of(cls, table: BoxTable, opened: Opened) -> Self | None:
        """None where no bound would be safe: ids that are not drawn in ascending order from a sequence that may be read, or
        an index that does not serve the look."""
        if table.box.storage is not Storage.TABLE or table.pending_first != PENDING_BY_BUCKET:
            return None
        with opened() as cursor:
            cursor.execute(_SEQUENCE, {"table": table.name})
            found = cursor.fetchone()
        return None if found is None else cls(table, found, opened)

    def last_drawn(self) -> int:
        with self._opened() as cursor:
            cursor.execute(self._last, ())  # without values, the driver would leave doubled percent signs as they are
            last, server = cursor.fetchone()
        # Behind a pooler another server may answer although no connection was lost. It may give the last ids once more.
        known, self._server = self._server, server
        return int(last) if known in (None, server) else 0

    def writers(self) -> Collection[str]:
        with self._opened() as cursor:
            cursor.execute(_WRITERS, (self._sequence,))
            return {RENAMED if name.startswith(_PREPARED) else name for (name,) in cursor.fetchall()}

    def look(self, ranges: Mapping[int, Range]) -> Seen:
        buckets, after, up_to = (
            list(ranges),
            [each.after for each in ranges.values()],
            [e.up_to for e in ranges.values()],
        )
        with self._opened() as cursor:
            cursor.execute(self._look, (buckets, after, up_to), prepare=True)
            rows = cursor.fetchall()
        first = {}
        for bucket, *found in rows:
            ids = [
                each for each in found[1:] if each is not None and ranges[bucket].after < each <= ranges[bucket].up_to
            ]
            if ids:
                first[bucket] = min(ids)
        return Seen(first, max((row[1] for row in rows), default=0.0))


class SqlBounds:
    """The bounds of all boxes, as far as their tables allow them."""

    def __init__(self, opened: Opened, *, dialect: str, pace: Pace = PACE) -> None:
        self._opened = opened
        self._kind: type[PostgresSight | MySqlSight] = PostgresSight if dialect == "postgresql" else MySqlSight
        self._pace = pace
        self._bounds: dict[str, Bounds] = {}
        self._sights: dict[str, tuple[BoxTable, Sight]] = {}
        self._lock = threading.Lock()

    def of(self, box: Box) -> Bounds:
        """The box's bounds. Those that nobody advances stand at the start."""
        known = self._bounds.get(box.name)
        if known is None:
            with self._lock:
                made = Bounds(box.buckets, monotonic=time.monotonic, pace=self._pace)
                known = self._bounds.setdefault(box.name, made)
        return known

    def advance(self, table: BoxTable) -> Collection[int]:
        """See ``Bounding.advance``; for when it is due."""
        bounds = self.of(table.box)
        try:
            sight = self._sight(table)
            if sight is None:
                bounds.put_off()
            return () if sight is None else bounds.advance(sight)
        except StoreUnavailable:
            # Another server may answer next, which knows less, or allows less.
            bounds.forget()
            self._sights.pop(table.box.name, None)
            raise

    def forget(self, box_name: str) -> None:
        """See ``Bounding.read_from_start``."""
        if box_name in self._bounds:
            self._bounds[box_name].forget()

    def forget_all(self) -> None:
        """Every box is read from the start again."""
        for known in list(self._bounds.values()):
            known.forget()

    def _sight(self, table: BoxTable) -> Sight | None:
        seen, known = self._sights.get(table.box.name, (None, None))
        if seen is not table:
            known = self._kind.of(table, self._opened)
            if known is not None:
                self._sights[table.box.name] = (table, known)
        return known


def _few_passed_are_due(table: BoxTable) -> str:
    """Asks whether the rows that bounds would pass are found quickly once they are due."""
    name = for_driver(table.name)
    texts = PostgresTexts(replace(table, name=name), light=0)
    return (
        f"SELECT count(*) FILTER (WHERE by_time.due) < {MOST_PASSED} AND count(*) < {MOST_IN_PAUSE} FROM ("
        f"SELECT {texts.is_due('t')} AS due FROM {name} AS t WHERE t.status = 0 "
        f"AND t.available_at <= {texts.moment('now()', 'available_at')} "
        f"ORDER BY t.available_at LIMIT {MOST_IN_PAUSE}) AS by_time"
    )


def first_stops(table: BoxTable) -> str:
    """Finds what no bound may pass: the first pending row of each range and, under strict order, the box's first failed and
    first discarded rows: if people retry one, it must go out before its followers. It is one statement, because a row may
    change from one to the other.

    Without strict order, pending rows that have an ``available_at`` are passed: see ``BoxTable.passes_delayed``.

    As in a claim, only the index on pending rows can serve the order that the look asks for.
    """
    name = for_driver(table.name)
    others, passed = "", "AND t.available_at IS NULL " if table.passes_delayed else ""
    if table.box.strict_order is not StrictOrder.NONE:
        first = (
            f"SELECT e.id FROM {name} AS e WHERE e.status IN (1, 3) AND e.status {{}} 2 ORDER BY e.status, e.id LIMIT 1"
        )
        others = f", ({first.format('<')}), ({first.format('>')})"
    return (
        "SELECT held.bucket, extract(epoch FROM clock_timestamp() - statement_timestamp())::float8, i.id"
        f"{others} FROM unnest(%s::int[], %s::bigint[], %s::bigint[]) AS held(bucket, after, up_to) LEFT JOIN LATERAL ("
        f"SELECT t.id FROM {name} AS t WHERE t.status = 0 AND (t.bucket, t.id) > (held.bucket, held.after) "
        f"AND (t.bucket, t.id) <= (held.bucket, held.up_to) {passed}ORDER BY t.bucket, t.id LIMIT 1) AS i ON true"
    )
