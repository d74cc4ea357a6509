"""Whatever a user's strategies, middlewares, transports and trackers do when they are hashed, compared or asked for truth."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from tests.cli.project import Project
from tests.eventually import eventually

ODD = """
import dataclasses, json
from boxengine.domain.outcome import PROCESS

class Odd:
    __hash__ = None
    def __eq__(self, other):
        raise RuntimeError("compared")
    def __bool__(self):
        raise RuntimeError("asked for its truth")

class Told(Odd):
    def tell(self, what):
        with open("told.jsonl", "a") as file:
            file.write(json.dumps([type(self).__name__, what]) + "\\n")

class Partition(Told):
    def __call__(self, key, bucket_size):
        return 3

class Strategy(Told):
    def __call__(self, item, context):
        self.tell(item.event_key)
        return PROCESS

class Create(Told):
    def __call__(self, model, attributes, call_next):
        return call_next()

class Around(Told):
    def __call__(self, subject, call_next):
        self.tell(type(subject).__name__)
        return call_next()

class Tracker(Told):
    def __call__(self, error, **context):
        self.tell(str(error))

class Transport(Told):
    def __call__(self, item, payload):
        if item.event_key == "bad" or (item.event_key == "late" and item.errors_count == 0):
            raise ValueError("not this one")
        self.tell(item.event_key)
        return Odd()

@dataclasses.dataclass
class ByHand:
    spread: int = 1
    def __call__(self, key, bucket_size):
        return self.spread

by_hand = ByHand(5)
odd_transport = Transport()
"""
MORE = """
    partition_strategy: odd.Partition
    retry_strategies: odd.Strategy
    max_retries: 1
  pallet_outbox_item:
    partition_strategy: odd.by_hand
    retry_strategies: odd.Strategy
    max_retries: 1
    transports: {odd.odd_transport: }
error_tracker: odd.Tracker
middlewares:
  create_item: odd.Create
  create_batch: odd.Create
  poll: odd.Around
  batch_process: odd.Around
  item_process: odd.Around
"""


def test_they_are_called_and_nothing_else(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports="odd.Transport: ", more=MORE)
    project.run("db", "create")
    lines = "".join(json.dumps({"event_key": key, "payload": "x"}) + "\n" for key in ("good", "late", "bad"))
    for box in ("order_outbox_item", "pallet_outbox_item"):
        project.run("create", box, "--jsonl", "-", stdin=lines.encode())
    with project.engine() as engine, engine.connect() as connection:
        buckets = [
            set(connection.exec_driver_sql(f"SELECT bucket FROM {table}_outbox_items").scalars())
            for table in ("order", "pallet")
        ]
    assert buckets == [{3}, {5}]
    with project.worker() as worker:
        for table in ("order_outbox_items", "pallet_outbox_items"):
            eventually(partial(_worked_off, project, table), what=f"{table} are worked off")
        assert worker.stop() == 0
    told = {name for name, _ in map(json.loads, (tmp_path / "told.jsonl").read_text().splitlines())}
    assert told == {"Transport", "Strategy", "Around", "Tracker"}


def test_a_transport_of_which_each_thread_has_its_own(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    (tmp_path / "odd.py").write_text(
        "import threading\n"
        "class PerThread(threading.local):\n"  # inspect.signature has none for it
        "    def __call__(self, item, payload): pass\n"
    )
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports="odd.PerThread: ")
    project.run("db", "create")
    project.fill(3)
    with project.worker() as worker:
        eventually(lambda: worker.process.poll() is not None or project.counts() == {2: 3})
        assert worker.stop() == 0, worker.log.read_text()


def _worked_off(project: Project, table: str) -> bool:
    return project.counts(table) == {1: 1, 2: 2}
