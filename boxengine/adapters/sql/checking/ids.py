"""How many ids a box's table has left. Once the last one is used, every commit that writes an item fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.exc import DBAPIError

from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.ports.people.checkup import Remark

FULL = 0.7
"""The share of used ids from which a table is reported: the larger type takes a quiet hour, which must be found."""
_COLUMN = text(
    "SELECT format_type(atttypid, NULL), CASE attlen WHEN 2 THEN 32767 WHEN 4 THEN 2147483647 ELSE 9223372036854775807 END "
    "FROM pg_attribute WHERE attrelid = to_regclass(:name) AND attname = 'id'"
)
_SEQUENCE = text(
    "SELECT CAST(CAST(seqrelid AS regclass) AS text), seqmax, CASE WHEN has_sequence_privilege(seqrelid, 'SELECT, USAGE') "
    "THEN pg_sequence_last_value(seqrelid) END FROM pg_sequence "
    "WHERE seqrelid = to_regclass(pg_get_serial_sequence(:name, 'id'))"
)
"""A column that became a bigint may still get its values from a sequence of integers; a log draws from that of its side table."""
_COLUMN_OF_MYSQL = text(
    "SELECT column_type FROM information_schema.columns "
    "WHERE table_schema = :schema AND table_name = :name AND column_name = 'id'"
)
_POWERS = {"tinyint": 7, "smallint": 15, "mediumint": 23, "int": 31, "bigint": 63}
"""MySQL's types, each with the power of two at which it ends if it has a sign."""
_REWRITES = "Writers and workers wait while it rewrites the table; run boxengine cleanup first."


class Room(NamedTuple):
    """What ends first, and at which number: the column's type, or its sequence."""

    what: str
    most: int
    advice: str
    last: int | None = None
    """The last id that the sequence gave, if this account may know it."""


def remarks(connection: Connection, table: BoxTable, *, area: str) -> Iterator[Remark]:
    """Whether most of them are used."""
    find = _of_postgres if connection.dialect.name == "postgresql" else _of_mysql
    room = find(connection, table)
    if room is None:
        return
    used = max(_highest_in(connection, _highest(table)), room.last or 0)
    if used > FULL * room.most:
        yield Remark(
            area=area,
            box=table.box.name,
            text=f"{table.box.table} has used {used / room.most:.0%} of its ids: {room.what} ends at {room.most:,}. "
            "After that, every commit that writes an item fails.",
            advice=room.advice,
        )


def _highest(table: BoxTable) -> TextClause:
    return text(f"SELECT max(id) FROM {table.in_text}")


def _highest_in(connection: Connection, query: TextClause) -> int:
    """0: the table is empty, or somebody has locked it; other checks tell of that."""
    try:
        with connection.begin_nested():
            return int(connection.execute(query).scalar() or 0)
    except DBAPIError:
        return 0


def _of_postgres(connection: Connection, table: BoxTable) -> Room | None:
    column = connection.execute(_COLUMN, {"name": table.name}).one_or_none()
    if column is None:
        return None
    sequence = connection.execute(_SEQUENCE, {"name": table.name}).one_or_none()
    (kind, most), (name, end, last) = column, sequence or ("", column[1], None)
    if end < most:
        return Room("its sequence", end, f"As its owner: {_larger(name)}", last)
    return Room(f"its column id, {kind},", most, _rewritten(table, name), last)


def _of_mysql(connection: Connection, table: BoxTable) -> Room | None:
    where = {"schema": table.schema, "name": table.box.table.rpartition(".")[2]}
    kind = str(connection.execute(_COLUMN_OF_MYSQL, where).scalar())
    power = _POWERS.get(kind.partition("(")[0].partition(" ")[0])
    if power is None:
        return None
    return Room(f"its column id, {kind},", 2 ** (power + ("unsigned" in kind)) - 1, _modified(table))


def _larger(sequence: str) -> str:
    return f"ALTER SEQUENCE {sequence} AS bigint"


def _rewritten(table: BoxTable, sequence: str) -> str:
    also = f"; {_larger(sequence)}" if sequence else ""
    return f"In a quiet hour, as its owner: ALTER TABLE {table.name} ALTER COLUMN id TYPE bigint{also}. {_REWRITES}"


def _modified(table: BoxTable) -> str:
    return f"In a quiet hour: ALTER TABLE {table.name} MODIFY id BIGINT NOT NULL AUTO_INCREMENT. {_REWRITES}"
