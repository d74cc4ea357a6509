"""One transaction in which received messages are stored in a log.

A message that comes twice is known by the log's unique indexes. Where it has stepped aside, or was received before the box had
a log, it is known by the side table: each insertion looks there first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from boxengine.adapters.sql.log.tables import BUCKET, IDENTITIES, in_text, is_logged, log_name, names_in, reflect_log
from boxengine.adapters.sql.receiving.inbox_transaction import SqlInboxTransaction, has_unique
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import BoxType
from boxengine.domain.item import Status
from boxengine.errors import SchemaMismatch

_AMONG = f"{BUCKET} = ANY(:buckets) AND t.id = ANY(:ids)"
"""Rows of the log by their ids: its index begins with the bucket, which nobody has named."""


class LogInboxTransaction(SqlInboxTransaction):
    """``InboxTransaction`` of a box with a log. Made by ``SqlInbox.transaction`` only."""

    def reject(self, item_id: int, reason: str) -> None:
        """Takes the row out of the log, where nobody has seen it yet, and puts it into the side table."""
        columns = ", ".join(map(in_text, reflect_log(self._connection, self._table).shared))
        told = ", error_log" if self._table.has("error_log") else ""
        statement = text(
            f"WITH t AS (DELETE FROM {self._log} AS t WHERE {_AMONG} RETURNING *) "
            f"INSERT INTO {self._table.in_text} ({columns}, status, errors_count, updated_at, processed_at{told}) "
            f"SELECT {columns}, {Status.FAILED:d}, 1, now(), now(){', CAST(:reason AS text)' if told else ''} FROM t"
        )
        values = {"reason": self._table.log.fit(reason)} if told else {}
        self._connection.execute(statement, self._among([item_id]) | values)

    def stored_options(self, dedup_keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        aside = super().stored_options(dedup_keys)
        return {**self._options_in(self._log, dedup_keys), **aside} if dedup_keys else {}

    def stored_payloads(self, item_ids: Sequence[int]) -> Mapping[int, bytes]:
        query = text(f"SELECT t.id, t.payload FROM {self._log} AS t WHERE {_AMONG}")
        found = self._connection.execute(query, self._among(item_ids))
        return {**super().stored_payloads(item_ids), **{int(row_id): bytes(payload) for row_id, payload in found}}

    @property
    def _log(self) -> str:
        return in_text(log_name(self._table))

    def _among(self, item_ids: Sequence[int]) -> dict[str, Any]:
        return {"buckets": list(self._table.box.buckets), "ids": list(item_ids)}


def columns_of_log(connection: Connection, side: BoxTable) -> frozenset[str]:
    """The columns of an inbox box's items.

    Raises:
        SchemaMismatch: a message that comes twice would be two items.
    """
    reflect_log(connection, side)
    box = side.box
    log = f"{side.schema}.{names_in(box)[0]}"
    for column in IDENTITIES:
        if side.has(column) and not has_unique(connection, log, column):
            raise SchemaMismatch(
                f"box {box.name}: its log could store a message twice: it has no unique index over {column}; "
                "make it with: boxengine db create"
            )
    return frozenset(column for column in side.columns if is_logged(column, BoxType.INBOX))
