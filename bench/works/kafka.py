"""Draining into Kafka, waiting for every delivery report."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer

from bench.floors.drain import UNBARRED, against, floors
from bench.report import Line, at_least, ratio_line, skipped
from bench.rounds import alternate, compare
from bench.servers import OUTBOX, Stand
from bench.worker import warm_worker
from boxengine.adapters.kafka.transport import KafkaTransport
from boxengine.domain.item import Item
from tests.servers.kafka import KafkaBroker, jar_folder, prepare

BAR = at_least(0.80)


def mock_cluster(stand: Stand) -> list[Line]:
    """Drains into librdkafka's mock cluster, whose brokers are threads of this process."""
    with _mock() as bootstrap:
        return [_drain(stand, bootstrap, "mock cluster")]


def real_broker(stand: Stand) -> list[Line]:
    """Drains into a real broker: $BOXENGINE_TEST_KAFKA_BOOTSTRAP, else one started from its jars, if Java is installed."""
    given = os.environ.get("BOXENGINE_TEST_KAFKA_BOOTSTRAP")
    if given:
        return [_drain(stand, given, "real broker")]
    try:
        missing = prepare(os.environ)
    except (OSError, subprocess.SubprocessError) as error:
        missing = str(error)
    if missing:
        return [skipped("drain into Kafka, real broker", missing.splitlines()[-1], BAR)]
    with KafkaBroker(stand.folder / "kafka", jars=jar_folder(os.environ)) as broker:
        return [_drain(stand, broker.bootstrap, "real broker")]


def _drain(stand: Stand, bootstrap: str, broker: str) -> Line:
    """boxengine against the floor with the same transport, and so the same producer, headers and checks of delivery reports."""
    count = stand.scale.pick(50_000, 20_000)
    topic = "bench"
    transport = KafkaTransport(topic=topic, bootstrap_servers=bootstrap)
    same = {"topic": topic, "bootstrap_servers": bootstrap}
    with stand.site(buckets=256, transport={"kafka": same}) as site, warm_worker(site) as worker:
        table, box = site.table(), site.boxes.box(OUTBOX)

        def send(rows: Sequence[Any]) -> None:
            now = datetime.now(UTC)
            failures = transport.call_batch([Item._make((*row, box, now, None)) for row in rows])
            if any(failures):
                raise RuntimeError(f"Kafka refused items: {next(filter(None, failures))}")

        def ours() -> float:
            table.fill(count)
            return worker.drain_rate(count)

        try:
            figures = alternate(against(ours, floors(table, send, count)), rounds=stand.scale.rounds)
        finally:
            transport.close()
    return ratio_line(
        f"drain {count:,} into Kafka, {broker}", compare(figures, ours="boxengine", without=UNBARRED), BAR
    )


@contextmanager
def _mock() -> Iterator[str]:
    """Bootstrap servers of a mock cluster that lives as long as the block."""
    producer = Producer({"test.mock.num.brokers": 3, "log_level": 4})
    try:
        brokers = producer.list_topics(timeout=10).brokers.values()
        yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    finally:
        producer.close()
