"""The database side of consuming: transactions in which received messages are stored."""

from __future__ import annotations

from collections.abc import Iterator
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
        # A row that is known from before may have been retried by hand, and delivered: it stays as it is.
        statement = text(
            f"UPDATE {self._table.in_text} SET status = {Status.FAILED:d}, errors_count = 1{log} "
            f"WHERE id = :id AND status = {Status.PENDING:d} AND errors_count = 0"
        ).bindparams(bindparam("id", item_id))
        self._connection.execute(statement.bindparams(reason=reason) if log else statement)


def _unique_uuid(connection: Connection, box: Box) -> bool:
    schema, _, name = box.table.rpartition(".")
    found = inspect(connection)
    unique: list[list[str | None]] = [
        index["column_names"] for index in found.get_indexes(name, schema=schema or None) if index["unique"]
    ]
    constraints = [each["column_names"] for each in found.get_unique_constraints(name, schema=schema or None)]
    return ["uuid"] in unique or ["uuid"] in constraints
