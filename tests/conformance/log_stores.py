"""The conformance suite's harness over log boxes on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from boxengine.domain.box import Box, BoxType, Storage
from tests.conformance.sql_stores import SqlHarness, of_postgresql

LOGGED = frozenset({"uuid", "event_key", "event_name", "bucket", "payload", "options", "created_at"})


class SqlLogHarness(SqlHarness):
    """Fresh items stand in the log; a row that is given a past stands in the side table, as if it had got there by it."""

    storage = Storage.LOG

    def __init__(self, url: str) -> None:
        super().__init__(url, **of_postgresql())

    def insert(self, box: Box, *, event_key: object = "k", bucket: int = 0, **columns: Any) -> int:
        if not columns.keys() <= LOGGED:
            return super().insert(box, event_key=event_key, bucket=bucket, **columns)
        fresh = {"uuid": str(uuid4()), "payload": b"", "event_key": str(event_key), "bucket": bucket, **columns}
        return self._insert(f"{box.table}_log", fresh)

    def rows(self, box: Box) -> list[Mapping[str, Any]]:
        """The side table's, and those of the log that are not in it, as far as their bucket's position tells of them."""
        in_log = (
            f"SELECT t.*, coalesce(pg_visible_in_snapshot(t.xact, p.passed) OR (p.batch IS NOT NULL AND t.id <= p.place "
            f"AND pg_visible_in_snapshot(t.xact, p.batch)), false) AS passed FROM {box.table}_log AS t "
            f"LEFT JOIN {box.table}_positions AS p USING (bucket)"
        )
        logged = self._run(f"{in_log} WHERE NOT EXISTS (SELECT 1 FROM {box.table} AS s WHERE s.id = t.id)")
        untried = {"errors_count": 0, "error_log": None, "processed_at": None}
        found = [*super().rows(box), *({**row, "status": 2 * row["passed"], **untried} for row in logged)]
        return sorted(found, key=lambda row: row["id"])


class SqlInboxLogHarness(SqlLogHarness):
    """The same of inbox boxes, whose log has unique indexes."""

    box_type = BoxType.INBOX
