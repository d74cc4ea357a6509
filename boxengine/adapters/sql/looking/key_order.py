"""Sorts rows by key on disk, for tables that have no index by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from itertools import islice
from typing import Any

from boxengine.adapters.scratch import Scratch
from boxengine.ports.people.audit import AuditedRow

_TABLE = (
    "CREATE TABLE audited (id INTEGER, event_key TEXT, bucket INTEGER, status INTEGER, may_wait INTEGER, "
    "processed_at TEXT, created_at TEXT, seq INTEGER, replayed INTEGER)"
)
_IN_ORDER = "SELECT * FROM audited ORDER BY event_key DESC, id DESC"


def by_key(pages: Iterable[Sequence[AuditedRow]], *, page: int) -> Iterator[Sequence[AuditedRow]]:
    """Yields all rows grouped by key, within a key the latest id first, in pages of ``page`` rows.

    Raises:
        BoxError: the temporary files cannot be written.
    """
    with closing(Scratch(_TABLE)) as scratch:
        for each in pages:
            scratch.insert("INSERT INTO audited VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(_kept, each))
        with closing(scratch.select(_IN_ORDER)) as rows:
            while ordered := list(map(_restored, islice(rows, page))):
                yield ordered


def _kept(row: AuditedRow) -> tuple[Any, ...]:
    *others, processed_at, created_at, seq, replayed = row
    return (*others, None if processed_at is None else processed_at.isoformat(), created_at.isoformat(), seq, replayed)


def _restored(row: tuple[Any, ...]) -> AuditedRow:
    item_id, key, bucket, status, may_wait, processed_at, created_at, seq, replayed = row
    tried = None if processed_at is None else datetime.fromisoformat(processed_at)
    created = datetime.fromisoformat(created_at)
    return AuditedRow(item_id, key, bucket, status, bool(may_wait), tried, created, seq, replayed)
