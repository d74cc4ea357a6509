"""Inserting on SQLite, for users' own tests: no worker runs on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Insert, Table
from sqlalchemy.dialects import sqlite

from boxengine.adapters.sql.dialects.inserts import Inserts


class SqliteInserts(Inserts):
    """Statements over one table on SQLite."""

    tells_new = True

    def insert_new(self) -> Insert:
        columns = self.table.c
        ignoring = sqlite.insert(self.table).on_conflict_do_nothing()
        return ignoring.returning(columns.id, *(columns[name] for name in self.identities))

    def add_to(self, counters: Table, steps: Sequence[Mapping[str, Any]]) -> Insert:
        columns = counters.c
        adding = sqlite.insert(counters).values(steps)
        moved = {"last": columns.last + adding.excluded.last}
        upsert = adding.on_conflict_do_update(index_elements=[columns.event_key], set_=moved)
        return upsert.returning(columns.event_key, columns.last)
