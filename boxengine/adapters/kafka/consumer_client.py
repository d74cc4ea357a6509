"""The parts of ``confluent_kafka`` that a consumer needs, imported once a consumer is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from boxengine.adapters.kafka.topic_ids import BrokersTopics
from boxengine.errors import BoxError


@dataclass(frozen=True, slots=True)
class ConsumerClient:
    """The parts of ``confluent_kafka`` that a consumer uses."""

    consumer: Any
    partition: Any
    """``TopicPartition``."""
    error: type[Any]
    exception: type[Exception]
    topics: Callable[[Mapping[str, Any]], BrokersTopics] = BrokersTopics
    """Called with a consumer's configuration."""


def load_consumer_client() -> ConsumerClient:
    """Imports ``confluent_kafka``.

    Raises:
        BoxError: it is not installed.
    """
    try:
        import confluent_kafka  # noqa: PLC0415 - an optional dependency, needed from here on
    except ImportError as error:
        raise BoxError('a kafka source needs confluent-kafka: pip install "boxengine[kafka]"') from error
    return ConsumerClient(
        confluent_kafka.Consumer,
        confluent_kafka.TopicPartition,
        confluent_kafka.KafkaError,
        confluent_kafka.KafkaException,
    )


def words(error: BaseException) -> str:
    """The name of librdkafka's error, then its text."""
    first: Any = error.args[0] if error.args else error
    return f"{first.name()}: {first.str()}" if hasattr(first, "fatal") else str(first)
