"""Lets delivered rows go out once more, as copies or themselves, inside the database: no payload travels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, assert_never

from sqlalchemy import inspect, text
from sqlalchemy.types import BINARY, LargeBinary

from boxengine.adapters.sql.log.tables import in_text
from boxengine.adapters.sql.looking.item_rows import SHOWN, ItemRows
from boxengine.adapters.sql.shape.now import now_in_text
from boxengine.adapters.sql.shape.tables import BoxTable, quoted
from boxengine.domain.item import ONLY_TO, REPLAY_OF
from boxengine.errors import BoxError
from boxengine.ports import Copying, ItemFilter, Overtaking, Replay

_SAME = ("event_key", "bucket")
_OURS = frozenset((*SHOWN, "updated_at", "seq", "return_value", "started_at"))
"""Columns that boxengine gives a value, or whose value belongs to the original's delivery."""
_FRESH = frozenset({"id", "uuid", "dedup_key"})
"""Of these a copy has a value of its own, or none."""
_IDENTITY = "Idempotency-Key"


class RowReplays:
    """Replays one table's rows, within one transaction."""

    def __init__(self, found: BoxTable, rows: ItemRows) -> None:
        self._found = found
        self._rows = rows
        self._postgresql = rows.dialect == "postgresql"

    @cached_property
    def _inspector(self) -> Any:
        """It remembers what it has read."""
        return inspect(self._rows.connection)

    def make(self, which: ItemFilter, ids: Sequence[int], replay: Replay) -> int:
        """Returns how many rows will be delivered once more."""
        if not self._found.has("options"):
            raise BoxError(f"table {self._found.box.table} has no column options, so a replay could not be marked")
        match replay:
            case Copying():
                return self._insert(which, ids, replay)
            case Overtaking():
                options = text(self._options(replay, "options", "uuid")).bindparams(**self._marks(replay))
                return len(self._rows.send_again(which, ids, options=options))
            case never:
                assert_never(never)

    def _insert(self, which: ItemFilter, ids: Sequence[int], copying: Copying) -> int:
        meant = self._rows.meant_among(which, ids)
        if not meant:
            return 0
        self._rows.rehouse(meant)
        name, payload = self._found.in_text, self._found.payload
        values = {
            "uuid": self._uuid(),
            **{column: f"t.{column}" for column in (*_SAME, payload)},
            "status": "0",
            "errors_count": "0",
            "created_at": self._now("created_at"),
            "updated_at": self._now("updated_at"),
            "options": self._options(copying, "t.options", "t.uuid"),
        }
        bound = self._marks(copying)
        if self._found.has("event_name"):
            values["event_name"] = "t.event_name" if copying.event_name is None else ":event_name"
            bound |= {} if copying.event_name is None else {"event_name": copying.event_name}
        if self._found.numbered:
            values["seq"] = "t.seq"
        values |= {column: f"t.{column}" for column in self._own()}
        listed = ", ".join(map(str, meant))
        statement = (
            f"INSERT INTO {name} ({', '.join(values)}) SELECT {', '.join(values.values())} FROM {name} AS t "
            f"WHERE t.id IN ({listed}) ORDER BY t.id"
        )
        return int(self._rows.connection.execute(text(statement), bound).rowcount)

    def _own(self) -> list[str]:
        """The application's own columns, quoted: without those that the database computes, or that no two rows may share."""
        schema, _, name = self._found.box.table.rpartition(".")
        indexes = self._inspector.get_indexes(name, schema=schema or None)
        unique = {
            column
            for index in indexes
            if index["unique"] and _FRESH.isdisjoint(index["column_names"])
            for column in index["column_names"]
        }
        others = _OURS | unique | {self._found.payload}
        own = [
            column["name"]
            for column in self._inspector.get_columns(name, schema=schema or None)
            if column["name"] not in others and not (column.get("computed") or column.get("identity"))
        ]
        return [in_text(quoted(self._inspector.dialect, name)) for name in own]

    def _now(self, column: str) -> str:
        return now_in_text(postgresql=self._postgresql, zoned=column in self._found.zoned)

    def _uuid(self) -> str:
        if self._postgresql:
            return "gen_random_uuid()"
        schema, _, name = self._found.box.table.rpartition(".")
        columns = self._inspector.get_columns(name, schema=schema or None)
        if any(column["name"] == "uuid" and isinstance(column["type"], BINARY | LargeBinary) for column in columns):
            raise BoxError(f"table {self._found.box.table} keeps uuids as bytes, which a replay cannot make")
        return "REPLACE(UUID(), '-', '')" if self._found.bare_uuids else "UUID()"

    def _marks(self, replay: Replay) -> dict[str, Any]:
        """The parameters of ``_options``."""
        more: dict[str, str | None] = {**replay.options} if isinstance(replay, Copying) else {}
        if replay.transport is not None:
            more[ONLY_TO] = replay.transport
        elif not self._postgresql:
            more[ONLY_TO] = None  # a merge removes the key
        return {"header": REPLAY_OF, "more": json.dumps(more, ensure_ascii=False)}

    def _options(self, replay: Replay, options: str, uuid: str) -> str:
        """The row's own options, with headers that mark it; the marks of an earlier replay are removed."""
        if self._postgresql:
            own = f"CASE WHEN jsonb_typeof({options}::jsonb) = 'object' THEN {options}::jsonb ELSE '{{}}'::jsonb END"
            headers = (
                f"CASE WHEN jsonb_typeof({own} -> 'headers') = 'object' THEN {own} -> 'headers' ELSE '{{}}'::jsonb END"
            )
            identity = self._identity(replay, f"({headers}) ->> '{_IDENTITY}'", f"{uuid}::text")
            marks = f"CAST(:header AS text), {uuid}::text" + (f", '{_IDENTITY}', {identity}" if identity else "")
            merged = f"jsonb_build_object('headers', (({headers}) - '{_IDENTITY}') || jsonb_build_object({marks}))"
            built = f"((({own}) - '{ONLY_TO}') || CAST(:more AS jsonb) || {merged})::json"
            return built.replace("::", "\\:\\:")
        own = f"CASE WHEN JSON_TYPE({options}) = 'OBJECT' THEN {options} ELSE JSON_OBJECT() END"
        given = f"NULLIF(JSON_UNQUOTE(JSON_EXTRACT({options}, '$.headers.\"{_IDENTITY}\"')), 'null')"
        identity = self._identity(replay, given, f"CAST({uuid} AS CHAR)") or "NULL"  # a merge removes the key
        marks = f":header, CAST({uuid} AS CHAR), '{_IDENTITY}', {identity}"
        return f"JSON_MERGE_PATCH({own}, :more, JSON_OBJECT('headers', JSON_OBJECT({marks})))"

    def _identity(self, replay: Replay, given: str, own: str) -> str | None:
        """The ``Idempotency-Key`` header; None: the engine derives it from the copy's own uuid."""
        if replay.same_identity:
            return f"coalesce({given}, {own})"
        if isinstance(replay, Copying):
            return None
        return f"{self._uuid()}::text" if self._postgresql else f"CAST({self._uuid()} AS CHAR)"
