"""Whether a Kafka cluster answers; sends no message and joins no group."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from boxengine.adapters.kafka.client import load_client
from boxengine.errors import SourceUnavailable


def reach(bootstrap_servers: str, config: Mapping[str, Any], *, within: timedelta) -> None:
    """Asks the cluster for its topics.

    Raises:
        BoxError: ``confluent-kafka`` is missing, or librdkafka refuses the configuration.
        SourceUnavailable: no broker answers, or it refuses us.
    """
    client = load_client()
    # The config may hold consumer settings, which a producer does not use; ``log_level`` hides the warnings.
    producer = client.make_producer({**config, "bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        producer.list_topics(timeout=within.total_seconds())
    except client.exception as error:
        reason = client.error_of(error).str()
        raise SourceUnavailable(f"Kafka: {reason}; check bootstrap_servers, and that the brokers run") from error
