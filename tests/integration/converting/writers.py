"""Applications that write the same keys all the time, some with the old configuration and some with the new one."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Condition
from typing import Any

import sqlalchemy as sa

from boxengine.domain.item import Item
from tests.integration.engine.receivers import BatchReceiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.watcher import PATIENCE


class Writers:
    """Threads that each take a key's row lock, count it up and create an item, in transactions of random length.

    The counter is in the payload: it tells the order in which the key's items must go out.
    """

    def __init__(self, rig: Rig, *, keys: int, slow: float = 0.02) -> None:
        self._url = rig.config["database"]["url"]
        self._keys = keys
        self._slow = slow
        self.by: Sequence[Rig] = [rig]
        """Whose configuration a transaction uses, each as likely."""
        self.committed: dict[int, tuple[str, int]] = {}
        """By item, its key and its place among the key's items."""
        self._using: dict[int, Rig] = {}
        """By thread, as long as its transaction is open."""
        self._errors: list[BaseException] = []
        self._changed = Condition()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        rig.execute("CREATE TABLE keys (key int PRIMARY KEY, n int NOT NULL)")
        rig.execute(f"INSERT INTO keys SELECT key, 0 FROM generate_series(0, {keys - 1}) AS key")

    @contextmanager
    def at_work(self, threads: int) -> Iterator[None]:
        engine = sa.create_engine(self._url, pool_size=threads)
        self._threads = [threading.Thread(target=self._work, args=(engine, seed)) for seed in range(threads)]
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self.stop()
            engine.dispose()
        assert self._errors == []

    def stop(self) -> None:
        """Returns when the last transaction has ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def more(self, count: int) -> None:
        """Returns once so many more items were committed."""
        with self._changed:
            until = len(self.committed) + count
            assert self._changed.wait_for(lambda: bool(self._errors) or len(self.committed) >= until, PATIENCE)

    def change_to(self, *rigs: Rig) -> None:
        """Transactions that begin from now on use one of these configurations; returns when all others have ended."""
        with self._changed:
            self.by = rigs
            assert self._changed.wait_for(lambda: set(self._using.values()) <= set(rigs), PATIENCE)

    def _work(self, engine: sa.Engine, seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not self._stop.is_set():
                self._write(engine, seed, chance)
        except BaseException as error:
            with self._changed:
                self._errors.append(error)
                self._changed.notify_all()

    def _write(self, engine: sa.Engine, thread: int, chance: random.Random) -> None:
        with self._changed:
            rig = self._using[thread] = chance.choice(self.by)
        written = {}
        try:
            with engine.connect() as connection, connection.begin() as transaction:
                # Both locks come first: with the box's table locked, too, nobody waits for a key of one who waits for the switch.
                keys = sorted(chance.sample(range(self._keys), 2))
                moved_on = sa.text("UPDATE keys SET n = n + 1 WHERE key = :key RETURNING n")
                numbers = [connection.execute(moved_on, {"key": key}).scalar_one() for key in keys]
                for key, number in zip(keys, numbers, strict=True):
                    item = rig.boxes.create_outbox_item(connection, BOX, event_key=key, payload=b"{}")
                    written[item] = (str(key), number)
                connection.execute(sa.text("SELECT pg_sleep(:s)"), {"s": chance.random() * self._slow})
                if chance.random() < 0.1:
                    transaction.rollback()
                    written = {}
        finally:
            with self._changed:
                self.committed |= written
                del self._using[thread]
                self._changed.notify_all()


class Accepting(BatchReceiver):
    """Refuses one item in fifty, each time anew, and keeps those that it took, in the order in which it took them."""

    def __init__(self) -> None:
        chance = random.Random(1)
        super().__init__(lambda item: self._answer(item, refused=chance.random() < 0.02))
        self.taken: list[tuple[str, int]] = []
        """Key and id."""
        self.is_open = threading.Event()
        """While it is not, deliveries wait, and items pile up."""
        self.is_open.set()

    def call_batch(self, items: Sequence[Item]) -> list[Any]:
        assert self.is_open.wait(PATIENCE)
        return super().call_batch(items)

    def _answer(self, item: Item, *, refused: bool) -> Any:
        if refused:
            return False
        self.taken.append((item.event_key, int(item.id)))
        return None
