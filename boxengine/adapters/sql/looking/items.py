"""Shows rows to people and applies their changes, each in a transaction of its own; wakes the workers where that helps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.connecting.reading import reading
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.item_rows import SHOWN, ItemRows
from boxengine.adapters.sql.looking.replays import RowReplays
from boxengine.adapters.sql.waking.listen import CHANNEL
from boxengine.domain.box import Box, StrictOrder
from boxengine.engine.replaying import refuse_log
from boxengine.errors import QueueUnavailable, StoreUnavailable
from boxengine.ports import ItemFilter, ItemRow, Replay, Signal

_RAW_UUID = 16
"""Bytes of a uuid that a MySQL schema stores in binary."""
_UNREADABLE = (StoreUnavailable, ValueError, RecursionError)
"""What is raised over a value that Python cannot hold, such as JSON that is nested too deeply; as text it can be shown."""


class SqlItems:
    """``ItemsStore`` over the database of a ``SqlStore``."""

    def __init__(
        self, store: SqlStore, *, notify: bool = False, signal: Callable[[list[Signal]], None] | None = None
    ) -> None:
        """Args:
        store: knows the tables.
        notify: wake the workers by the database's own notification, where it has one.
        signal: or, where it has none, by calling this after the commit.
        """
        self._store = store
        self._notify = notify
        self._signal = signal

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────

    def count(self, box: Box, which: ItemFilter) -> int:
        with self._read(box) as rows:
            return rows.count(which)

    def last_id(self, box: Box) -> int | None:
        with self._read(box) as rows:
            return rows.last_id()

    def ids(self, box: Box, which: ItemFilter, *, after: int | None, limit: int) -> list[int]:
        with self._read(box) as rows:
            return rows.ids(which, after=after or 0, limit=limit)

    def page(self, box: Box, which: ItemFilter, *, after: int | None, limit: int) -> list[ItemRow]:
        try:
            with self._read(box) as rows:
                return [item_row(row) for row in rows.page(which, after=after or 0, limit=limit)]
        except _UNREADABLE:
            with self._read(box) as rows:
                return [item_row(row) for row in rows.page(which, after=after or 0, limit=limit, as_text=True)]

    def get(self, box: Box, item_id: int) -> ItemRow | None:
        try:
            with self._read(box) as rows:
                found = rows.get(item_id)
        except _UNREADABLE:
            # The row is shown even if the driver cannot read one of its values.
            with self._read(box) as rows:
                found = rows.get(item_id, as_text=True)
        return None if found is None else item_row(found)

    # ── acting ───────────────────────────────────────────────────────────────────────────────────────

    def retry(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        return self._change(box, lambda rows: rows.retry(which, ids), wakes=True, again=True)

    def restart(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        return self._change(box, lambda rows: rows.restart(which, ids), wakes=True, again=True)

    def discard(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        return self._change(box, lambda rows: rows.discard(which, ids), wakes=_frees_others(box))

    def delete(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        return self._change(box, lambda rows: rows.delete(which, ids), wakes=_frees_others(box))

    def replay(self, box: Box, which: ItemFilter, ids: Sequence[int], how: Replay) -> int:
        refuse_log(box)
        replayed = 0

        def act(rows: ItemRows) -> list[int]:
            nonlocal replayed
            replayed = RowReplays(self._store.table(box), rows).make(which, ids, how)
            return list(ids[:replayed])

        self._change(box, act, wakes=True, again=True)
        return replayed

    def _change(
        self, box: Box, act: Callable[[ItemRows], list[int]], *, wakes: bool, again: bool = False
    ) -> frozenset[int]:
        with self._rows(box) as rows:
            changed = act(rows)
            wakes = wakes and bool(changed)
            signal = Signal(box.name, None, again=again)
            if wakes and self._notify and rows.dialect == "postgresql":
                rows.connection.execute(select(func.pg_notify(CHANNEL, signal.encode())))
        if wakes and self._signal is not None:
            # The commit stands; a lost hint costs one poll interval.
            with suppress(QueueUnavailable):
                self._signal([signal])
        return frozenset(changed)

    @contextmanager
    def _read(self, box: Box) -> Iterator[ItemRows]:
        found = self._store.table(box)
        with translated(self._store.engine), reading(self._store.engine) as connection:
            yield ItemRows(found, connection)

    @contextmanager
    def _rows(self, box: Box) -> Iterator[ItemRows]:
        """Opens a transaction over the box's table."""
        found = self._store.table(box)
        with translated(self._store.engine), self._store.engine.begin() as connection:
            yield ItemRows(found, connection)


def _frees_others(box: Box) -> bool:
    """Whether removing a row may free others that wait for it."""
    return box.strict_order is not StrictOrder.NONE


def item_row(row: Any) -> ItemRow:
    """Converts the driver's row to the form shown to people."""
    values: dict[str, Any] = dict.fromkeys((*SHOWN, "payload"))
    values |= row
    values |= {name: _moment(values[name]) for name in ("created_at", "processed_at", "available_at")}
    options = values["options"]
    if isinstance(options, str | bytes):
        with suppress(ValueError, RecursionError):  # no JSON that can be read: shown unchanged
            values["options"] = json.loads(options)
    uuid = values["uuid"]
    values["uuid"] = str(UUID(bytes=uuid)) if isinstance(uuid, bytes) and len(uuid) == _RAW_UUID else str(uuid)
    values["event_key"] = str(values["event_key"])  # old tables keep it as a number
    if isinstance(values["payload"], str):
        values["payload"] = values["payload"].encode()
    return ItemRow(**values)


def _moment(value: Any) -> Any:
    """The moment with its zone; one read as text stays text if Python cannot represent it."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):  # no moment, or one that has no date in UTC that Python could represent
        return value
