"""Inserts many rows of one shape through PostgreSQL's COPY: several times as fast as the fastest INSERT.

COPY returns nothing, so the ids are drawn from their sequence first, in the same transaction. Where anything is
unusual (a driver other than psycopg, a column of an unexpected type, no right to the sequence), the caller uses INSERT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import repeat
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg.adapt import PyFormat
from psycopg.types.json import Json, Jsonb
from sqlalchemy import Column, ColumnElement, Connection, Table, func, select, text
from sqlalchemy.exc import DBAPIError

from boxengine.adapters.sql.dialects.values import default_maker, left_to_sqlalchemy, processor, translates_schemas
from boxengine.adapters.sql.shape.tables import quoted
from boxengine.domain.new_values import UNSTORABLE
from boxengine.ports import Attributes

WORTHWHILE = 50
"""Rows from which COPY is faster; with fewer, its extra round trip costs more than it saves."""
_TYPES: Mapping[str, frozenset[str]] = {
    "id": frozenset({"int4", "int8"}),
    "bucket": frozenset({"int2", "int4", "int8"}),
    "event_key": frozenset({"text", "varchar"}),
}
"""By column, the types with which COPY is used; for all others ``_USUAL``."""
_JSON = ("json", "jsonb")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and (value.isprintable() or UNSTORABLE.search(value) is None)


def _is_integer(bits: int, value: Any) -> bool:
    """The driver would store only the last bits of a larger one."""
    return isinstance(value, int) and -(1 << bits - 1) <= value < 1 << bits - 1


def _is_binary(value: Any) -> bool:
    return isinstance(value.obj if isinstance(value, psycopg.Binary) else value, bytes | bytearray | memoryview)


def _is_moment(value: Any) -> bool:
    """What a moment without a zone means depends on the session."""
    return isinstance(value, datetime) and value.tzinfo is not None


_USUAL: Mapping[str, Callable[[Any], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "int2": partial(_is_integer, 16),
    "int4": partial(_is_integer, 32),
    "int8": partial(_is_integer, 64),
    "text": _is_text,
    "varchar": _is_text,
    "bytea": _is_binary,
    "uuid": lambda value: isinstance(value, UUID),
    "json": lambda value: isinstance(value, Json | Jsonb),
    "jsonb": lambda value: isinstance(value, Json | Jsonb),
    "timestamptz": _is_moment,
}
"""By type, which of a driver's values COPY stores as INSERT does. INSERT has the server convert others, such as the text of a
UUID."""
_SEQUENCE = """(SELECT coalesce(to_regclass(pg_get_serial_sequence(:name, 'id')), (
    SELECT d.refobjid::regclass FROM pg_attribute AS a
    JOIN pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
    JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_class'::regclass
    JOIN pg_class AS c ON c.oid = d.refobjid AND c.relkind = 'S'
    WHERE a.attrelid = CAST(:name AS regclass) AND a.attname = 'id')))"""
"""The table's own sequence, or the one that the ids' default draws from: a log shares that of its side table. As a query of its
own it is looked up once for a batch, and not for each of its ids."""
_FACTS = text(f"""
    SELECT a.attname, t.typname, has_sequence_privilege(s.id, 'USAGE') AND NOT c.relhasrules AND NOT row_security_active(c.oid)
    FROM (SELECT {_SEQUENCE}::oid AS id) AS s, pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
    JOIN pg_class AS c ON c.oid = a.attrelid
    WHERE a.attrelid = CAST(:name AS regclass) AND a.attnum > 0 AND NOT a.attisdropped
