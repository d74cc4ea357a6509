"""What a box's table really looks like: tables of sbmt-outbox lack some columns and name one differently."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import NoSuchTableError

from boxengine.domain.box import Box
from boxengine.errors import SchemaMismatch

REQUIRED = ("id", "uuid", "event_key", "bucket", "status", "errors_count", "processed_at", "created_at", "updated_at")
OPTIONAL = {
    "event_name": "transports cannot be chosen by event name",
    "options": "items carry no options, so no key and no headers of their own",
    "error_log": "the reason of a failure is only in the logs",
    "available_at": "items cannot be delayed (available_at)",
    "dedup_key": "items cannot be deduplicated (dedup_key)",
}
"""Columns a table may lack, each with what is then missing."""


@dataclass(frozen=True, slots=True)
class BoxTable:
    """The table of one box: its quoted name, the columns it has, and the name of the payload's column."""

    box: Box
    name: str
    """Quoted, with schema."""
    columns: frozenset[str]
    payload: str
    """``payload``, or ``proto_payload`` as in old tables of sbmt-outbox."""
    zoned: bool
    """Whether moments are stored with a zone; without one they are UTC, as ActiveRecord writes them."""
    location: str = ""
    """Database or schema, and table, unquoted."""
    status_index: str | None = None
    """Quoted name of an index that begins with status and bucket, which serves MySQL's polls."""

    def has(self, column: str) -> bool:
        return column in self.columns

    @property
    def lacking(self) -> dict[str, str]:
        """Optional columns that are not there, with what is missing without each."""
        return {column: loss for column, loss in OPTIONAL.items() if column not in self.columns}


def reflect(connection: Connection, box: Box) -> BoxTable:
    """Looks the table up in the database.

    Raises:
        SchemaMismatch: there is no such table, or it lacks a column that every box needs.
    """
    schema, _, name = box.table.rpartition(".")
    try:
        found = inspect(connection).get_columns(name, schema=schema or None)
    except NoSuchTableError as error:
        raise SchemaMismatch(
            f"box {box.name}: there is no table {box.table!r}; make it with: boxengine db create"
        ) from error
    types = {column["name"]: column["type"] for column in found}
    payload = next((column for column in ("payload", "proto_payload") if column in types), None)
    missing = [column for column in REQUIRED if column not in types] + ([] if payload else ["payload"])
    if missing or payload is None:
        raise SchemaMismatch(f"box {box.name}: table {box.table!r} lacks {', '.join(missing)}")
    quote = connection.dialect.identifier_preparer.quote
    return BoxTable(
        box=box,
        name=".".join(quote(part) for part in (schema, name) if part),
        columns=frozenset(types),
        payload=payload,
        zoned=bool(getattr(types["processed_at"], "timezone", False)),
        location=f"{schema or connection.dialect.default_schema_name}.{name}",
        status_index=_status_index(connection, schema or None, name),
    )


def _status_index(connection: Connection, schema: str | None, name: str) -> str | None:
    for index in inspect(connection).get_indexes(name, schema=schema):
        if index["column_names"] in (["status", "bucket"], ["status", "bucket", "id"]) and index["name"]:
            return connection.dialect.identifier_preparer.quote(index["name"])
    return None
