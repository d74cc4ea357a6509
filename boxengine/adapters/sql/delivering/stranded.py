"""Finds pending rows in buckets that the box does not have: nobody polls these, so the rows wait for ever."""

from __future__ import annotations

from typing import NamedTuple

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.log.tables import BUCKET, log_name
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import Storage
from boxengine.domain.item import Status
from boxengine.domain.words import plural

MOST = 10_000
"""Rows counted at most, so that the query stays cheap."""


class Stranded(NamedTuple):
    """The pending rows outside a box's buckets."""

    rows: int
    """At most ``MOST``."""
    highest: int | None
    """Bucket; None where there are no such rows."""


def stranded(cursor: Cursor, table: BoxTable) -> Stranded:
    """Finds them in one round trip, at the beginning and the end of the indexes that polls use."""
    cursor.execute(_outside(table))
    rows, highest = cursor.fetchone() or (0, None)
    return Stranded(min(int(rows), MOST), None if highest is None else int(highest))


def _outside(table: BoxTable) -> str:
    pending = f"SELECT bucket FROM {table.name} WHERE status = {Status.PENDING:d} AND bucket"
    parts = _both_ends(pending, table.box.bucket_size, "bucket")
    if table.box.storage is Storage.LOG:
        # A bucket that the box never had has no position, so all of its rows are pending. One that it had may have passed some:
        # no worker begins with such a size, so the sentence says so rather than have the query find out.
        logged = f"SELECT t.bucket FROM {log_name(table)} AS t WHERE {BUCKET}"
        parts += _both_ends(logged, table.box.bucket_size, BUCKET)
    return f"SELECT count(*), max(bucket) FROM ({' UNION ALL '.join(parts)}) AS outside"


def _both_ends(rows: str, size: int, bucket: str) -> list[str]:
    return [f"({rows} >= {size:d} ORDER BY {bucket} DESC LIMIT {MOST})", f"({rows} < 0 ORDER BY {bucket} LIMIT {MOST})"]


def told(table: BoxTable, found: Stranded) -> str:
    """The sentence for people."""
    in_log, size = table.box.storage is Storage.LOG, table.box.bucket_size
    rows = plural(found.rows, "row" if in_log else "pending row", or_more=found.rows == MOST)
    remedy = "set their bucket to one that is"
    if found.highest is not None and found.highest >= size:
        before = f"{found.highest + 1} or more" if table.recorded_size is None else str(table.recorded_size)
        change = (
            "with storage: log it stays what it was, and delivered rows of these buckets are counted here, too"
            if in_log
            else "pause the writers, let the box run empty, and change it then"
        )
        remedy = f"if bucket_size was made smaller, set it back to {before}, for workers and applications; {change}"
    return f"table {table.box.table}: {rows} in buckets outside of 0 to {size - 1}, where no worker looks: {remedy}"
