"""Asks the catalog about many tables at once: PostgreSQL takes 15 ms and more for each alone, so half a minute for hundreds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, inspect, text
from sqlalchemy.engine.interfaces import ReflectedColumn, ReflectedIndex
from sqlalchemy.engine.reflection import ObjectKind, ObjectScope

from boxengine.domain.box import Box

Key = tuple[str | None, str]
"""A schema, if the configuration names it, and a table."""
_PLACES = text(
    "SELECT asked.name, n.nspname, obj_description(c.oid, 'pg_class'), ARRAY(SELECT CAST(i.relname AS text) FROM pg_index AS x "
    "JOIN pg_class AS i ON i.oid = x.indexrelid WHERE x.indrelid = c.oid AND NOT x.indisvalid) "
    "FROM unnest(CAST(:names AS text[])) AS asked(name) JOIN pg_class AS c ON c.oid = to_regclass(asked.name) "
    "JOIN pg_namespace AS n ON n.oid = c.relnamespace"
)


class Place(NamedTuple):
    """What is known of a table besides its columns and indexes."""

    schema: str
    comment: str
    unfinished: Sequence[str]
    """Names of indexes that no query uses: see ``unfinished_indexes``."""


def key_of(box: Box) -> Key:
    schema, _, name = box.table.rpartition(".")
    return schema or None, name


def columns_and_indexes(
    connection: Connection, keys: Collection[Key]
) -> tuple[dict[Key, list[ReflectedColumn]], dict[Key, list[ReflectedIndex]]]:
    """Of the tables that are there, each in one statement for each schema, as SQLAlchemy tells of a single table."""
    columns: dict[Key, list[ReflectedColumn]] = {}
    indexes: dict[Key, list[ReflectedIndex]] = {}
    present = inspect(connection)
    for schema in {schema for schema, _ in keys}:
        names = [name for of, name in keys if of == schema]
        columns |= present.get_multi_columns(schema, filter_names=names, kind=ObjectKind.ANY, scope=ObjectScope.ANY)
        indexes |= present.get_multi_indexes(schema, filter_names=names, kind=ObjectKind.ANY, scope=ObjectScope.ANY)
    return columns, indexes


def places(connection: Connection, names: Sequence[str]) -> dict[str, Place]:
    """By name, as far as there are such tables; on PostgreSQL only. A name without a schema is found as the session's settings
    say, those of the configured URL.

    Args:
        names: quoted.
    """
    rows = connection.execute(_PLACES, {"names": list(names)})
    return {name: Place(schema, comment or "", unfinished) for name, schema, comment, unfinished in rows}
