"""The table of a box as the database has it, whatever boxengine, or a class of the user's, takes it for."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, ColumnDefault, Connection, DateTime, Dialect, MetaData, Table, text

from boxengine.adapters.sql.shape.columns import BareUuid, UtcMoment
from boxengine.adapters.sql.shape.now import stored_now
from boxengine.adapters.sql.shape.tables import quoted, reflect
from boxengine.domain.box import Box

_MOMENTS = frozenset({"processed_at", "created_at", "updated_at", "available_at"})
_WITHOUT_ZONE = text(
    "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(:name) AND atttypid = CAST('timestamp' AS regtype)"
)


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


def mapped(table: Table, connection: Connection) -> Table:
    """The table of a user's class, with UTC in the box's moments that the database stores without a zone, as Rails does.

    The class may say that they have one. Otherwise PostgreSQL would store them in the session's zone, and other databases in
    whatever zone a moment has.
    """
    zoneless = _without_zone(table, connection)
    changed = {each.name for each in table.columns if each.name in zoneless and _is_local(each, connection.dialect)}
    if not changed:
        return table
    columns = []
    for column in table.columns:
        copy = column._copy()  # noqa: SLF001 - as above
        if column.name in changed:
            copy.type = UtcMoment()
            if column.name in ("created_at", "updated_at") and column.default is None:
                copy.default = ColumnDefault(stored_now(connection.dialect, zoned=False))
        columns.append(copy)
    return Table(table.name, MetaData(), *columns, schema=table.schema)


def _without_zone(table: Table, connection: Connection) -> frozenset[str]:
    """The box's moments that have no zone in the database; only PostgreSQL has a type for those with one."""
    if connection.dialect.name != "postgresql":
        return _MOMENTS
    name = quoted(connection.dialect, connection.schema_for_object(table) or "", table.name)
    return _MOMENTS.intersection(connection.execute(_WITHOUT_ZONE, {"name": name}).scalars())


def _is_local(column: Column[Any], dialect: Dialect) -> bool:
    """Whether the type leaves a moment's zone to the session, or drops it."""
    return isinstance(column.type.dialect_impl(dialect), DateTime)
