"""Finds trouble in the database: privileges, indexes, dead rows, old transactions, settings that lose commits, clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from boxengine.adapters.sql.checking import ids
from boxengine.adapters.sql.checking.mysql import MySqlChecks
from boxengine.adapters.sql.checking.postgresql import PostgresChecks
from boxengine.adapters.sql.checking.server import AREA, ServerChecks
from boxengine.adapters.sql.connecting import clock
from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import checks
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import Box
from boxengine.engine.checkup import LONG_TRANSACTION, clock_remark
from boxengine.errors import SchemaMismatch, StoreConflict
from boxengine.ports.people.checkup import Remark

SUSPICIOUS = timedelta(seconds=10)
"""Where a table has many dead rows, an older transaction is reported: it may be what keeps vacuum from removing them."""
HANGING = timedelta(seconds=10)
"""A commit waits no longer for a synchronous standby that is there."""
BEHIND, SLIGHTLY_BEHIND = 1_000_000, 1_000
"""Transactions after which a query on a standby is reported; the second where a table has many dead rows."""


class SqlCheckup:
    """``Checkup`` of the database of a ``SqlStore``."""

    def __init__(self, store: SqlStore, *, models: Sequence[type] = (), now: Callable[[], datetime]) -> None:
        """Args:
        models: the users' classes for the boxes' tables.
        now: this machine's clock, with zone.
        """
        self._store = store
        self._models = models
        self._now = now

    def remarks(self, boxes: Sequence[Box]) -> list[Remark]:
        with translated(self._store.engine), self._store.engine.connect() as connection:
            server = _checks(connection)
            found = [*server.server(), *self._clocks(connection), *self._alarms(server, boxes)]
            for box in boxes:
                table = self._table(box)
                if table is not None:
                    lacking = [*server.privileges(table)]
                    found += [*lacking, *server.autovacuum(table), *server.bloat(table), *server.conversion(table)]
                    if not any(remark.is_finding for remark in lacking):
                        found += ids.remarks(connection, table, area=AREA)
        return found + self._tables(boxes)

    def alarms(self, boxes: Sequence[Box]) -> list[Remark]:
        """Problems to show without being asked, found by a few cheap statements."""
        with translated(self._store.engine), self._store.engine.connect() as connection:
            server = _checks(connection)
            return [remark for remark in self._alarms(server, boxes) if remark.is_finding]

    def decay(self, boxes: Sequence[Box]) -> list[Remark]:
        """Findings about what makes deliveries slower and slower: old transactions, slots, dead rows, late vacuums."""
        with translated(self._store.engine), self._store.engine.connect() as connection:
            server = _checks(connection)
            found = [*self._alarms(server, boxes), *server.slots()]
            for table in filter(None, map(self._table, boxes)):
                found += server.autovacuum(table)
            return [remark for remark in found if remark.is_finding]

    def _alarms(self, server: ServerChecks, boxes: Sequence[Box]) -> Iterator[Remark]:
        tables = [table for table in map(self._table, boxes) if table is not None]
        dead = [remark for table in tables for remark in server.dead_rows(table)]
        yield from server.commits(HANGING)
        yield from server.transactions(SUSPICIOUS if dead else LONG_TRANSACTION)
        yield from server.standbys(SLIGHTLY_BEHIND if dead else BEHIND)
        yield from dead

    def _table(self, box: Box) -> BoxTable | None:
        try:
            return self._store.table(box)
        except (SchemaMismatch, StoreConflict):
            return None  # reported with the tables

    def _tables(self, boxes: Sequence[Box]) -> list[Remark]:
        found = [
            Remark(area=AREA, text=f"{each.box}: {each.message}", advice=each.remedy, box=each.box)
            for each in checks.check(self._store.engine, list(boxes), self._models)
        ]
        return found or [Remark(area=AREA, text="Tables and indexes are as they should be.")]

    def _clocks(self, connection: Connection) -> Iterator[Remark]:
        before = self._now()
        told = connection.execute(text(clock.question(connection.dialect.name))).scalar_one()
        yield clock_remark(AREA, "The database's clock", before, clock.in_utc(told), self._now())


def _checks(connection: Connection) -> ServerChecks:
    return (PostgresChecks if connection.dialect.name == "postgresql" else MySqlChecks)(connection)
