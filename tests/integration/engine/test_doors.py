"""What may be exchanged without a change in the engine: the coordination, and the store behind a box."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from boxengine.adapters.memory.attempts import MemoryAttempts
from boxengine.adapters.memory.failures import MemoryFailures
from boxengine.adapters.memory.history import MemoryHistory
from boxengine.adapters.memory.in_hand import MemoryInHand
from boxengine.adapters.memory.leases import MemoryLeases
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.memory.trail import MemoryTrail
from boxengine.adapters.memory.workers import MemoryWorkers
from boxengine.adapters.system import SystemClock
from boxengine.app import assembly
from boxengine.app.servers.connected import Servers
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.app.servers.database import connect_store
from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.engine.observation import NullTracer
from tests.integration.engine.receivers import Receiver
from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import ON_POSTGRESQL
from tests.integration.engine.watcher import Watcher

pytestmark = ON_POSTGRESQL
NOWHERE = "redis://127.0.0.1:1/0"
"""Nothing listens there."""
KEYS = [f"k{number % 10}" for number in range(60)]
OURS, THEIRS = "order_outbox_item", "payment_outbox_item"


class MemoryCoordination:
    """What the workers of one process share in place of Redis."""

    def __init__(self) -> None:
        clock, self._notes = SystemClock(), dict[tuple[str, str], tuple[int, str]]()
        self._parts: dict[str, Any] = {
            "queue": MemoryJobQueue(clock=clock),
            "leases": MemoryLeases(clock=clock),
            "pauses": MemoryPauses(),
            "memory": MemoryFailures(clock=clock),
            "workers": MemoryWorkers(clock=clock),
            "trail": MemoryTrail(),
            "history": MemoryHistory(),
            "attempts": MemoryAttempts(),
            "in_hand": lambda token: MemoryInHand(self._notes, worker=token),
        }

    def of(self, connected: Servers) -> Servers:
        return replace(connected, **self._parts)


class StoreOfEachBox:
    """``Store`` over several: each question goes to the store that holds the box."""

    def __init__(self, stores: Mapping[str, Any]) -> None:
        self._stores = stores

    def __getattr__(self, question: str) -> Any:
        return lambda box, *more, **options: getattr(self._stores[box.name], question)(box, *more, **options)

    def pending(self, boxes: Sequence[Box]) -> frozenset[str]:
        found = [self._stores[box.name].pending([box]) for box in boxes]
        return frozenset[str]().union(*found)

    def ping(self) -> None:
        for store in self._stores.values():
            store.ping()

    def look_again(self) -> list[str]:
        return [name for store in self._stores.values() for name in store.look_again()]

    def close(self) -> None:
        for store in self._stores.values():
            store.close()


@contextmanager
def at_work(rig: Rig, connected: Servers, watcher: Watcher) -> Iterator[None]:
    worker = assembly.assemble(
        rig.boxes.resolved,
        connected,
        observer=watcher,
        tracer=NullTracer(),
        health=assembly.health(connected),
    )
    worker.start()
    try:
        yield
    finally:
        assert worker.stop(within=timedelta(seconds=30)) == []


def test_a_third_coordination_plugs_in_and_two_workers_share_it(tmp_path: Path, database: str) -> None:
    with Rig(tmp_path, database=database, redis=NOWHERE) as rig:
        receiver, watcher, coordination = Receiver(), Watcher(), MemoryCoordination()
        rig.carry(receiver)
        rig.create_tables()
        ids = rig.create(*KEYS)
        first, second = (coordination.of(connect_servers(rig.boxes.resolved.settings)) for _ in range(2))
        with at_work(rig, first, watcher), at_work(rig, second, watcher):
            watcher.wait_for_settled(len(ids))
        assert sorted(receiver.ids) == ids
        assert all(found == sorted(found) for found in receiver.by_key.values())
        assert set(rig.statuses()) == {Status.DELIVERED}


def test_a_pause_in_a_third_coordination_is_heard(tmp_path: Path, database: str) -> None:
    with Rig(tmp_path, database=database, redis=NOWHERE) as rig:
        receiver, watcher, coordination = Receiver(), Watcher(), MemoryCoordination()
        rig.carry(receiver)
        rig.create_tables()
        connected = coordination.of(connect_servers(rig.boxes.resolved.settings))
        connected.pauses.set(rig.box(), polling_enabled=False)
        ids = rig.create("a")
        with at_work(rig, connected, watcher):
            connected.pauses.set(rig.box(), polling_enabled=True)
            watcher.wait_for_settled(1)
        assert receiver.ids == ids


def test_one_worker_delivers_from_two_databases(tmp_path: Path, database: str, mysql_url: str, redis_url: str) -> None:
    boxes: dict[str, Any] = {OURS: {}, THEIRS: {}}
    (tmp_path / "theirs").mkdir()
    with (
        Rig(tmp_path, database=database, redis=redis_url, outbox_items=boxes) as rig,
        Rig(tmp_path / "theirs", database=mysql_url, redis=redis_url, outbox_items=boxes) as other,
    ):
        ours, theirs, watcher = Receiver(), Receiver(), Watcher()
        rig.carry(ours)
        rig.carry(theirs, box=THEIRS)
        rig.create_tables()
        other.create_tables()
        here = rig.create(*KEYS, box=OURS)
        there = other.create(*KEYS, box=THEIRS)
        connected = connect_servers(rig.boxes.resolved.settings)
        stores = {
            OURS: connected.store,
            THEIRS: connect_store(other.boxes.resolved.settings),
        }
        both: Any = StoreOfEachBox(stores)
        with at_work(rig, replace(connected, store=both), watcher):
            watcher.wait_for_settled(len(here) + len(there))
        assert (sorted(ours.ids), sorted(theirs.ids)) == (here, there)
        assert set(rig.statuses(OURS)) == set(other.statuses(THEIRS)) == {Status.DELIVERED}
        assert rig.statuses(THEIRS) == other.statuses(OURS) == []
