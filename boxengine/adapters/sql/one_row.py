"""One row at a time, as the driver takes it.

SQLAlchemy Core works a statement out anew at each execution: which one it is, which parameters it has, what fills in
those that are missing. For a create that is a tenth of its time in the client, and the same each time for rows of one
shape. It is done once here; the connection executes what came of it, so its events, logs and errors are as ever.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.sql.dml import ReturningInsert

from boxengine.adapters.sql.values import default_maker, processor, translates_schemas
from boxengine.ports import Attributes

_MOST_SHAPES = 100
"""An application has a few; one that makes up shapes must not fill the memory."""


class OneRow:
    """PostgreSQL's statement for one row of one table, by the shape of the row."""

    def __init__(self, table: Table, statement: ReturningInsert[Any]) -> None:
        """Args:
        statement: an INSERT into the table without values, which returns the id first.
        """
        self._table = table
        self._statement = statement
        self._shapes: dict[tuple[object, ...], _Shape] = {}

    def insert(self, connection: Connection, row: Attributes) -> int:
        """Inserts the row, whose keys are the table's or parameters of the statement, and returns its id.

        Raises:
            DBAPIError: as an INSERT through SQLAlchemy would.
        """
        shape = self._shape(connection, row)
        if shape is None:
            return int(connection.execute(self._statement, row).scalar_one())
        return int(connection.exec_driver_sql(shape.text, shape.values(row)).scalar_one())

    def _shape(self, connection: Connection, row: Attributes) -> _Shape | None:
        """What was worked out for rows like this one; None where the statement is left to SQLAlchemy."""
        if connection.dialect.driver != "psycopg" or translates_schemas(connection):
            return None
        # What a type makes of a value may be the engine's own choice, as json_serializer is.
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
        """If not, nothing but SQLAlchemy can make some of the values."""

    def values(self, row: Attributes) -> Attributes:
        """What the driver takes for the row."""
        values = {**self._fixed, **row}
        for name, make in self._makers.items():
            values[name] = make()
        for name, process in self._processors.items():
            values[name] = process(values[name])
        return values
