"""Detects that a table's definition has changed: from a statement's error, or by reading its columns and indexes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import BindParameter, Connection, bindparam, text

_CHANGED_STATES = frozenset({"42703", "42P01", "42704", "42883"})
"""No such column, table, object, operator."""
_CHANGED_WORDS = ("cached plan must not change result type", "could not open relation", "cache lookup failed")
_CHANGED_NUMBERS = frozenset({1054, 1146, 1176, 1412})
"""MySQL and MariaDB: no such column, table, index; the definition has changed."""
_NAMES: list[BindParameter[str]] = [bindparam(name, expanding=True) for name in ("schemas", "tables")]
"""Compared apart: by the two in one text, a database would look through its whole catalog."""
_POSTGRESQL = text("""
    SELECT n.nspname, c.relname, a.attname, a.atttypid::text, concat(a.atttypmod, a.attnotnull)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE c.relname IN :tables AND n.nspname IN :schemas AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT n.nspname, c.relname, i.relname, i.oid::text, x.indisvalid::text
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_index AS x ON x.indrelid = c.oid
    JOIN pg_class AS i ON i.oid = x.indexrelid WHERE c.relname IN :tables AND n.nspname IN :schemas
    UNION ALL
    SELECT n.nspname, c.relname, NULL, obj_description(c.oid, 'pg_class'), NULL
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relname IN :tables AND n.nspname IN :schemas AND obj_description(c.oid, 'pg_class') IS NOT NULL
""").bindparams(*_NAMES)
_MYSQL = text("""
    SELECT table_schema, table_name, column_name, column_type, is_nullable FROM information_schema.columns
    WHERE table_schema IN :schemas AND table_name IN :tables
    UNION ALL
    SELECT table_schema, table_name, index_name, concat(seq_in_index, column_name), non_unique FROM information_schema.statistics
    WHERE table_schema IN :schemas AND table_name IN :tables
    UNION ALL
    SELECT table_schema, table_name, NULL, table_comment, NULL FROM information_schema.tables
    WHERE table_schema IN :schemas AND table_name IN :tables AND table_comment <> ''
""").bindparams(*_NAMES)

Shape = frozenset[tuple[object, ...]]
"""The parts of a table's columns, indexes and comment that its statements depend on."""


def tells_of_a_change(error: BaseException | None) -> bool:
    """Whether a change of the table's definition may explain the driver's error."""
    if error is None:
        return False
    if getattr(error, "sqlstate", None) in _CHANGED_STATES or any(words in str(error) for words in _CHANGED_WORDS):
        return True
    return next(iter(error.args), None) in _CHANGED_NUMBERS


def shapes(connection: Connection, locations: Collection[str]) -> Mapping[str, Shape]:
    """Reads the tables' definitions in one statement. A table that is gone has no parts.

    Args:
        locations: ``schema.table``, unquoted.
    """
    query = _POSTGRESQL if connection.dialect.name == "postgresql" else _MYSQL
    found: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    schemas, tables = zip(*(location.rsplit(".", 1) for location in locations), strict=True)
    names = {"schemas": sorted(set(schemas)), "tables": sorted(set(tables))}
    for schema, table, *what in connection.execute(query, names):
        found[f"{schema}.{table}"].add(tuple(what))
    return {location: frozenset(found[location]) for location in locations}
