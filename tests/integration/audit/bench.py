"""A box with rows as somebody left them, and its audit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.audit import SqlAudit
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.domain.item import Status
from boxengine.engine.audit.audit import Audit
from boxengine.engine.audit.findings import Finding
from boxengine.engine.audit.table import TableAudit
from tests.conformance.sql_stores import SqlHarness

PENDING, FAILED, DELIVERED, DISCARDED = map(int, Status)


class Bench:
    """One box over one database; moments are given as seconds ago."""

    def __init__(self, harness: SqlHarness, **policy: Any) -> None:
        assert isinstance(harness.store, SqlStore)
        self.harness = harness
        self.store = harness.store
        self.box = harness.make_box(**{"bucket_size": 16, **policy})
        self.now = harness.now()

    def ago(self, seconds: float) -> datetime:
        return self.now - timedelta(seconds=seconds)

    def pending(self, key: object = "7", *, since: float = 0, **columns: Any) -> int:
        return self._insert(key, since, **columns)

    def delivered(self, key: object = "7", *, ago: float = 0, since: float = 3600, **columns: Any) -> int:
        return self._insert(key, since, **{"status": DELIVERED, "processed_at": self.ago(ago), **columns})

    def _insert(self, key: object, since: float, **columns: Any) -> int:
        bucket = columns.pop("bucket", self.box.partition_strategy(key, self.box.bucket_size))
        return self.harness.insert(self.box, event_key=key, bucket=bucket, created_at=self.ago(since), **columns)

    def audit(self, *, page: int = 2, **options: Any) -> Audit:
        """With pages of two rows, so that what belongs together is read apart."""
        rows = SqlAudit(self.store, page=page)
        return Audit(TableAudit(self.box, store=self.store, items=SqlItems(self.store), rows=rows, **options))

    def findings(self, **options: Any) -> list[Finding]:
        return list(self.audit(**options).findings())

    def told(self, **options: Any) -> list[tuple[str, int | None, str | None]]:
        """Kind, item and key of each finding."""
        return [(str(each.kind), each.item, each.key) for each in self.findings(**options)]

    def execute(self, sql: str) -> None:
        with self.store.engine.begin() as connection:
            connection.execute(sa.text(sql))
