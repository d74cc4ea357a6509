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
    number, at = 0, ""
    values = {} if below is None else {"below": below}
    beneath = "" if below is None else " AND id < :below"
    while number < limit:
        step = min(STEP, limit - number)
        # From the end: dead entries of delivered rows stand before the first pending ones.
        rows = (
            f"SELECT bucket, id FROM {table} WHERE status = 0{at}{beneath} ORDER BY bucket DESC, id DESC LIMIT {step:d}"
        )
        query = f"SELECT count(*), (array_agg(t.bucket))[{step:d}], (array_agg(t.id))[{step:d}] FROM ({rows}) AS t"
        found, bucket, last = connection.execute(text(query), values).one()
        number += found
        if found < step:
            break
        at, values = " AND (bucket, id) < (:bucket, :last)", {**values, "bucket": bucket, "last": last}
    return number
