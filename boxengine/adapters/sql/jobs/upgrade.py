"""The steps that bring the tables of job boxes, as an earlier version made them, to what this one makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection
from sqlalchemy.schema import CreateIndex, CreateTable

from boxengine.adapters.sql.jobs.schema import Models, tables, tuning
from boxengine.adapters.sql.making.planning import Step, TablePlanner, at_table
from boxengine.adapters.sql.shape.tables import unfinished_indexes
from boxengine.domain.jobs import JobBox


def plan(connection: Connection, boxes: Sequence[JobBox], models: Models) -> list[Step]:
    """The steps still to take, in order, for ``sql.upgrade.apply``; none if the database has all it needs. Changes nothing."""
    steps: list[Step] = []
    for box, table in tables(boxes, models):
        with at_table(connection.engine, table.fullname):
            steps += _Planner(connection, table, box.name).steps()
    return steps


def plan_indexes(connection: Connection, boxes: Sequence[JobBox], models: Models) -> list[Step]:
    """Of these steps only the indexes of tables that are there."""
    return [step for step in plan(connection, boxes, models) if step.concurrent]


def plan_settings(connection: Connection, boxes: Sequence[JobBox], models: Models) -> list[Step]:
    """Of these steps only the settings, for a table that does not exist yet, too: something else makes the rest."""
    return [step for box, table in tables(boxes, models) for step in _Planner(connection, table, box.name).settings()]


class _Planner(TablePlanner):
    def steps(self) -> list[Step]:
        return [*self._columns(), *self._indexes(), *self.settings()] if self._is_there() else self._whole_table()

    def _whole_table(self) -> list[Step]:
        indexes = sorted(self._table.indexes, key=lambda index: str(index.name))
        statements = [
            self._compiled(CreateTable(self._table)),
            *(self._compiled(CreateIndex(each)) for each in indexes),
        ]
        return self._table_steps([*statements, *tuning(self._dialect, self._table)])

    def _columns(self) -> Iterator[Step]:
        known = self._known_columns()
        for column in self._table.columns:
            if column.name not in known:
                # Each has a default, or takes NULL: no row is written anew for it.
                yield self._column_step(f"add the column {column.name}", column)

    def _indexes(self) -> Iterator[Step]:
        known = self._known_indexes()
        broken = unfinished_indexes(self._connection, self._name)
        for index in sorted(self._table.indexes, key=lambda index: str(index.name)):
            yield from self._missing_index_steps(str(index.name), self._compiled(CreateIndex(index)), known, broken)

    def settings(self) -> Iterator[Step]:
        """The steps that set what a table that is there lacks; all of them for one that is not."""
        is_there = self._is_there()
        for statement in tuning(self._dialect, self._table):
            if not (is_there and self._is_set(statement)):
                yield self._step("autovacuum settings for a table whose rows change often", statement)
