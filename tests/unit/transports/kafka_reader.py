"""Reads topics back."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.eventually import eventually


def read_all(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> list[Any]:
    """Every message of the topic that a consumer of that isolation sees, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 20,
        }
    )
    with closing(consumer):
        # A broker that is busy may know of the topic before it knows of its partitions.
        partitions = eventually(lambda: list(consumer.list_topics(topic, timeout=20).topics[topic].partitions))
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return list(_until_the_end(consumer, open_ends=set(partitions)))


def _until_the_end(consumer: Consumer, *, open_ends: set[int]) -> Iterator[Any]:
    while open_ends:
        message = consumer.poll(20)
        if message is None:
            raise TimeoutError(f"partitions {sorted(open_ends)} gave nothing for 20 s")
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            open_ends.discard(message.partition())
        else:
            raise AssertionError(error)


def headers_of(message: Any) -> dict[str, str]:
    """The message's headers as text."""
    return {name: value.decode() for name, value in message.headers() or ()}
