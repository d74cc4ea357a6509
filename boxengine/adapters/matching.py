"""Rows and messages brought together on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from boxengine.adapters.scratch import Scratch
from boxengine.ports.people.audit import FirstSending, Mismatch, RowTrace, Trace

_OFFSET_BITS = 44
"""Of a place; the partition's number stands above them."""
_OFFSET = (1 << _OFFSET_BITS) - 1
_HEX_DIGITS = 32
_TABLE = (
    "CREATE TABLE traces (uuid BLOB, row_id INTEGER, awaited INTEGER, message_id INTEGER, key BLOB, partition INTEGER, "
    "place INTEGER, created INTEGER, repetition INTEGER, topic INTEGER)"
)
_MISMATCHES = """
SELECT uuid, max(row_id), max(awaited), count(CASE WHEN NOT repetition THEN place END),
    count(DISTINCT CASE WHEN NOT repetition THEN topic END), max(message_id), max(key), max(place),
    coalesce(max(CASE WHEN row_id IS NOT NULL THEN created END), min(created))
FROM traces GROUP BY uuid
HAVING count(CASE WHEN NOT repetition THEN place END) > count(DISTINCT CASE WHEN NOT repetition THEN topic END)
    OR max(row_id) IS NULL OR (max(awaited) = 1 AND count(place) = 0)
"""
_FIRST_SENDINGS = """
SELECT key, partition, message_id, min(place) FROM traces
WHERE key IS NOT NULL AND message_id IS NOT NULL AND NOT repetition
GROUP BY key, partition, message_id ORDER BY key, partition, message_id DESC
"""


class SqliteMatching:
    """``Matching`` in a temporary database, about 100 bytes for each row and each message."""

    def __init__(self, folder: Path | None = None) -> None:
        """Args:
        folder: where its temporary folder is made; None: where the system has them (``TMPDIR``).

        Raises:
            BoxError: no database can be made there.
        """
        self._scratch = Scratch(_TABLE, folder)

    def add_rows(self, rows: Iterable[RowTrace]) -> None:
        self._insert(
            (_packed(row.uuid), row.id, row.awaited, None, None, None, None, row.created, 0, None) for row in rows
        )

    def add_messages(self, traces: Iterable[Trace]) -> None:
        self._insert(
            (
                _packed(trace.uuid),
                None,
                None,
                trace.id,
                trace.key,
                trace.partition,
                trace.partition << _OFFSET_BITS | trace.offset,
                trace.created,
                trace.repetition,
                trace.topic,
            )
            for trace in traces
        )

    def mismatches(self) -> Iterator[Mismatch]:
        for uuid, row_id, awaited, messages, topics, message_id, key, place, created in self._scratch.select(
            _MISMATCHES
        ):
            yield Mismatch(
                uuid=_unpacked(uuid),
                row_id=row_id,
                awaited=bool(awaited),
                messages=messages,
                topics=topics,
                message_id=message_id,
                key=key,
                created=created,
                partition=None if place is None else place >> _OFFSET_BITS,
                offset=None if place is None else place & _OFFSET,
            )

    def first_sendings(self) -> Iterator[FirstSending]:
        for key, partition, item_id, place in self._scratch.select(_FIRST_SENDINGS):
            yield FirstSending(key, partition, item_id, place & _OFFSET)

    def close(self) -> None:
        self._scratch.close()

    def _insert(self, values: Iterable[tuple[Any, ...]]) -> None:
        self._scratch.insert("INSERT INTO traces VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def _packed(uuid: str) -> bytes | str:
    """Sixteen bytes, in whatever spelling it comes; text that is no uuid as it is."""
    digits = uuid.replace("-", "")
    try:
        return bytes.fromhex(digits) if len(digits) == _HEX_DIGITS else uuid
    except ValueError:
        return uuid


def _unpacked(uuid: bytes | str) -> str:
    return uuid if isinstance(uuid, str) else str(UUID(bytes=uuid))
