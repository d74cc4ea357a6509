"""The database side of consuming: transactions in which received messages are stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boxengine.adapters.sql.connecting.engine import limit_lock_wait
from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.receiving.inbox_transaction import SqlInboxTransaction, has_unique
from boxengine.adapters.sql.receiving.log_inbox import LogInboxTransaction, columns_of_log
from boxengine.domain.box import Box, Storage
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
        kind = SqlInboxTransaction if box.storage is Storage.TABLE else LogInboxTransaction
        table = self._store.table(box)
        with translated(self._store.engine), self._store.engine.begin() as connection:
            # An application that stores the same item, and does not commit, would hold back the consumer without a word.
            limit_lock_wait(connection)
            yield kind(connection, table)

    def _look_up(self, box: Box) -> frozenset[str]:
        table = self._store.table(box)
        with translated(self._store.engine), self._store.engine.connect() as connection:
            if box.storage is Storage.LOG:
                return columns_of_log(connection, table)
            if not table.has("dedup_key") and not has_unique(connection, box.table, "uuid"):
                raise SchemaMismatch(
                    f"box {box.name}: table {box.table!r} could store a message twice: it needs a column dedup_key "
                    "(boxengine db ddl), or at least a unique index on uuid"
                )
            return table.columns
