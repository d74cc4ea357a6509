"""Copies of delivered rows, made in the database: no payload travels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import inspect, text
from sqlalchemy.types import BINARY, LargeBinary

from boxengine.adapters.sql.item_rows import ItemRows
from boxengine.adapters.sql.tables import BoxTable
from boxengine.errors import BoxError
from boxengine.ports import Copying, ItemFilter

_SAME = ("event_key", "bucket")
_IDENTITY = "Idempotency-Key"


class Copies:
    """Of the rows of one table, within one transaction."""

    def __init__(self, found: BoxTable, rows: ItemRows) -> None:
        self._found = found
        self._rows = rows
        self._postgresql = rows.dialect == "postgresql"

    def insert(self, which: ItemFilter, ids: Sequence[int], copying: Copying) -> int:
        """How many were copied."""
        if not self._found.has("options"):
            raise BoxError(f"table {self._found.box.table} has no column options, so a replay could not be marked")
        meant = self._rows.meant_among(which, ids)
        if not meant:
            return 0
        name, payload = self._found.in_text, self._found.payload
        now = self._now()
        values = {
            "uuid": self._uuid(),
            **{column: f"t.{column}" for column in (*_SAME, payload)},
            "status": "0",
            "errors_count": "0",
            "created_at": now,
            "updated_at": now,
            "options": self._options(copying),
        }
        bound: dict[str, Any] = {
            "header": copying.header,
            "more": json.dumps(dict(copying.options), ensure_ascii=False),
        }
        if self._found.has("event_name"):
            values["event_name"] = "t.event_name" if copying.event_name is None else ":event_name"
            bound |= {} if copying.event_name is None else {"event_name": copying.event_name}
        if self._found.numbered:
            values["seq"] = "t.seq"
        listed = ", ".join(map(str, meant))
        statement = (
            f"INSERT INTO {name} ({', '.join(values)}) SELECT {', '.join(values.values())} FROM {name} AS t "
            f"WHERE t.id IN ({listed}) ORDER BY t.id"
        )
        return int(self._rows.connection.execute(text(statement), bound).rowcount)

    def _now(self) -> str:
        if self._postgresql:
            return "now()" if self._found.zoned else "(now() AT TIME ZONE 'UTC')"
        return "UTC_TIMESTAMP(6)"

    def _uuid(self) -> str:
        if self._postgresql:
            return "gen_random_uuid()"
        schema, _, name = self._found.box.table.rpartition(".")
        columns = inspect(self._rows.connection).get_columns(name, schema=schema or None)
        if any(column["name"] == "uuid" and isinstance(column["type"], BINARY | LargeBinary) for column in columns):
            raise BoxError(f"table {self._found.box.table} keeps uuids as bytes, which a replay cannot make")
        return "UUID()"

    def _options(self, copying: Copying) -> str:
        """The row's own, with what marks the copy among the headers."""
        if self._postgresql:
            own = "CASE WHEN jsonb_typeof(t.options::jsonb) = 'object' THEN t.options::jsonb ELSE '{}'::jsonb END"
            headers = (
                f"CASE WHEN jsonb_typeof({own} -> 'headers') = 'object' THEN {own} -> 'headers' ELSE '{{}}'::jsonb END"
            )
            marks = "CAST(:header AS text), t.uuid::text"
            marks += f", '{_IDENTITY}', t.uuid::text" if copying.same_identity else ""
            merged = f"jsonb_build_object('headers', {headers} || jsonb_build_object({marks}))"
            return f"(({own}) || CAST(:more AS jsonb) || {merged})::json".replace("::", "\\:\\:")
        own = "CASE WHEN JSON_TYPE(t.options) = 'OBJECT' THEN t.options ELSE JSON_OBJECT() END"
        marks = ":header, CAST(t.uuid AS CHAR)" + (
            f", '{_IDENTITY}', CAST(t.uuid AS CHAR)" if copying.same_identity else ""
        )
        return f"JSON_MERGE_PATCH({own}, :more, JSON_OBJECT('headers', JSON_OBJECT({marks})))"
