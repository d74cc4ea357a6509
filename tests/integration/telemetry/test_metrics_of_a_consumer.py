"""The consumer's metrics, moved by ``boxengine consume`` on a real Kafka and scraped from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from boxengine.adapters.system import SystemClock
from boxengine.app.receiving.consuming import Consuming
from boxengine.app.running.watchers import watchers
from boxengine.cli.endpoints import endpoints
from tests.eventually import eventually
from tests.integration.engine.watcher import Watcher
from tests.integration.kafka.inbox import Inbox, numbered, produce
from tests.integration.telemetry.site import Running

LABELS = {"type": "inbox", "name": "order_inbox_item", "owner": ""}


@contextmanager
def consuming(inbox: Inbox) -> Iterator[Running]:
    resolved = inbox.boxes.resolved
    watching = watchers(resolved.settings, clock=SystemClock(), partitions=6, ledger=None)
    consumers = Consuming(resolved, observer=watching.observer, tracer=watching.tracer)
    health = consumers.health()
    (service,) = endpoints(inbox.boxes, health, watching.registry)
    worker = consumers.worker(health=health, services=[service])
    worker.start()
    try:
        yield Running(Watcher(), inbox.boxes, service)
    finally:
        assert worker.stop(within=timedelta(seconds=60)) == []


def test_messages_duplicates_dead_letters_batches_and_lag_are_counted_by_topic_and_partition(
    tmp_path: Path, postgres_url: str, real_kafka: str, kafka_topic: str
) -> None:
    source = {"max_payload_bytes": 100, "config": {"statistics.interval.ms": 200}}
    shown = {"metrics": {"enabled": True, "port": 0}}
    inbox = Inbox(tmp_path, database=postgres_url, bootstrap=real_kafka, topic=kafka_topic, source=source, **shown)
    messages = [message | {"partition": 1} for message in numbered(20)]
    again = {"key": "key-0", "value": "again", "partition": 1, "headers": {"Idempotency-Key": b"once"}}
    poison = {"key": "key-0", "value": "x" * 101, "partition": 2}
    produce(inbox.bootstrap, inbox.topic, [*messages, *[again] * 2, again | {"value": "another"}, poison])
    with consuming(inbox) as running:
        eventually(lambda: running.total("box_consumer_messages_total", **LABELS) == 24)
        in_one, in_two = ({**LABELS, "topic": kafka_topic, "partition": number} for number in ("1", "2"))
        assert running.total("box_consumer_messages_total", **in_one) == 23
        assert running.total("box_consumer_duplicates_total", **in_one) == 2
        assert running.total("box_consumer_contradictions_total", **in_one) == 1
        assert running.total("box_consumer_dead_letters_total", **in_one) == 0
        assert running.total("box_consumer_dead_letters_total", **in_two) == 1
        batches = running.total("box_consumer_batches_total", **LABELS)
        assert batches >= 1
        assert running.total("box_consumer_batch_runtime_seconds_count", **LABELS) == batches
        assert running.total("outbox_created_total", **LABELS) == 22
        lags = "box_consumer_lag_messages"
        eventually(
            lambda: [value for labels, value in running.scrape().get(lags, []) if labels.items() >= in_one.items()]
        )
    rows = inbox.rows()
    assert len(rows) == 22


def test_the_lag_is_what_a_consumer_that_cannot_store_has_before_it(
    tmp_path: Path, postgres_url: str, real_kafka: str, kafka_topic: str
) -> None:
    source = {"config": {"statistics.interval.ms": 200}}
    shown = {"metrics": {"enabled": True, "port": 0}}
    inbox = Inbox(tmp_path, database=postgres_url, bootstrap=real_kafka, topic=kafka_topic, source=source, **shown)
    with consuming(inbox) as running:
        with inbox.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE order_inbox_items RENAME TO elsewhere")
        produce(inbox.bootstrap, inbox.topic, [message | {"partition": 3} for message in numbered(50)])
        partition = {**LABELS, "topic": kafka_topic, "partition": "3"}
        eventually(lambda: running.total("box_consumer_lag_messages", **partition) == 50)
        assert running.total("box_consumer_messages_total", **LABELS) == 0
