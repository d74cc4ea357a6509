"""librdkafka's own mock cluster, for when no real Kafka is available."""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack
from pathlib import Path

from boxengine.embedded.process import ServerNotStarted
from tests.servers.offer import How, Offer


class KafkaMock:
    """Brokers inside the controlling process: they listen on loopback, store nothing and enforce few of Kafka's rules."""

    def offer(self) -> Offer:
        """A mock, if confluent-kafka is installed."""
        if importlib.util.find_spec("confluent_kafka") is None:
            return Offer("kafka", How.ABSENT, "confluent-kafka is not installed")
        return Offer("kafka", How.MOCK, "librdkafka's mock cluster, 3 brokers in this process")

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Start it; its address is a list of bootstrap servers."""
        from confluent_kafka import KafkaException, Producer

        producer = Producer(
            {"test.mock.num.brokers": 3, "log_level": 4}
        )  # otherwise it logs that it is a mock, which the header of the session says already
        stack.callback(producer.close)
        try:
            brokers = producer.list_topics(timeout=10).brokers.values()
        except KafkaException as error:
            raise ServerNotStarted(f"librdkafka's mock cluster did not answer: {error}") from error
        offer = self.offer()
        return Offer(offer.server, offer.how, offer.detail, ",".join(f"{it.host}:{it.port}" for it in brokers))
