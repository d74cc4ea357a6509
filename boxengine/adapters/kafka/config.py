"""librdkafka's configuration: our defaults, over them the reference's two keys, over them the user's ``config``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from boxengine.adapters.kafka.client import SERVERS
from boxengine.errors import BoxError

DEFAULTS: Mapping[str, Any] = {
    "client.id": "boxengine",
    "enable.idempotence": True,
    "acks": "all",
    # lz4 is compiled into every librdkafka; zstd is not.
    "compression.type": "lz4",
    # Keeps a batch together while it is handed over; its flush then cuts the linger short.
    "linger.ms": 5,
    # A broker that is back is noticed within this time instead of ten seconds.
    "reconnect.backoff.max.ms": 2_000,
    # librdkafka waits 30 s for a topic to appear, and the whole batch with it.
    "topic.metadata.propagation.max.ms": 10_000,
}
TIMEOUT_KEYS = ("delivery.timeout.ms", "message.timeout.ms")
MILLISECOND = timedelta(milliseconds=1)
ERRORS_ONLY = "delivery.report.only.error"
CONSUMER_ONLY = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "check.crcs",
        "consume.callback.max.messages",
        "coordinator.query.interval.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "offset.store.method",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
        "statistics.interval.ms",
    }
)
"""librdkafka's settings for consumers only, and how often a consumer measures its lag."""
ALL_ACKS = ("all", "-1")


def producer_config(
    *,
    bootstrap_servers: str | Sequence[str] | None,
    config: Mapping[str, Any] | None = None,
    delivery_timeout: timedelta,
    required_acks: int | str | None = None,
    max_retries: int | None = None,
    transactional_id: str | None = None,
) -> dict[str, Any]:
    """The producer's configuration.

    ``required_acks`` and ``max_retries`` are the reference's names for ``acks`` and ``message.send.max.retries``;
    fewer acknowledgements than all, or no retries, switch idempotence off, which librdkafka insists on.

    Raises:
        BoxError: settings under which nothing would be acknowledged, or nothing ever given up.
    """
    own = dict(config or {})
    merged: dict[str, Any] = dict(DEFAULTS)
    if bootstrap_servers:
        merged["bootstrap.servers"] = (
            bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
        )
    if required_acks is not None:
        merged["acks"] = required_acks
    if max_retries is not None:
        merged["message.send.max.retries"] = max_retries
    if not any(key in own for key in TIMEOUT_KEYS):
        merged["delivery.timeout.ms"] = round(delivery_timeout / MILLISECOND)
    acks = own.get("acks", own.get("request.required.acks", merged["acks"]))
    if str(acks) not in ALL_ACKS or max_retries == 0:
        merged["enable.idempotence"] = False
    if str(acks) == "0":
        raise BoxError("kafka: with acks 0 nothing is ever acknowledged, so nothing could count as delivered")
    merged.update(own)
    if is_on(merged.get(ERRORS_ONLY, False)):
        raise BoxError(f"kafka: {ERRORS_ONLY} must be false: nothing would say that a message was delivered")
    delivery_timeout_of(merged)
    if transactional_id is not None:
        merged["transactional.id"] = transactional_id
        # A transaction must outlive the messages in it; past this time the broker aborts what a dead worker left open.
        merged.setdefault("transaction.timeout.ms", max(60_000, round(delivery_timeout_of(merged) / MILLISECOND)))
    return merged


def demand_servers(config: Mapping[str, Any]) -> None:
    """Raises ``BoxError`` unless a configuration of librdkafka's names servers."""
    if not any(map(config.get, SERVERS)):
        raise BoxError(
            "kafka: bootstrap_servers is missing: expected as an argument of the transport, or in kafka at the top level"
        )


def delivery_timeout_of(config: Mapping[str, Any]) -> timedelta:
    """How long librdkafka tries to deliver a message before it reports a failure."""
    key = next(key for key in TIMEOUT_KEYS if key in config)
    try:
        milliseconds = int(config[key])
    except (TypeError, ValueError):
        raise BoxError(f"kafka: {key} {config[key]!r}: expected milliseconds") from None
    if milliseconds <= 0:
        raise BoxError(f"kafka: {key} must be more than 0: a batch could wait for ever")
    return timedelta(milliseconds=milliseconds)


def is_on(value: Any) -> bool:
    """Whether a setting of librdkafka's is true, in one of the spellings that it takes."""
    return value if isinstance(value, bool) else str(value).lower() in {"true", "t", "1"}


def without_consumer_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a consumer's configuration that a producer for the same brokers can use."""
    return {key: value for key, value in config.items() if key not in CONSUMER_ONLY}
