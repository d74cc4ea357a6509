"""Statements longer than ``max_allowed_packet``, which MySQL and MariaDB answer by closing the connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Engine, event

from boxengine.errors import InvalidItem

_SHORT = 250_000
"""Characters. As bytes they are below every server's limit, unless somebody has lowered it."""
_ESCAPED = "\0\n\r\x1a\"'\\"
_LIMIT = "boxengine_max_allowed_packet"


def refuse_long_statements(engine: Engine) -> None:
    """Has a statement that is too long raise ``InvalidItem``, unsent. Without effect on PostgreSQL.

    A closed connection would mean that the server has gone, and whoever tries again until it is back would do so for ever.
    """
    if engine.dialect.name != "postgresql":
        event.listen(engine, "before_cursor_execute", _check)


def _check(
    connection: Connection,
    _cursor: object,
    statement: str,
    parameters: Any,
    _context: object,
    many: bool,  # noqa: FBT001 - SQLAlchemy's own signature
) -> None:
    if many:
        return  # the driver sends rows in portions
    values = list(parameters.values() if isinstance(parameters, Mapping) else parameters)
    if len(statement) + sum(len(each) for each in values if isinstance(each, str | bytes)) <= _SHORT:
        return
    length, limit = _length(statement, values), _limit(connection)
    if length + 1 >= limit:
        raise InvalidItem(
            f"the database: a statement of {length} bytes is too long; keep large data elsewhere, or raise max_allowed_packet on "
            f"the server, which is {limit}"
        )


def _length(statement: str, values: Iterable[object]) -> int:
    """In bytes, as the driver sends it, within a few."""
    return len(statement.encode()) + sum(map(_length_of, values))


def _length_of(value: object) -> int:
    if isinstance(value, bytes):
        return len(value) + sum(value.count(each.encode()) for each in _ESCAPED)
    text = str(value)
    return len(text.encode()) + sum(map(text.count, _ESCAPED))


def _limit(connection: Connection) -> int:
    """A session keeps the one that it began with."""
    known: int | None = connection.info.get(_LIMIT)
    if known is None:
        known = connection.info[_LIMIT] = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
    return known
