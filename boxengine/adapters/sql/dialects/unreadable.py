"""Decodes what it can of rows that the driver cannot read, so that each fails by itself and under its own id.

Infinite moments, years beyond 9999 or before Christ, MySQL's zero dates, bytes that are not text, NULL where every item has a
value: boxengine does not write such rows, and one must not stop its bucket.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from boxengine.adapters.sql.dialects.base import ROW_FIELDS, Row
from boxengine.domain.item import Item

NUMBERS = frozenset({"id", "bucket", "status", "errors_count"})
EARLIEST, LATEST = "TIMESTAMP '0001-01-02 00:00:00'", "TIMESTAMP '9999-12-30 00:00:00'"
"""The range that Python can represent in any zone."""
Unreadable = dict[int, str]
"""The reason, by id."""


def reason_of(error: Exception) -> str:
    """The sentence for the row's ``error_log``."""
    return f"the row cannot be read: {type(error).__name__}: {' '.join(str(error).split())}"


def legible(cells: Sequence[Any], *, now: datetime) -> Row:
    """Decodes an item's fields from the server's values, in whatever form; an unreadable ``created_at`` becomes ``now``.

    Bytes are numbers in PostgreSQL's binary form, or text.
    """
    fields: dict[str, Any] = dict.fromkeys(Item._fields[:ROW_FIELDS])
    for name, cell in zip(fields, cells, strict=False):
        if name in NUMBERS:
            fields[name] = int.from_bytes(cell, "big", signed=True) if isinstance(cell, bytes) else int(cell or 0)
        elif name in ("uuid", "event_key"):
            fields[name] = _text(cell) or ""
        elif name == "event_name":
            fields[name] = _text(cell)
    fields["raw_created_at"] = now
    return tuple(fields.values()) + (None,) * (len(cells) - ROW_FIELDS)


def _text(cell: Any) -> str | None:
    if cell is None:
        return None
    return cell.decode(errors="replace") if isinstance(cell, bytes | bytearray) else str(cell)


def without_values(rows: Sequence[Row], needed: Collection[str]) -> Unreadable:
    """Rows that are NULL where an item needs a value."""
    places = {Item._fields.index("raw_created_at" if name == "created_at" else name): name for name in sorted(needed)}
    found: Unreadable = {}
    for row in rows:
        absent = [name for place, name in places.items() if row[place] is None]
        if absent:
            found[row[0]] = f"the row cannot be read: {', '.join(absent)} is NULL"
    return found


def within_reach(moment: str) -> str:
    """SQL for the moment, clamped to the range that Python can represent."""
    return f"CASE WHEN {moment} < {EARLIEST} THEN {EARLIEST} WHEN {moment} > {LATEST} THEN {LATEST} ELSE {moment} END"


def is_within_reach(moment: str) -> str:
    """SQL that tests whether Python can represent the moment."""
    return f"{moment} >= {EARLIEST} AND {moment} <= {LATEST}"
