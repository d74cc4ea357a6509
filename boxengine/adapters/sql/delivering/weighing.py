"""Keeps a claim within its bytes: large payloads are read only as far as there is room for them.

The statement that claims rows leaves out payloads above ``light``: a whole batch of lighter ones cannot be too heavy. The server
then tells the sizes of the others without reading them, and as many as there is room for are read in parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.dialects.base import BoxStatements, Row
from boxengine.domain.item import Item

PART = 8 * 1024 * 1024
"""Bytes to read at once. The driver holds them twice for a moment."""
_ID, _BUCKET, _PAYLOAD = 0, Item._fields.index("bucket"), Item._fields.index("payload")


class Weighing:
    """Reads the payloads of one claim's rows, in id order, as far as there is room."""

    def __init__(self, statements: BoxStatements, cursor: Cursor, *, most: int) -> None:
        """Args:
        most: bytes of all payloads together; a larger one goes alone.
        """
        self._statements = statements
        self._cursor = cursor
        self._most = most
        self.left: set[int] = set()
        """Buckets with rows that are left for the next claim."""
        self.unreadable: dict[int, str] = {}

    def fill(self, rows: Sequence[Row], unreadable: Mapping[int, str]) -> list[Row]:
        """The rows that fit, with their payloads."""
        absent = [row[_ID] for row in rows if row[_PAYLOAD] is None and row[_ID] not in unreadable]
        sizes = self._statements.sizes(self._cursor, absent) if absent else {}
        kept = list(self._fitting(rows, sizes))
        payloads: dict[int, bytes] = {}
        for part in _parts([row[_ID] for row in kept if row[_ID] in sizes], sizes):
            try:
                payloads |= self._statements.payloads(self._cursor, part)
            except MemoryError:
                if len(kept) > 1:
                    raise  # the next claim is smaller
                self.unreadable[part[0]] = f"out of memory: its payload has {sizes[part[0]]} bytes"
        return [
            (*row[:_PAYLOAD], payloads[row[_ID]], *row[_PAYLOAD + 1 :]) if row[_ID] in payloads else row for row in kept
        ]

    def _fitting(self, rows: Sequence[Row], sizes: Mapping[int, int]) -> Iterator[Row]:
        """The first rows of each bucket, because no row may overtake another of its bucket."""
        used, first = 0, True
        for row in rows:
            payload = row[_PAYLOAD]
            size = sizes.get(row[_ID], 0) if payload is None else len(payload)
            if row[_BUCKET] in self.left or (not first and used + size > self._most):
                self.left.add(row[_BUCKET])
                continue
            used, first = used + size, False
            yield row


def _parts(ids: Sequence[int], sizes: Mapping[int, int]) -> Iterator[list[int]]:
    part: list[int] = []
    for item_id in ids:
        if part and sum(sizes[each] for each in part) + sizes[item_id] > PART:
            yield part
            part = []
        part.append(item_id)
    if part:
        yield part
