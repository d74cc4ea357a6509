"""Checks that an application creates items with the number of buckets in force; asks the table once, with the first item.

Workers refuse a box whose size differs from the one recorded with its table. An application that goes on with the old size
would put items into buckets that nobody serves, or into another bucket than the rest of their key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, Table, text

from boxengine.adapters.sql.shape.tables import quoted, refuse_another_size, size_in
from boxengine.domain.box import Box

QUESTIONS: Mapping[str, str] = {
    "postgresql": "SELECT obj_description(to_regclass(:name), 'pg_class')",
    "mysql": "SELECT table_comment FROM information_schema.tables WHERE table_schema = database() AND table_name = :name",
}
"""For the table's comment, by the database's name."""
_IN_SCHEMA = "SELECT table_comment FROM information_schema.tables WHERE table_schema = :schema AND table_name = :name"


class SizeInForce:
    """The check of one box. Shared by all threads: it is harmless if two ask at once."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self.agreed = False
        """No more checks are needed: the sizes agree, or none is recorded."""

    def demand(self, ask: Callable[[], Any]) -> None:
        """Asks unless the sizes are known to agree.

        Args:
            ask: reads the table's comment.

        Raises:
            SchemaMismatch: another size is in force. The next item asks again.
        """
        if not self.agreed:
            refuse_another_size(self._box, size_in(str(ask() or "")))
            self.agreed = True


def comment(connection: Connection, table: Table) -> Any:
    """The table's comment, on the caller's own connection and in its transaction; None where the database has none."""
    schema = connection.schema_for_object(table)
    match connection.dialect.name:
        case "postgresql":
            question, values = QUESTIONS["postgresql"], {"name": quoted(connection.dialect, schema or "", table.name)}
        case "mysql" | "mariadb":
            question = _IN_SCHEMA if schema else QUESTIONS["mysql"]
            values = {"name": table.name} | ({"schema": schema} if schema else {})
        case _:
            return None
    return connection.execute(text(question), values).scalar()
