"""Rows of a log for people: an item that waits in the log, or that was delivered from it, stands in no side table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import text

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.dialects.unreadable import within_reach
from boxengine.adapters.sql.log.reading import BEHIND, ReadingTexts, array
from boxengine.adapters.sql.log.tables import BUCKET, LogTable, in_text, reflect_log
from boxengine.adapters.sql.looking.item_rows import SHOWN
from boxengine.adapters.sql.looking.items import item_row
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Status
from boxengine.ports import Count, ItemRow, Precision
from boxengine.ports.people.items import PASSED
from boxengine.ports.people.log import BucketInLog

_SMALL = ("id", "uuid", "event_name", "event_key", "bucket", "options", "created_at")
"""Columns that a list of items needs."""


class LogRows:
    """``LogItems`` over the database of a ``SqlStore``."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._found: dict[str, tuple[BoxTable, LogTable]] = {}
        """With the table beside the log, which the store looks up anew once somebody has altered either."""

    def get(self, box: Box, item_id: int) -> ItemRow | None:
        """See ``LogItems``."""
        if box.storage is Storage.TABLE:
            return None
        found = self._log(box)
        with translated(self._store.engine), self._store.engine.begin() as connection:
            row = connection.execute(text(_one(found)), {"id": item_id}).mappings().one_or_none()
        return None if row is None else _shown(row, PASSED if row["passed"] else Status.PENDING)

    def waiting(self, box: Box, *, limit: int) -> Sequence[BucketInLog]:
        """See ``LogItems``. Reads at most ``limit`` + 1 rows of each bucket, by index."""
        rows = self._beyond(
            box,
            list(box.buckets),
            "SELECT bucket, count(*), min(id), min(since) FROM ({rows}) AS w GROUP BY bucket ORDER BY min(since)",
            columns=f"t.bucket, t.id, {within_reach('t.created_at')} AS since",
            limit=limit + 1,
        )
        return [
            BucketInLog(
                bucket,
                Count(limit, Precision.AT_LEAST) if number > limit else Count(number),
                first,
                since,
            )
            for bucket, number, first, since in rows
        ]

    def next(self, box: Box, bucket: int, *, limit: int) -> Sequence[ItemRow]:
        """See ``LogItems``."""
        if box.storage is Storage.TABLE:
            return ()
        columns = _columns(self._log(box))
        rows = self._beyond(
            box, [bucket], "SELECT * FROM ({rows}) AS w ORDER BY id", columns=", ".join(columns.values()), limit=limit
        )
        return [_shown(dict(zip(columns, row, strict=True)), Status.PENDING) for row in rows]

    def ahead(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        """See ``LogItems``."""
        counts = f"SELECT count(*), count(*) FILTER (WHERE id < {int(row.id)}) FROM ({{rows}}) AS w"
        found = self._beyond(box, [row.bucket], counts, columns="t.id", limit=limit)
        ((looked_at, number),) = found or [(0, 0)]
        return Count(number, Precision.AT_LEAST if looked_at == limit else Precision.EXACT)

    def _beyond(self, box: Box, buckets: Sequence[int], query: str, *, columns: str, limit: int) -> Sequence[Any]:
        """What the query says about the rows of these buckets that no delivery has passed, at most ``limit`` of each."""
        if box.storage is Storage.TABLE:
            return []
        rows = ReadingTexts(self._log(box), "").beyond(columns, limit=f"{limit:d}")
        with translated(self._store.engine), self._store.engine.begin() as connection:
            return connection.exec_driver_sql(query.replace("{rows}", rows), (array(buckets),)).all()

    def _log(self, box: Box) -> LogTable:
        known, side = self._found.get(box.name), self._store.table(box)
        if known is None or known[0] is not side:
            with translated(self._store.engine), self._store.engine.begin() as connection:
                known = self._found[box.name] = side, reflect_log(connection, side)
        return known[1]


def _shown(row: Any, status: int) -> ItemRow:
    shown = {name: value for name, value in row.items() if name in (*SHOWN, "payload")}
    return item_row({**shown, "status": status, "errors_count": 0})


def _columns(found: LogTable) -> dict[str, str]:
    """What a list shows of the log's row ``t``, by name, as far as the log has it.

    Dates are clamped to those that Python can represent, and options are not parsed, so that no row hides the others.
    """
    there = {"event_name": found.has_event_name, "options": found.has_options}
    read = {"options": "t.options::text AS options", "created_at": f"{within_reach('t.created_at')} AS created_at"}
    return {name: read.get(name, f"t.{name}") for name in _SMALL if there.get(name, True)}


def _one(found: LogTable) -> str:
    columns = ", ".join(_columns(found).values()).replace("::", "\\:\\:")
    # Bucket by bucket: the index by id begins with the bucket, which nobody has named.
    return (
        f"SELECT {columns}, t.payload, pg_visible_in_snapshot(t.xact, held.passed) OR ({BEHIND}) AS passed "
        f"FROM {in_text(found.positions)} AS held CROSS JOIN LATERAL ("
        f"SELECT t.* FROM {in_text(found.log)} AS t WHERE {BUCKET} = held.bucket AND t.id = :id LIMIT 1) AS t"
    )
