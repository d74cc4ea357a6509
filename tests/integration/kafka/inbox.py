"""An inbox fed from a real Kafka, for the tests of consuming."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it does not say that these are for others
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from sqlalchemy import Engine, NullPool, create_engine, text

import boxengine
from boxengine.adapters.sql.making import schema
from boxengine.app.boxes import Boxes
from boxengine.app.receiving.consuming import Consuming
from boxengine.domain.box import Box
from boxengine.engine.observation import NullObserver, NullTracer
from boxengine.engine.running.worker import Worker
from boxengine.ports.events import Event, OutageBegan

STEP = 0.05
"""Seconds between two checks of the awaited condition."""
BOX = "order_inbox_item"
DEAD = "dead_inbox_item"


class Watcher:
    """Remembers outages, and lets a test wait for one."""

    def __init__(self) -> None:
        self.outages: list[tuple[str, str]] = []
        self._out = threading.Event()

    def see(self, event: Event) -> None:
        if isinstance(event, OutageBegan):
            self.outages.append((event.what, event.reason))
            self._out.set()

    def wait_for_outage(self) -> None:
        assert self._out.wait(60), "no outage was told"


class Inbox:
    """One database with the boxes ``order_inbox_item``, fed from ``topic``, and ``dead_inbox_item``."""

    def __init__(
        self, folder: Path, *, database: str, bootstrap: str, topic: str, source: Mapping[str, Any], **config: Any
    ) -> None:
        """Args:
        config: top-level keys of the configuration.
        """
        self.topic = topic
        self.bootstrap = bootstrap
        self.group = f"group-{topic}"
        kafka = {"topics": [topic], "group": self.group, "bootstrap_servers": bootstrap} | dict(source)
        # A dead member blocks its partitions no longer than this.
        own = dict(kafka.get("config", {}))
        if own.get("group.protocol") != "consumer":  # in that protocol it is the broker's setting
            own = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500} | own
        kafka["config"] = own
        settings: dict[str, Any] = {
            "database": {"url": database},
            "probes": {"enabled": False},
            "inbox_items": {BOX: {"strict_order": "key", "source": {"kafka": kafka}}, DEAD: {}},
            **config,
        }
        self.config = folder / "outbox.yml"
        self.config.write_text(yaml.safe_dump(settings))
        self.boxes: Boxes = boxengine.load(self.config)
        self.engine: Engine = create_engine(database, poolclass=NullPool)
        schema.create(self.engine, [self.box, self.boxes.box(DEAD)])

    @property
    def box(self) -> Box:
        return self.boxes.box(BOX)

    def worker(self, watcher: Watcher | None = None, *, process: int = 0) -> Worker:
        consuming = Consuming(
            self.boxes.resolved, place=str(process), observer=watcher or NullObserver(), tracer=NullTracer()
        )
        return consuming.worker(health=consuming.health())

    @contextmanager
    def consuming(self, watcher: Watcher | None = None, *, process: int = 0) -> Iterator[None]:
        worker = self.worker(watcher, process=process)
        worker.start()
        try:
            yield
        finally:
            assert worker.stop(within=timedelta(seconds=60)) == []

    def rows(self, box: Box | None = None) -> list[Any]:
        """All rows in id order."""
        with self.engine.connect() as connection:
            found = connection.execute(text(f"SELECT * FROM {(box or self.box).table} ORDER BY id")).all()
        return list(found)

    def count(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(text(f"SELECT count(*) FROM {self.box.table}")).scalar_one())

    def committed(self) -> int:
        """How many messages the group has committed, over all partitions of the topic."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        try:
            partitions = consumer.list_topics(self.topic, timeout=20).topics[self.topic].partitions
            wanted = [TopicPartition(self.topic, number) for number in partitions]
            return sum(max(0, each.offset) for each in consumer.committed(wanted, timeout=20))
        except KafkaException:
            return 0  # the group's coordinator is still being created
        finally:
            consumer.close()

    def is_settled(self, *, members: int) -> bool:
        """Whether the group has so many members, each with its partitions, and no rebalance goes on."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # without a name it would end before the answer
        (asked,) = admin.describe_consumer_groups([self.group]).values()
        try:
            found = asked.result(timeout=20)
        except KafkaException:
            return False  # nobody has joined yet
        shares = [each.assignment.topic_partitions for each in found.members]
        return found.state is ConsumerGroupState.STABLE and len(shares) == members and all(shares)


def until(condition: Callable[[], bool], *, within: float = 120, said: Callable[[], object] = lambda: "") -> None:
    """Waits for the condition, by waiting on an event that is never set."""
    never = threading.Event()
    for _ in range(int(within / STEP)):
        if condition():
            return
        never.wait(STEP)
    raise AssertionError(f"not within {within} s: {said()}")


def set_topic(bootstrap: str, topic: str, **config: str) -> None:
    """Changes settings of a topic; underscores stand for dots."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a client without a reference stops answering
    admin.incremental_alter_configs([resource])[resource].result(30)


def produce(bootstrap: str, topic: str, messages: Sequence[Mapping[str, Any]]) -> None:
    """Sends the messages in their order and waits until the broker has them."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    refused: list[Any] = []

    def reported(error: Any, _message: Any) -> None:
        if error is not None:
            refused.append(error)

    for message in messages:
        producer.produce(topic, on_delivery=reported, **message)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert refused == []


def numbered(count: int, *, keys: int = 50, start: int = 0) -> list[dict[str, Any]]:
    """Messages with payloads ``{"n": 0}`` and so on, assigned to the keys in turn."""
    return [{"key": f"key-{n % keys}", "value": json.dumps({"n": n})} for n in range(start, start + count)]


def numbers(rows: Sequence[Any]) -> list[int]:
    return [json.loads(bytes(row.payload))["n"] for row in rows]


def by_key(rows: Sequence[Any]) -> dict[str, list[int]]:
    """The numbers of each event key, in id order."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row.event_key, []).append(json.loads(bytes(row.payload))["n"])
    return found


def assert_each_once_in_order(rows: Sequence[Any], count: int) -> None:
    """Asserts that every number below ``count`` is there once, and that each key's numbers ascend."""
    assert sorted(numbers(rows)) == list(range(count))
    for key, seen in by_key(rows).items():
        assert seen == sorted(seen), key
