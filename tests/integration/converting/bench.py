"""One box between table and log, over an empty database, with the processes of both configurations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.converting.conversion import Conversion
from boxengine.adapters.sql.converting.patience import Patience
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.log.stage import Stage
from boxengine.adapters.sql.making import schema, sizes
from boxengine.domain.box import Box, BoxType, Storage, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from tests.eventually import eventually

TABLE, LOG = Storage.TABLE, Storage.LOG


class Bench:
    """A box that has been a table so far."""

    def __init__(self, url: str, **policy: object) -> None:
        self.engine = connect(url, connections=10)
        own = {"bucket_size": 2, "strict_order": StrictOrder.KEY, "max_retries": None, **policy}
        box = Box(name="order_item", type=BoxType.OUTBOX, table="order_items", **own)  # type: ignore[arg-type]
        self.boxes = {storage: replace(box, storage=storage) for storage in Storage}
        schema.create(self.engine, [box])
        sizes.record(self.engine, [box])
        self.rows = {storage: SqlRows(of) for storage, of in self.boxes.items()}
        self.stores = {storage: SqlStore(self.engine) for storage in Storage}
        self.told: list[str] = []

    def conversion(
        self, *, attempts: int = 1, lock_timeout: float = 60, wait: Callable[[float], object] | None = None
    ) -> Conversion:
        patience = self.patience(attempts=attempts, lock_timeout=lock_timeout, wait=wait)
        (table,) = schema.tables([self.boxes[TABLE]])
        return Conversion(self.engine, self.boxes[TABLE], table, patience)

    def patience(
        self, *, attempts: int = 1, lock_timeout: float = 60, wait: Callable[[float], object] | None = None
    ) -> Patience:
        return Patience(
            attempts=attempts, lock_timeout=lock_timeout, wait=wait or (lambda _seconds: None), tell=self.told.append
        )

    @property
    def stage(self) -> Stage:
        return self.conversion().stage()

    def bring_to(self, stage: Stage) -> None:
        """From the table on."""
        if stage is not Stage.TABLE:
            self.conversion().prepare()
        if stage is Stage.LOG:
            self.conversion().finish_to_log()

    # ── applications and workers ─────────────────────────────────────────────────────────────────────

    def put(self, connection: sa.Connection, by: Storage, *keys: str, bucket: int = 0, **values: object) -> list[int]:
        """Items that an application with this storage writes."""
        items = [{"event_key": key, "bucket": bucket, "payload": b"{}", **values} for key in keys]
        return [int(each) for each in self.rows[by].insert(connection, items).ids]

    def commit(self, by: Storage, *keys: str, bucket: int = 0, **values: object) -> list[int]:
        with self.engine.begin() as connection:
            return self.put(connection, by, *keys, bucket=bucket, **values)

    def deliver(
        self, by: Storage, *, limit: int = 100, buckets: tuple[int, ...] = (0, 1), fail: tuple[int, ...] = ()
    ) -> list[int]:
        """One claim of a worker with this storage; returns the ids that were sent."""
        with self.stores[by].plain_claims(self.boxes[by]).open(dict.fromkeys(buckets), limit) as claim:
            ids = [int(item.id) for item in claim.items]
            failed = [FailedAttempt(each, Status.PENDING, 1, "broken") for each in ids if each in fail]
            if ids:
                delivered = [each for each in ids if each not in fail]
                assert claim.commit(Settlement(delivered=delivered, failed=failed)) is None
        return ids

    # ── what is there ────────────────────────────────────────────────────────────────────────────────

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        with self.engine.begin() as connection:
            return [tuple(row) for row in connection.execute(sa.text(sql))]

    def run(self, sql: str) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(sql)

    def in_table(self) -> list[object]:
        """Ids of what waits there."""
        return [row[0] for row in self.ask("SELECT id FROM order_items WHERE status = 0 ORDER BY id")]

    def in_log(self) -> list[object]:
        return [row[0] for row in self.ask("SELECT id FROM order_items_log ORDER BY id")]

    @contextmanager
    def waiting(self, step: Callable[[], object], *, beside: int = 0) -> Iterator[Callable[[], BaseException | None]]:
        """The step, while it waits for a lock that the caller holds. What is given returns the step's error once it has ended.

        Args:
            beside: how many others wait already.
        """
        errors: list[BaseException | None] = []

        def take() -> None:
            try:
                step()
            except BaseException as error:
                errors.append(error)
            else:
                errors.append(None)

        thread = threading.Thread(target=take)

        def ended() -> BaseException | None:
            thread.join()
            return errors[0]

        thread.start()
        try:
            self.wait_for_a_waiting_one(beside + 1)
            yield ended
        finally:
            thread.join()

    def wait_for_a_waiting_one(self, number: int = 1) -> None:
        """Returns once so many connections wait for locks."""
        waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        eventually(lambda: len(self.ask(waiting)) == number, what="a connection that waits for a lock")

    def kill_the_waiting_one(self) -> None:
        """Ends the connection of the command, as the death of its process does."""
        self.ask(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )


@contextmanager
def bench(url: str, **policy: object) -> Iterator[Bench]:
    """Closes its connections in the end."""
    made = Bench(url, **policy)
    try:
        yield made
    finally:
        made.engine.dispose()
