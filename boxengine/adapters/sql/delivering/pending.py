"""Which tables have a pending row: one query for many boxes, which reads only the beginning of an index of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.item import Status

_PENDING = f"status = {Status.PENDING:d}"


def any_pending(tables: Sequence[BoxTable], begins: Sequence[Mapping[int, int]], *, lateral: bool) -> str:
    """A query for the places of the tables that have a pending row. It reads only the beginning of an index of each.

    Args:
        begins: of each table, the ids after which to read, by bucket; empty: from the start.
        lateral: whether the database has ``LATERAL``.
    """
    behind = _behind if lateral else _behind_each
    branches = list[str]()
    for place, (table, begin) in enumerate(zip(tables, begins, strict=True)):
        found = behind(table, begin) if begin else f"{table.name} WHERE {_PENDING} {table.pending_first}"
        branches.append(f"(SELECT {place} AS place FROM {found} LIMIT 1)")
        if begin and lateral and table.passes_delayed:
            # The last of them: before the first, dead entries may lie.
            delayed = f"{_PENDING} AND available_at IS NOT NULL ORDER BY available_at DESC LIMIT 1"
            branches.append(f"(SELECT {place} AS place FROM {table.name} WHERE {delayed})")
    return " UNION ALL ".join(branches)


def _behind(table: BoxTable, begin: Mapping[int, int]) -> str:
    """The first pending row of each bucket behind an id."""
    held = ", ".join(f"({bucket}, {after})" for bucket, after in begin.items())
    return (
        f"(VALUES {held}) AS held(bucket, after) CROSS JOIN LATERAL (SELECT 1 FROM {table.name} AS t "
        f"WHERE t.{_PENDING} AND (t.bucket, t.id) > (held.bucket, held.after) AND t.bucket <= held.bucket "
        "ORDER BY t.bucket, t.id LIMIT 1) AS first"
    )


def _behind_each(table: BoxTable, begin: Mapping[int, int]) -> str:
    """The same for MySQL and MariaDB: by primary key, for the reason that ``dialects.branch`` gives."""
    groups: dict[int, list[int]] = {}
    for bucket, after in begin.items():
        groups.setdefault(after, []).append(bucket)
    branches = (
        f"(SELECT t.id FROM {table.name} AS t FORCE INDEX (PRIMARY) WHERE t.id > {after} "
        f"AND t.{_PENDING} AND t.bucket IN ({', '.join(map(str, buckets))}) ORDER BY t.id LIMIT 1)"
        for after, buckets in groups.items()
    )
    return f"({' UNION ALL '.join(branches)}) AS first"
