"""Inserts on MySQL and MariaDB, which do not report which rows a statement has inserted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Insert, Table, insert, select
from sqlalchemy.dialects import mysql

from boxengine.adapters.sql.dialects.inserts import Inserts, chunks
from boxengine.ports import Attributes


class MySqlInserts(Inserts):
    """Statements over one table on MySQL or MariaDB."""

    tells_new = False

    def run(self, connection: Connection, rows: Sequence[Attributes]) -> list[int]:
        if connection.dialect.insert_returning:
            return super().run(connection, rows)
        # MySQL returns the first id of a statement. The others follow at a fixed step, whatever its lock mode.
        step = connection.exec_driver_sql("SELECT @@SESSION.auto_increment_increment").scalar_one()
        ids: list[int] = []
        for chunk in chunks(rows):
            first = connection.execute(insert(self.table).values(chunk)).lastrowid
            ids += range(first, first + step * len(chunk), step)
        return ids

    def insert_new(self) -> Insert:
        # Unlike INSERT IGNORE this ignores duplicates only.
        return mysql.insert(self.table).on_duplicate_key_update(id=self.table.c.id)

    def move_on(self, connection: Connection, counters: Table, steps: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        connection.execute(self.add_to(counters, steps))
        # This transaction has now written the rows, so it sees their current values.
        keys = [step["event_key"] for step in steps]
        query = select(counters.c.event_key, counters.c.last).where(counters.c.event_key.in_(keys))
        return dict(connection.execute(query).all())

    def add_to(self, counters: Table, steps: Sequence[Mapping[str, Any]]) -> Insert:
        adding = mysql.insert(counters).values(steps)
        return adding.on_duplicate_key_update(last=counters.c.last + adding.inserted.last)
