"""Counts pending rows on PostgreSQL, in statements that each read few of them.

Behind a busy worker the pending rows of a large table lie scattered over all of its pages, and none of these is marked as
visible to all. So the database visits a page for each row that it counts.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

STEP = 2_500
"""Rows that one statement counts."""


def count_pending(connection: Connection, table: str, *, limit: int, below: int | None = None) -> int:
    """How many pending rows there are, counted along boxengine's index over bucket and id; at most ``limit``.

    Args:
        table: the name, quoted and escaped for SQLAlchemy's ``text``.
        below: only ids less than this one.
    """
    number, bounds = 0, ""
    values: dict[str, int] = {}
    if below is not None:
        bounds, values = " AND id < :below", {"below": below}
    while number < limit:
        step = min(STEP, limit - number)
        found, bucket, last = connection.execute(text(_statement(table, bounds, step)), values).one()
        number += found
        if found < step:
            break
        if "bucket" not in values:
            bounds += " AND (bucket, id) < (:bucket, :last)"
        values |= {"bucket": bucket, "last": last}
    return number


def _statement(table: str, bounds: str, step: int) -> str:
    """Counts up to a step's rows, and tells where it ends."""
    # From the end: dead entries of delivered rows stand before the first pending ones.
    rows = f"SELECT bucket, id FROM {table} WHERE status = 0{bounds} ORDER BY bucket DESC, id DESC LIMIT {step:d}"
    return f"SELECT count(*), (array_agg(t.bucket))[{step:d}], (array_agg(t.id))[{step:d}] FROM ({rows}) AS t"
