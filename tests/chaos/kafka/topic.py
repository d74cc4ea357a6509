"""A topic, read back or filled, past boxengine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from tests.unit.transports.kafka_reader import read_all


class Message(NamedTuple):
    """What a consumer sees of one message."""

    partition: int
    offset: int
    key: str
    item: int
    """``Sequence-ID``."""
    idempotency_key: str
    payload: bytes


def read(bootstrap: str, topic: str, *, expected: int, patience: float) -> list[Message]:
    """All that a consumer with ``read_committed`` sees, each partition in its order.

    What a dead worker's open transaction holds back becomes visible only when the broker has aborted that, so this goes
    on until so many different items were seen and the end was reached, or nothing came for ``patience`` seconds.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"judge-{topic}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    messages: list[Message] = []
    seen: set[str] = set()
    with closing(consumer):
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        last = time.monotonic()
        # When all were seen, one more second shows whether something comes after them.
        while time.monotonic() - last < (1.0 if len(seen) >= expected else patience):
            for received in consumer.consume(1_000, timeout=0.5):
                if received.error() is not None:
                    raise KafkaException(received.error())
                messages.append(_message(received))
                seen.add(messages[-1].idempotency_key)
                last = time.monotonic()
    return messages


def values(bootstrap: str, topic: str) -> list[bytes]:
    """The values of all messages that are there now."""
    return [received.value() for received in read_all(bootstrap, topic)]


def fill(bootstrap: str, topic: str, messages: Iterable[tuple[str, bytes]]) -> None:
    """Sends key and value of each, in order, and returns once the broker has them all."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    refused: list[Any] = []

    def reported(error: Any, _message: Any) -> None:
        if error is not None:
            refused.append(error)

    for key, value in messages:
        _patiently(producer, lambda key=key, value=value: producer.produce(topic, value, key, on_delivery=reported))  # type: ignore[misc]
        producer.poll(0)
    left = producer.flush(120)
    if left or refused:
        raise AssertionError(f"{left} messages not sent, {len(refused)} refused: {refused[:1]}")


def _patiently(producer: Any, produce: Callable[[], None]) -> None:
    while True:
        try:
            return produce()
        except BufferError:
            producer.poll(0.1)


def _message(received: Any) -> Message:
    headers = dict(received.headers())
    return Message(
        received.partition(),
        received.offset(),
        received.key().decode(),
        int(headers["Sequence-ID"]),
        headers["Idempotency-Key"].decode(),
        received.value(),
    )
