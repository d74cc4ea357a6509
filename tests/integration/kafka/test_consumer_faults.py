"""Servers and consumers that die while messages flow: the inbox has each message once, each key in order."""

import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from boxengine.app.receiving.consuming import Consuming
from boxengine.embedded import EmbeddedPostgres
from boxengine.engine.observation import NullTracer
from boxengine.ports.events import Event, OutageLasts
from tests.integration.kafka.conftest import MakeInbox
from tests.integration.kafka.inbox import (
    Inbox,
    Watcher,
    assert_each_once_in_order,
    numbered,
    produce,
    until,
)
from tests.servers.kafka import KafkaBroker

KILLS = 10


def test_a_database_killed_while_consuming_costs_time_but_no_message(
    tmp_path: Path, own_postgres: EmbeddedPostgres, real_kafka: str, kafka_topic: str
) -> None:
    source = {"batch_size": 20, "concurrency": 2}
    inbox = Inbox(tmp_path, database=own_postgres.url(), bootstrap=real_kafka, topic=kafka_topic, source=source)
    watcher = Watcher()
    produce(inbox.bootstrap, inbox.topic, numbered(2000))
    with inbox.consuming(watcher):
        until(lambda: inbox.count() > 100)
        own_postgres.kill()
        watcher.wait_for_outage()
        produce(inbox.bootstrap, inbox.topic, numbered(1000, start=2000))
        own_postgres.start()
        until(lambda: inbox.count() >= 3000, said=inbox.count)
        until(lambda: inbox.committed() == 3000, said=inbox.committed)
    assert_each_once_in_order(inbox.rows(), 3000)
    # Two threads tried many times, and it was told once.
    assert [what for what, _ in watcher.outages] == ["database (order_inbox_item)"]


def test_consuming_starts_while_database_and_broker_are_down_and_begins_when_they_are_there(
    tmp_path: Path, own_postgres: EmbeddedPostgres, own_kafka: KafkaBroker
) -> None:
    inbox = Inbox(tmp_path, database=own_postgres.url(), bootstrap=own_kafka.bootstrap, topic="early", source={})
    produce(inbox.bootstrap, inbox.topic, numbered(100))
    own_postgres.kill()
    own_kafka.kill()
    watcher = Watcher()
    with inbox.consuming(watcher):
        watcher.wait_for_outage()
        assert watcher.outages[0][0] == "kafka (order_inbox_item)"
        own_kafka.start()
        own_postgres.start()
        until(lambda: inbox.count() == 100, said=lambda: watcher.outages)
        until(lambda: inbox.committed() == 100)
    assert_each_once_in_order(inbox.rows(), 100)


class Patient(Watcher):
    """Also knows whether something was found out of order a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.still = threading.Event()

    def see(self, event: Event) -> None:
        super().see(event)
        if isinstance(event, OutageLasts):
            self.still.set()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_that_does_not_exist_keeps_the_consumer_unready_until_it_does(
    make_inbox: MakeInbox, kafka_topic: str, protocol: str
) -> None:
    late = f"late-{kafka_topic}"
    config = {"group.protocol": protocol, "topic.metadata.refresh.interval.ms": 500}
    inbox = make_inbox(topics=[kafka_topic, late, "^never-made-by-anybody.*"], config=config)
    produce(inbox.bootstrap, inbox.topic, numbered(10))
    watcher = Patient()
    consuming = Consuming(inbox.boxes.resolved, observer=watcher, tracer=NullTracer())
    health = consuming.health()
    worker = consuming.worker(health=health)
    worker.start()
    missing = (f"consuming {late} for order_inbox_item: topic {late} does not exist",)
    try:
        until(lambda: inbox.count() == 10, said=lambda: watcher.outages)
        until(lambda: health.ready().reasons == missing, said=lambda: health.ready().reasons)
        assert watcher.still.wait(60)
        assert health.ready().reasons == missing, "to ask for it does not create it"
        produce(inbox.bootstrap, late, numbered(10, start=10))
        until(lambda: health.ready().ok, said=lambda: health.ready().reasons)
        until(lambda: inbox.count() == 20, said=inbox.count)
    finally:
        assert worker.stop(within=timedelta(seconds=60)) == []
    told = f"consuming {late} for order_inbox_item", f"topic {late} does not exist"
    assert watcher.outages == [told]


def test_a_consumer_killed_ten_times_at_random_moments_leaves_each_message_once(make_inbox: MakeInbox) -> None:
    # A static member takes its place in the group up again at once; a dynamic one would wait for its predecessor's end.
    inbox = make_inbox(batch_size=20, concurrency=2, config={"group.instance.id": "killed"})
    count = 8000
    produce(inbox.bootstrap, inbox.topic, numbered(count))
    chance = Random(20_26)
    command = [sys.executable, "-m", "boxengine", "--config", str(inbox.config), "consume"]
    killed_at = []
    for _ in range(KILLS):
        process = subprocess.Popen(command)
        enough = inbox.count() + chance.randrange(1, count // (KILLS + 2))
        until(lambda enough=enough: inbox.count() >= enough, said=inbox.count)  # type: ignore[misc]
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed_at.append((inbox.count(), inbox.committed()))
    assert killed_at[-1][0] < count, "the last kill was to come before the end"
    process = subprocess.Popen(command)
    until(lambda: inbox.count() >= count, said=inbox.count)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert inbox.committed() == count
    assert_each_once_in_order(inbox.rows(), count)
    print(f"stored and acknowledged at each kill: {killed_at}")
