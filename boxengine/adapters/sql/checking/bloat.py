"""Finds bloat: disk space in a box's table and indexes that no row uses any more.

Vacuum makes the space of dead rows reusable, but returns it to the disk only at the table's end. After a backlog, or
after one large clean-up, a table or an index may stay many times larger than its rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, text

from boxengine.adapters.sql.shape.tables import BoxTable, quoted
from boxengine.ports.people.checkup import Remark

MUCH = 256 << 20
"""Bytes of unused space below which nothing is reported."""
TIMES = 4
"""Report a table or an index only if it is this many times larger than its rows need."""
_ROW, _ENTRY = 40, 24
"""Bytes that a row and an index entry take besides their values: header, pointer, alignment."""
_USED = 0.7
"""The share of an index's pages that entries fill in the long run."""

# The statistics' view costs more than all else here, so it is not read for what is small anyway.
_TABLE = """
SELECT c.relpages::bigint * current_setting('block_size')::bigint,
       c.reltuples * (:row + coalesce(sum((1 - s.null_frac) * s.avg_width), 0)), count(s.attname)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_stats AS s ON s.schemaname = n.nspname AND s.tablename = c.relname
WHERE c.oid = to_regclass(:name) AND c.reltuples >= 0 AND c.relpages::bigint * current_setting('block_size')::bigint > :much
GROUP BY c.oid, c.relpages, c.reltuples
"""
_INDEXES = """
SELECT c.relname, c.relpages::bigint * current_setting('block_size')::bigint,
       c.reltuples * (:entry + coalesce(sum(s.avg_width), 8 * x.indnatts))
FROM pg_index AS x JOIN pg_class AS c ON c.oid = x.indexrelid JOIN pg_class AS t ON t.oid = x.indrelid
JOIN pg_namespace AS n ON n.oid = t.relnamespace
LEFT JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum = ANY (x.indkey)
LEFT JOIN pg_stats AS s ON s.schemaname = n.nspname AND s.tablename = t.relname AND s.attname = a.attname
WHERE x.indrelid = to_regclass(:name) AND c.reltuples >= 0 AND c.relpages::bigint * current_setting('block_size')::bigint > :much
GROUP BY c.oid, c.relname, c.relpages, c.reltuples, x.indnatts ORDER BY c.relname
"""


def remarks(connection: Connection, table: BoxTable, *, area: str) -> Iterator[Remark]:
    """Estimates by the statistics of the last ANALYZE; yields nothing without them."""
    name = table.box.table
    row = connection.execute(text(_TABLE), {"name": table.name, "row": _ROW, "much": MUCH}).one_or_none()
    if row is not None and row[2] and _is_much(row[0], row[1]):
        yield Remark(
            area=area,
            box=table.box.name,
            text=f"{name} takes {_mebibytes(row[0])}, and its rows need about {_mebibytes(row[1])}. New rows use the rest, "
            "but every scan of the table reads it.",
            advice="If the disk or such scans need the room back: pg_repack, or, while nothing is written, "
            f"VACUUM (FULL) {table.name}",
        )
    for index, size, needed in connection.execute(text(_INDEXES), {"name": table.name, "entry": _ENTRY, "much": MUCH}):
        if _is_much(size, needed / _USED):
            yield Remark(
                area=area,
                box=table.box.name,
                text=f"The index {index} takes {_mebibytes(size)}, and its entries need about {_mebibytes(needed / _USED)}.",
                advice=f"REINDEX INDEX CONCURRENTLY {_beside(table, quoted(connection.dialect, index))}",
            )


def _is_much(size: float, needed: float) -> bool:
    return size - needed > MUCH and size > TIMES * needed


def _beside(table: BoxTable, index: str) -> str:
    """An index lies in the schema of its table."""
    schema = table.name.rpartition(".")[0]
    return f"{schema}.{index}" if schema else index


def _mebibytes(size: float) -> str:
    return f"{max(1, round(size / (1 << 20))):,} MiB"
