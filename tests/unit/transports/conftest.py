"""Kafka here is a MOCK: librdkafka's own in-process cluster (``test.mock.num.brokers``), a TCP server on loopback."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def mock_kafka() -> Iterator[str]:
    """Bootstrap servers of a mock cluster of one broker, which lives as long as the client that holds it."""
    from confluent_kafka import Producer

    host = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = host.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del host
