"""Which tables have a pending row: one query for many boxes, which reads only the beginning of an index of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from boxengine.adapters.sql.shape.changes import tells_of_a_change
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.item import Status
from boxengine.errors import NotPermitted, StoreConflict, StoreTooSlow, StoreUnavailable

_PENDING = f"status = {Status.PENDING:d}"
_AT_ONCE = 50
"""Tables in one statement: it locks each table and its indexes, and a server has room for some thousands of locks."""
_MOST_APART = 5
"""So many tables are asked by themselves at most: each may keep the others waiting for as long as a look waits for a lock."""


class PendingLook:
    """Asks many tables in few statements. One that somebody has locked, altered or renamed, or that this account may not read,
    hides no other.

    Only one thread may use it at a time.
    """

    def __init__(self, ask: Callable[[Sequence[BoxTable]], Iterable[str]]) -> None:
        """Args:
        ask: runs one statement for these tables, and returns the names of the boxes with a pending row.
        """
        self._ask = ask
        self._apart: set[str] = set()
        """Boxes whose tables gave no answer when they were last asked. They are asked by themselves until they do."""

    def names(self, tables: Sequence[BoxTable]) -> set[str]:
        """Names of the boxes with a pending row, and of those whose tables give no answer: whoever looks at such a box by itself
        learns why.

        Raises:
            StoreUnavailable: the database does not answer, or more than a few tables do not.
        """
        found = set[str]()
        together = [table for table in tables if table.box.name not in self._apart]
        for start in range(0, len(together), _AT_ONCE):
            found |= self._among(together[start : start + _AT_ONCE])
        for table in tables:
            if table.box.name in self._apart:
                found |= self._among([table])
        return found

    def _among(self, tables: Sequence[BoxTable]) -> set[str]:
        try:
            found = set(self._ask(tables))
        except StoreUnavailable as error:
            if not _of_one_table(error):
                raise
            first, middle = tables[0].box.name, len(tables) // 2
            if first not in self._apart and len(self._apart) >= _MOST_APART:
                raise
            if not middle:
                self._apart.add(first)
                return {first}
            return self._among(tables[:middle]) | self._among(tables[middle:])
        self._apart.difference_update(table.box.name for table in tables)
        return found


def _of_one_table(error: StoreUnavailable) -> bool:
    """Whether the database may answer about the others. A change costs a second look at the table's definition, which is to be
    had for one table and not for hundreds."""
    return isinstance(error, StoreConflict | NotPermitted | StoreTooSlow) or tells_of_a_change(error.__cause__)


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
