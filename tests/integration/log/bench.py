"""A log box over an empty database, one claim at a time."""

from __future__ import annotations

import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box, BoxType, Storage
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import FailedAttempt, Settlement


class Bench:
    """A log box over an empty database."""

    def __init__(self, url: str, **policy: object) -> None:
        self.engine = connect(url, connections=10)
        self.box = Box(
            name="order_item",
            table="order_items",
            storage=Storage.LOG,
            **{"type": BoxType.OUTBOX, "bucket_size": 2, **policy},  # type: ignore[arg-type]
        )
        schema.create(self.engine, [self.box])
        self.store = SqlStore(self.engine)
        self.rows = SqlRows(self.box)

    def put(self, connection: sa.Connection, key: str = "k", bucket: int = 0, payload: bytes = b"{}") -> ItemId:
        return self.rows.insert(connection, [{"event_key": key, "bucket": bucket, "payload": payload}]).ids[0]

    def commit(self, key: str = "k", bucket: int = 0, **values: object) -> ItemId:
        with self.engine.begin() as connection:
            return self.put(connection, key, bucket, **values)  # type: ignore[arg-type]

    def take(
        self,
        *,
        limit: int = 100,
        buckets: tuple[int, ...] = (0,),
        send: int = 100,
        fail: tuple[int, ...] = (),
        skip: tuple[int, ...] = (),
    ) -> list[int]:
        """One claim, of which so many of the first items are sent; returns their ids.

        Args:
            fail: ids whose attempts fail.
            skip: ids that are left without an outcome.
        """
        with self.store.plain_claims(self.box).open(dict.fromkeys(buckets), limit) as claim:
            ids = [item.id for item in claim.items][:send]
            failed = [FailedAttempt(each, Status.PENDING, 1, "broken") for each in ids if each in fail]
            delivered = [each for each in ids if each not in {*fail, *skip}]
            if ids:
                assert claim.commit(Settlement(delivered=delivered, failed=failed)) is None
        return ids

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        with self.engine.begin() as connection:
            return [tuple(row) for row in connection.execute(sa.text(sql))]

    def run(self, sql: str) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(sql)

    def side(self) -> list[tuple[object, ...]]:
        return self.ask("SELECT id, status, errors_count FROM order_items ORDER BY id")
