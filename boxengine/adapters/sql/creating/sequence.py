"""Gapless numbers per event key: a counter row for each key, moved on in the transaction that inserts the item.

Moving it on locks it until that transaction ends, so writers of one key wait for each other, and their items get ids,
numbers and commits in one order. A rollback takes the number back. Keys are taken in one order within a batch, so that
two batches cannot wait for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Dialect, MetaData, String, Table, TypeDecorator, inspect
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from boxengine.adapters.sql.dialects.inserts import Inserts
from boxengine.adapters.sql.shape.columns import length_of
from boxengine.adapters.sql.shape.tables import counters_of
from boxengine.domain.box import Box
from boxengine.errors import SchemaMismatch
from boxengine.ports import Attributes

KEYS_AT_ONCE = 500
LONGEST_KEY = 255
"""Characters of a key in the counters that ``db create`` makes."""
_MYSQL = ("mysql", "mariadb")


class ExactKey(TypeDecorator[str]):
    """A key compared to the byte: every MySQL collation equates some different keys, if only those with trailing spaces."""

    impl = String(LONGEST_KEY)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Bytes in MySQL, text elsewhere."""
        return dialect.type_descriptor(
            mysql.VARBINARY(4 * LONGEST_KEY) if dialect.name in _MYSQL else String(LONGEST_KEY)
        )

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | bytes | None:
        return value.encode() if value is not None and dialect.name in _MYSQL else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy passes it
        return value.decode() if isinstance(value, bytes) else value


def counters(table: Table, metadata: MetaData) -> Table:
    """The table of counters for ``table``: one row per event key, never deleted."""
    return Table(
        counters_of(table.name),
        metadata,
        Column("event_key", ExactKey(), primary_key=True),
        Column("last", BigInteger, nullable=False),
        schema=table.schema,
    )


class Numbering:
    """Numbers the items of one box as they are inserted."""

    def __init__(self, box: Box, table: Table, *, into: Callable[[Connection], Inserts]) -> None:
        """Args:
        into: returns the insert statements for a connection's database.
        """
        self._into = into
        self._box = box
        self._counters = counters(table, MetaData())
        self._there = False

    def number(self, connection: Connection, rows: Sequence[Attributes]) -> list[Attributes]:
        """The rows with their ``seq``, each key's in the order given. Waits for other writers of the same keys.

        Raises:
            SchemaMismatch: there is nothing to count in.
        """
        wanted = Counter(str(row["event_key"]) for row in rows)
        last = self._move_on(connection, wanted)
        following = {key: last[key] - count for key, count in wanted.items()}
        numbered = []
        for row in rows:
            key = str(row["event_key"])
            following[key] += 1
            numbered.append({**row, "seq": following[key]})
        return numbered

    def hold(self, connection: Connection, rows: Sequence[Attributes]) -> None:
        """Waits for other writers of these rows' keys, and takes no number yet.

        Raises:
            SchemaMismatch: there is nothing to count in.
        """
        self._move_on(connection, dict.fromkeys((str(row["event_key"]) for row in rows), 0))

    def longest_key(self, connection: Connection) -> int:
        """How many characters of a key the counters' own column takes; in MySQL, where it keeps bytes, how many bytes."""
        if not self._there:
            self._insist(connection)
        columns = inspect(connection).get_columns(self._counters.name, schema=self._counters.schema)
        return length_of(next((column["type"] for column in columns if column["name"] == "event_key"), None))

    def _move_on(self, connection: Connection, wanted: Mapping[str, int]) -> dict[str, int]:
        """Adds to the counters; returns their new values."""
        if not self._there:
            self._insist(connection)
        inserts = self._into(connection)
        last: dict[str, int] = {}
        for part in _parts(wanted):
            last |= inserts.move_on(connection, self._counters, part)
        return last

    def _insist(self, connection: Connection) -> None:
        if not inspect(connection).has_table(self._counters.name, schema=self._counters.schema):
            raise SchemaMismatch(
                f"box {self._box.name}: there is no table {self._counters.fullname!r} to count its numbers in; "
                "make it with: boxengine db create"
            )
        self._there = True


def _parts(wanted: Mapping[str, int]) -> Iterator[list[dict[str, Any]]]:
    """The keys in a fixed order, in parts that fit a statement."""
    keys = sorted(wanted)
    for start in range(0, len(keys), KEYS_AT_ONCE):
        yield [{"event_key": key, "last": wanted[key]} for key in keys[start : start + KEYS_AT_ONCE]]
