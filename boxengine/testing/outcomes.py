"""Where outcomes of a drain over a database are kept: in the rows of a table, or beside those of a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from sqlalchemy import Connection, Table, delete, update

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.rows import Row
from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import Settlement


class Outcomes(Protocol):
    """Where the outcomes of one box's items are kept."""

    def keep(self, settlement: Settlement) -> None:
        """Keeps the outcomes of one batch."""


class TableOutcomes:
    """Outcomes in the rows of the box's table."""

    def __init__(self, connection: Connection, table: Table, box: Box, clock: ManualClock) -> None:
        self._connection = connection
        self._table = table
        self._box = box
        self._clock = clock

    def keep(self, settlement: Settlement) -> None:
        columns, now = self._table.c, self._clock.now()
        if self._box.retention.deletes_on_delivery and settlement.delivered:
            self._connection.execute(delete(self._table).where(columns.id.in_(settlement.delivered)))
        for item_id in settlement.delivered:
            self._set(item_id, status=int(Status.DELIVERED), processed_at=now, updated_at=now)
        for each in settlement.not_delivered:
            self._set(
                each.id,
                status=int(each.status),
                errors_count=each.errors_count,
                error_log=each.error_log,
                processed_at=now,
                updated_at=now,
            )

    def _set(self, item_id: int, **values: Any) -> None:
        known = {name: value for name, value in values.items() if name in self._table.c}
        self._connection.execute(update(self._table).where(self._table.c.id == item_id).values(**known))


class LogOutcomes:
    """Outcomes of a log, in memory: its rows are never written to."""

    def __init__(self, rows: Sequence[Row], settled: dict[ItemId, Row], clock: ManualClock) -> None:
        """Args:
        rows: all of the box.
        settled: where they are put.
        """
        self._rows = {row.id: row for row in rows}
        self._settled = settled
        self._clock = clock

    def keep(self, settlement: Settlement) -> None:
        for item_id in settlement.delivered:
            self._set(item_id, status=int(Status.DELIVERED))
        for each in settlement.not_delivered:
            self._set(each.id, status=int(each.status), errors_count=each.errors_count, error_log=each.error_log)

    def _set(self, item_id: int, **values: Any) -> None:
        now = self._clock.now()
        self._settled[item_id] = replace(self._rows[item_id], processed_at=now, updated_at=now, **values)
