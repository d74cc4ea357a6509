"""A log box with real workers."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.domain.item import Item
from tests.integration.engine.receivers import BatchReceiver, Gate, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import MakeRig, rigs
from tests.integration.engine.test_order import Broken
from tests.integration.engine.watcher import PATIENCE

PAUSES = {"minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1, "max_retries": 1000}
LOG = {"storage": "log", **PAUSES}


@pytest.fixture
def make_rig(tmp_path: Path, postgres_url: str, redis_url: str) -> Iterator[MakeRig]:
    with rigs(tmp_path, database=postgres_url, redis=redis_url) as make:
        yield make


def test_a_created_item_goes_out_and_its_row_is_not_touched(make_rig: MakeRig) -> None:
    rig = make_rig(box=LOG, wakeup="notify")
    receiver = Receiver()
    rig.carry(receiver)
    with rig.worker() as watcher:
        ids = rig.create(*range(20))
        watcher.wait_for_settled(20)
    assert sorted(receiver.ids) == ids
    assert rig.rows() == {}
    assert {
        (row.n, row.versions)
        for row in rig.ask(
            "SELECT count(*) AS n, count(*) FILTER (WHERE xmax = '0') AS versions FROM order_outbox_items_log"
        )
    } == {(20, 20)}


def test_what_fails_steps_aside_and_is_retried_there(make_rig: MakeRig) -> None:
    rig = make_rig(box=LOG)
    broken = Broken("1")
    receiver = BatchReceiver(broken)
    rig.carry(receiver)
    ids = rig.create(*range(4))
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.failures) >= 2 and len(watcher.delivered) == 3)
        assert set(rig.rows()) == {ids[1]}
        broken.keys.clear()
        watcher.wait_for(lambda: len(watcher.delivered) == 4)
    assert watcher.delivered[-1] == ids[1]


def test_strict_order_by_key_parks_the_key_and_goes_on_in_order(make_rig: MakeRig) -> None:
    rig = make_rig(bucket_size=8, box={**LOG, "strict_order": "key"})
    broken = Broken("0")
    receiver = BatchReceiver(broken)
    rig.carry(receiver)
    first, neighbour, follower = rig.create(0, 8, 0)
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.failures) >= 2 and watcher.delivered == [neighbour])
        later = rig.create(0, 8, 0)
        watcher.wait_for(lambda: len(watcher.delivered) == 2)
        broken.keys.clear()
        watcher.wait_for(lambda: len(watcher.delivered) == 6)
        end = rig.create(0)
        watcher.wait_for(lambda: len(watcher.delivered) == 7)
    assert watcher.delivered == [neighbour, later[1], first, follower, later[0], later[2], *end]
    assert end[0] not in rig.rows()


def test_strict_order_by_bucket_holds_the_bucket(make_rig: MakeRig) -> None:
    rig = make_rig(bucket_size=8, box={"storage": "log", "strict_order": True, "minimal_retry_interval": 0.05})
    broken = Broken("0")
    receiver = BatchReceiver(broken)
    rig.carry(receiver)
    first, neighbour, follower, elsewhere = rig.create(0, 8, 0, 1)
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.failures) >= 2 and watcher.delivered == [elsewhere])
        broken.keys.clear()
        watcher.wait_for(lambda: len(watcher.delivered) == 4)
    assert watcher.delivered[1:] == [first, neighbour, follower]


def test_what_a_handler_puts_into_the_log_it_comes_from_goes_out(make_rig: MakeRig) -> None:
    rig = make_rig(box=LOG, bucket_size=1)

    class Chain(Receiver):
        def __call__(self, item: Item, payload: Any, *, session: Any = None) -> Any:
            self._note([item], [payload])
            if item.payload != b"last":
                rig.boxes.create_outbox_item(session, BOX, event_key=1, payload=b"last")

    receiver = Chain()
    rig.carry(receiver)
    rig.create(*range(30))
    with rig.worker() as watcher:
        watcher.wait_for_settled(60)
    assert len(set(receiver.ids)) == 60


def test_claims_that_lose_their_connections_lose_and_turn_around_nothing(make_rig: MakeRig) -> None:
    rig = make_rig(box={**LOG, "strict_order": "key"}, bucket_size=4)
    gate = Gate()
    rig.carry(gate)
    ids = rig.create(*(n % 7 for n in range(60)))
    with rig.worker() as watcher:
        assert gate.entered.wait(PATIENCE)
        rig.cut_connections(of_claims=True)
        gate.open()
        watcher.wait_for(lambda: len(watcher.delivered) == len(ids))
    assert sorted(watcher.delivered) == ids
    firsts = {key: list(dict.fromkeys(found)) for key, found in gate.by_key.items()}
    assert all(found == sorted(found) for found in firsts.values())
    assert rig.rows() == {}


class Writers:
    """Threads that write the same keys in transactions of random length, and note when what was written and committed."""

    def __init__(self, rig: Rig, *, keys: int, locked: bool) -> None:
        self.rig = rig
        self.keys = keys
        self.locked = locked
        self.engine = sa.create_engine(rig.config["database"]["url"], pool_size=64)
        self._noting = threading.Lock()
        self._clock = count()
        self.committed: dict[int, int] = {}
        self.written: dict[int, int] = {}
        self.number: dict[int, int] = {}
        """By item, its key's counter under the key's lock."""
        rig.execute("CREATE TABLE keys (key int PRIMARY KEY, n int NOT NULL)")
        rig.execute(f"INSERT INTO keys SELECT key, 0 FROM generate_series(0, {keys - 1}) AS key")

    def run(self, writers: int, transactions: int) -> None:
        threads = [threading.Thread(target=self._work, args=(seed, transactions)) for seed in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.engine.dispose()

    def _work(self, seed: int, transactions: int) -> None:
        chance = random.Random(seed)
        for _ in range(transactions):
            with self.engine.connect() as connection, connection.begin() as transaction:
                items = [self._write(connection, key) for key in sorted(chance.sample(range(self.keys), 2))]
                connection.execute(sa.text("SELECT pg_sleep(:s)"), {"s": chance.random() * 0.03})
                if chance.random() < 0.2:
                    transaction.rollback()
                    continue
            with self._noting:
                self.committed.update(dict.fromkeys(items, next(self._clock)))

    def _write(self, connection: sa.Connection, key: int) -> int:
        number = 0
        if self.locked:
            moved_on = sa.text("UPDATE keys SET n = n + 1 WHERE key = :key RETURNING n")
            number = connection.execute(moved_on, {"key": key}).scalar_one()
        with self._noting:
            moment = next(self._clock)
        item = self.rig.boxes.create_outbox_item(connection, BOX, event_key=key, payload=b"{}")
        self.written[item], self.number[item] = moment, number
        return item


@pytest.mark.parametrize("locked", [True, False], ids=["a row lock per key", "no lock"])
def test_many_writers_of_the_same_keys(make_rig: MakeRig, *, locked: bool) -> None:
    """With a lock deliveries follow its counter; without, none goes out behind what was written after its commit."""
    rig = make_rig(box={**LOG, "strict_order": "key"}, wakeup="notify")
    chance = random.Random(1)
    receiver = BatchReceiver(lambda _item: False if chance.random() < 0.02 else None)
    rig.carry(receiver)
    writers = Writers(rig, keys=10, locked=locked)
    with rig.worker() as watcher, rig.worker(watcher):
        writers.run(64, 4)
        watcher.wait_for(lambda: len(watcher.delivered) >= len(writers.committed))
    assert sorted(watcher.delivered) == sorted(writers.committed)
    key_of = {item.id: item.event_key for item in receiver.items}
    order: dict[str, list[int]] = defaultdict(list)
    for item in watcher.delivered:
        order[key_of[item]].append(item)
    for ids in order.values():
        numbers = [writers.number[item] for item in ids]
        assert numbers == sorted(numbers)
        for place, item in enumerate(ids):
            assert not [late for late in ids[place + 1 :] if writers.committed[late] < writers.written[item]]
