"""Inserts single rows with statements that are compiled once.

At each execution SQLAlchemy Core works a statement out again: which one it is, which parameters it has, what fills in
missing ones. That is a tenth of a create's time in the client, with the same result for all rows of one
shape. Here it is done once. The connection still executes the statement, so its events, logs and errors are the usual ones.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, CursorResult, Table
from sqlalchemy.sql.dml import ReturningInsert

from boxengine.adapters.sql.dialects.values import default_maker, processor, translates_schemas
from boxengine.ports import Attributes

_MOST_SHAPES = 100
"""An application has a few; one that produces ever new shapes must not fill the memory."""


class OneRow:
    """Inserts single rows into one table on PostgreSQL; keeps a compiled statement for each shape of row."""

    def __init__(self, table: Table, statement: ReturningInsert[Any]) -> None:
        """Args:
        statement: an INSERT into the table without values.
        """
        self._table = table
        self._statement = statement
        self._shapes: dict[tuple[object, ...], _Shape] = {}

    def insert(self, connection: Connection, row: Attributes) -> CursorResult[Any]:
        """Inserts the row, whose keys are the table's or parameters of the statement, and returns what that returns.

        Raises:
            DBAPIError: as an INSERT through SQLAlchemy would.
        """
        shape = self._shape(connection, row)
        if shape is None:
            return connection.execute(self._statement, row)
        return connection.exec_driver_sql(shape.text, shape.values(row))

    def _shape(self, connection: Connection, row: Attributes) -> _Shape | None:
        """The compiled statement for rows like this one; None where SQLAlchemy must run the statement itself."""
        if connection.dialect.driver != "psycopg" or translates_schemas(connection):
            return None
        # An engine may change how a type converts values: its json_serializer does.
        key = (connection.dialect, *row)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            shape = self._shapes[key] = _Shape(connection, self._table, self._statement, row)
        return shape if shape.understood else None


class _Shape:
    """The statement for rows with the same keys."""

    def __init__(self, connection: Connection, table: Table, statement: ReturningInsert[Any], row: Attributes) -> None:
        dialect, columns = connection.dialect, table.columns
        compiled: Any = statement.compile(dialect=dialect, column_keys=[key for key in row if key in columns])
        self.text = str(compiled)
        missing = [name for name in compiled.params if name not in row]
        self._fixed = {name: compiled.params[name] for name in missing if name not in columns}
        makers = {name: default_maker(columns[name]) for name in missing if name in columns}
        self._makers = {name: make for name, make in makers.items() if make is not None}
        processors = {name: processor(bind.type, dialect) for bind, name in compiled.bind_names.items()}
        self._processors = {name: process for name, process in processors.items() if process is not None}
        self.understood = len(self._makers) == len(makers) and not compiled.escaped_bind_names
        """If false, only SQLAlchemy can produce some of the values."""

    def values(self, row: Attributes) -> Attributes:
        """The row's values in the form the driver accepts."""
        values = {**self._fixed, **row}
        for name, make in self._makers.items():
            values[name] = make()
        for name, process in self._processors.items():
            values[name] = process(values[name])
        return values
