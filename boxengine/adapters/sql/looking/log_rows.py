"""Rows of a log for people: an item that no delivery has passed yet, or that was delivered, stands in no side table."""

from __future__ import annotations

from sqlalchemy import text

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.log.reading import BEHIND
from boxengine.adapters.sql.log.tables import BUCKET, LogTable, in_text, reflect_log
from boxengine.adapters.sql.looking.item_rows import SHOWN
from boxengine.adapters.sql.looking.items import item_row
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Status
from boxengine.ports import ItemRow


class LogRows:
    """The log's rows of any box of a store; of a box without a log, none."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    def get(self, box: Box, item_id: int) -> ItemRow | None:
        """One row with its payload: pending as long as no delivery has passed it, else delivered; None: the log has no such row.

        A log keeps no outcomes. A row whose item failed, and whose row in the side table was deleted since, counts as delivered.
        """
        if box.storage is Storage.TABLE:
            return None
        side = self._store.table(box)
        with translated(self._store.engine), self._store.engine.begin() as connection:
            found = reflect_log(connection, side)
            row = connection.execute(text(_one(found)), {"id": item_id}).mappings().one_or_none()
        if row is None:
            return None
        shown = {name: value for name, value in row.items() if name in (*SHOWN, "payload")}
        return item_row({**shown, "status": Status.DELIVERED if row["passed"] else Status.PENDING, "errors_count": 0})


def _one(found: LogTable) -> str:
    # Bucket by bucket: the index by id begins with the bucket, which nobody has named.
    return (
        f"SELECT t.*, pg_visible_in_snapshot(t.xact, held.passed) OR ({BEHIND}) AS passed "
        f"FROM {in_text(found.positions)} AS held CROSS JOIN LATERAL ("
        f"SELECT t.* FROM {in_text(found.log)} AS t WHERE {BUCKET} = held.bucket AND t.id = :id LIMIT 1) AS t"
    )
