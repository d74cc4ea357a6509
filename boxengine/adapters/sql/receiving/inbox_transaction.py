"""One transaction in which received messages are stored, over a box's table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, bindparam, inspect, text

from boxengine.adapters.sql.connecting.errors import blaming_the_row
from boxengine.adapters.sql.shape.now import now_in_text
from boxengine.adapters.sql.shape.tables import BoxTable, finished_indexes
from boxengine.domain.item import Status


class SqlInboxTransaction:
    """``InboxTransaction``. Made by ``SqlInbox.transaction`` only."""

    def __init__(self, connection: Connection, table: BoxTable) -> None:
        self.session: Any = connection
        self._connection = connection
        self._table = table

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        with blaming_the_row(), self._connection.begin_nested():
            yield

    def reject(self, item_id: int, reason: str) -> None:
        log = ", error_log = :reason" if self._table.has("error_log") else ""
        # Leaves rows alone that have been tried or delivered meanwhile.
        statement = text(
            f"UPDATE {self._table.in_text} SET status = {Status.FAILED:d}, errors_count = 1{self._attempted_now()}{log} "
            f"WHERE id = :id AND status = {Status.PENDING:d} AND errors_count = 0"
        ).bindparams(bindparam("id", item_id))
        self._connection.execute(statement.bindparams(reason=self._table.log.fit(reason)) if log else statement)

    def _attempted_now(self) -> str:
        """Sets the moment from which retention keeps a failed row: a create middleware may have made it as old as its event.

        Not if the account lacks the privilege, as it may with grants for single columns: the message must be stored all the same.
        """
        postgresql = self._connection.dialect.name == "postgresql"
        if postgresql:
            may = text("SELECT has_column_privilege(:table, 'processed_at', 'UPDATE')")
            if not self._connection.execute(may, {"table": self._table.name}).scalar_one():
                return ""
        return f", processed_at = {now_in_text(postgresql=postgresql, zoned='processed_at' in self._table.zoned)}"

    def stored_options(self, dedup_keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        if not dedup_keys or not (self._table.has("dedup_key") and self._table.has("options")):
            return {}
        return self._options_in(self._table.in_text, dedup_keys)

    def _options_in(self, table: str, dedup_keys: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        query = text(f"SELECT dedup_key, options FROM {table} WHERE dedup_key IN :keys").bindparams(
            bindparam("keys", list(dedup_keys), expanding=True)
        )
        found = {str(key): _parsed(options) for key, options in self._connection.execute(query)}
        return {key: options for key, options in found.items() if isinstance(options, Mapping)}

    def stored_payloads(self, item_ids: Sequence[int]) -> Mapping[int, bytes]:
        query = text(f"SELECT id, {self._table.payload} FROM {self._table.in_text} WHERE id IN :ids").bindparams(
            bindparam("ids", list(item_ids), expanding=True)
        )
        found = self._connection.execute(query)
        return {int(row_id): value.encode() if isinstance(value, str) else bytes(value) for row_id, value in found}


def _parsed(options: Any) -> Any:
    """Parses the value of a JSON column: some drivers have done so already, and the value may be no JSON object."""
    if not isinstance(options, str | bytes):
        return options
    try:
        return json.loads(options)
    except (ValueError, RecursionError):
        return None


def has_unique(connection: Connection, table: str, column: str) -> bool:
    """Whether a unique index or constraint of the table has this column alone."""
    schema, _, name = table.rpartition(".")
    unique = [index["column_names"] for index in finished_indexes(connection, schema, name) if index["unique"]]
    constraints = [
        each["column_names"] for each in inspect(connection).get_unique_constraints(name, schema=schema or None)
    ]
    return [column] in unique or [column] in constraints