""")


class Copying:
    """COPY into one table, as the database has it."""

    def __init__(self, table: Table, name: str, types: Mapping[str, str]) -> None:
        """Args:
        name: of the table, quoted.
        types: PostgreSQL's own names, by column.
        """
        self._table = table
        self._name = name
        self._types = types

    @staticmethod
    def possible(connection: Connection) -> bool:
        """Whether the driver supports it: psycopg does, except under an async session."""
        return isinstance(connection.connection.driver_connection, psycopg.Connection) and not translates_schemas(
            connection
        )

    @classmethod
    def of(cls, connection: Connection, table: Table) -> Self | None:
        """None where a column rules COPY out, or the account may not draw from the sequence of its ids.

        The same where row-level security applies to the account, under which PostgreSQL refuses COPY, and where the table has
        rules, which COPY passes by.
        """
        name = quoted(connection.dialect, table.schema or "", table.name)
        facts = connection.execute(_FACTS, {"name": name}).all()
        allowed = bool(facts and facts[0][2])
        types = {column: type_ for column, type_, _ in facts}
        usual = all(
            types.get(column.name) in _TYPES.get(column.key, _USUAL)
            and (column.key == "id" or not left_to_sqlalchemy(column))
            for column in table.columns
        )
        return cls(table, name, types) if allowed and usual else None

    def insert(self, connection: Connection, rows: Sequence[Attributes]) -> list[int] | None:
        """Inserts rows of one shape and returns their ids, in the order given.

        None where INSERT has to do it, because COPY might store another value than INSERT, or fail in its middle and end the
        transaction with that. Nothing has been sent then.

        Raises:
            DBAPIError: as an INSERT through SQLAlchemy would.
        """
        given = rows[0].keys()
        missing = [column for column in self._table.columns if column.key not in given and column.default is not None]
        fixed = [column for column in missing if column.default is not None and column.default.is_clause_element]
        made = [column for column in missing if column.default is not None and not column.default.is_clause_element]
        own = [*(column for column in self._table.columns if column.key in given), *made]
        values = [self._values(connection, column, rows) for column in own]
        if not all(map(self._fit, own, values)):
            return None
        ids, drawn = self._draw(connection, fixed, len(rows))
        try:
            self._copy(connection, [*own, *fixed], zip(ids, *values, *map(repeat, drawn), strict=False))
        except psycopg.Error as error:
            raise DBAPIError.instance(
                f"COPY {self._name}", None, error, psycopg.Error, hide_parameters=True, dialect=connection.dialect
            ) from error
        return ids

    def _values(self, connection: Connection, column: Column[Any], rows: Sequence[Attributes]) -> list[Any]:
        """The column's values in the form the driver accepts."""
        key, make, process = column.key, default_maker(column), processor(column.type, connection.dialect)
        values = [row[key] for row in rows] if key in rows[0] or make is None else [make() for _ in rows]
        if process is not None:
            values = [*map(process, values)]
        return _dumped(values, connection) if self._types[column.name] in _JSON else values

    def _fit(self, column: Column[Any], values: Sequence[Any]) -> bool:
        fits = _USUAL[self._types[column.name]]
        return all(value is None or fits(value) for value in values)

    def _draw(
        self, connection: Connection, fixed: Sequence[Column[Any]], count: int
    ) -> tuple[list[int], Sequence[Any]]:
        """Ids, and the values of defaults that only the database knows; one moment for the whole batch."""
        expressions: list[ColumnElement[Any]] = [column.default.arg for column in fixed]  # type: ignore[union-attr]
        # Looked up for each batch: under another search_path the same name is another tenant's table, with its own sequence.
        sequence = text(_SEQUENCE).bindparams(name=self._name)
        drawn = connection.execute(
            select(func.nextval(sequence), *expressions).select_from(func.generate_series(1, count))
        ).all()
        return [row[0] for row in drawn], drawn[0][1:]

    def _copy(self, connection: Connection, columns: Sequence[Column[Any]], lines: Iterator[tuple[Any, ...]]) -> None:
        quote = partial(quoted, connection.dialect)
        names = ["id", *(column.name for column in columns)]
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor:
            target = f"COPY {self._name} ({', '.join(map(quote, names))}) FROM STDIN (FORMAT binary)"
            with cursor.copy(target) as stream:
                stream.set_types([self._types[name] for name in names])
                for line in lines:
                    stream.write_row(line)


def _dumped(values: Sequence[Any], connection: Connection) -> list[Any]:
    """JSON as text, so that what JSON cannot hold is refused before the COPY begins."""
    driver: Any = connection.connection.driver_connection
    dumpers = {kind: driver.adapters.get_dumper(kind, PyFormat.TEXT)(kind, driver) for kind in (Json, Jsonb)}
    return [
        type(value)(dumpers[type(value)].dump(value), dumps=_as_it_is) if type(value) in dumpers else value
        for value in values
    ]


def _as_it_is(dumped: bytes) -> bytes:
    return dumped
