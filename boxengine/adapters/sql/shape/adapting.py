"""The table of a box without a class of the user's, as the database has it."""

from __future__ import annotations

from sqlalchemy import BigInteger, ColumnDefault, Connection, DateTime, MetaData, Table

from boxengine.adapters.sql.shape.columns import BareUuid, UtcMoment
from boxengine.adapters.sql.shape.now import stored_now
from boxengine.adapters.sql.shape.tables import reflect
from boxengine.domain.box import Box


def adapted(table: Table, box: Box, connection: Connection) -> Table:
    """The table without the columns that it lacks there: one made by sbmt-outbox may lack some, and name the payload differently.

    Columns keep their keys, whatever their names.

    Raises:
        SchemaMismatch: there is no such table, or it lacks a column that every box needs.
    """
    found = reflect(connection, box)
    columns = []
    for column in table.columns:
        name = found.payload if column.name == "payload" else column.name
        if name in found.columns:
            copy = column._copy()  # noqa: SLF001 - SQLAlchemy's way to take a column over
            copy.name, copy.key = name, column.name
            if name in ("created_at", "updated_at"):
                # Rails sets these two itself, so its tables have no default for them.
                copy.default = ColumnDefault(stored_now(connection.dialect, zoned=name in found.zoned))
            if isinstance(copy.type, DateTime) and name not in found.zoned:
                copy.type = UtcMoment()
            if name == "uuid" and found.bare_uuids:
                copy.type = BareUuid()
            if name == "event_key" and found.numeric_keys:
                copy.type = BigInteger()
            columns.append(copy)
    return Table(table.name, MetaData(), *columns, schema=table.schema)
