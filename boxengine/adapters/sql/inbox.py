"""The database side of consuming: transactions in which received messages are stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, bindparam, inspect, text

from boxengine.adapters.sql.errors import blaming_the_row, translated
from boxengine.adapters.sql.store import SqlStore
from boxengine.adapters.sql.tables import BoxTable
from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.errors import SchemaMismatch


class SqlInbox:
    """``Inbox`` over the database of a store."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._known: dict[str, frozenset[str]] = {}

    def columns(self, box: Box) -> frozenset[str]:
        if box.name not in self._known:
            self._known[box.name] = self._look_up(box)
        return self._known[box.name]

    @contextmanager
    def transaction(self, box: Box) -> Iterator[SqlInboxTransaction]:
        table = self._store.table(box)
        with translated(self._store.engine), self._store.engine.begin() as connection:
            yield SqlInboxTransaction(connection, table)

    def _look_up(self, box: Box) -> frozenset[str]:
        table = self._store.table(box)
        with translated(self._store.engine), self._store.engine.connect() as connection:
            if not table.has("dedup_key") and not _unique_uuid(connection, box):
                raise SchemaMismatch(
                    f"box {box.name}: table {box.table!r} could store a message twice: it needs a column dedup_key "
                    "(boxengine db ddl), or at least a unique index on uuid"
                )
            return table.columns


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
            f"UPDATE {self._table.in_text} SET status = {Status.FAILED:d}, errors_count = 1{log} "
            f"WHERE id = :id AND status = {Status.PENDING:d} AND errors_count = 0"
        ).bindparams(bindparam("id", item_id))
        self._connection.execute(statement.bindparams(reason=self._table.log.fit(reason)) if log else statement)

    def stored_options(self, dedup_keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        if not dedup_keys or not (self._table.has("dedup_key") and self._table.has("options")):
            return {}
        query = text(f"SELECT dedup_key, options FROM {self._table.in_text} WHERE dedup_key IN :keys").bindparams(
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
    except ValueError:
        return None


def _unique_uuid(connection: Connection, box: Box) -> bool:
    schema, _, name = box.table.rpartition(".")
    found = inspect(connection)
    unique: list[list[str | None]] = [
        index["column_names"] for index in found.get_indexes(name, schema=schema or None) if index["unique"]
    ]
    constraints = [each["column_names"] for each in found.get_unique_constraints(name, schema=schema or None)]
    return ["uuid"] in unique or ["uuid"] in constraints
