"""Kafka's errors in words: what happened to the item, what to look at, and whether it counts as an attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from boxengine.adapters.kafka.messages import Message
from boxengine.domain.outcome import Failure
from boxengine.errors import Unavailable

Answer = Failure | Unavailable | None
"""The answer for one message. None: acknowledged. ``Unavailable``: not the message's fault, so no attempt is counted."""

TOO_LARGE = "message too large: see message.max.bytes of the producer and max.message.bytes of the topic"
UNKNOWN_TOPIC = "unknown topic, and the broker does not create it"
NOT_AUTHORISED = "not authorised: see the principal's ACLs for this topic"
NOT_AUTHENTICATED = "authentication failed: see the credentials in config"
QUEUE_FULL = "the producer's local queue stayed full: see queue.buffering.max.messages and whether the brokers keep up"
PURGED_UNSENT = "taken back unsent, because its producer was replaced"
PURGED_SENT = "given up on, because its producer was replaced; whether the broker has it is unknown"
NO_BROKER = "no broker answered within {seconds:g} s; nothing was sent"
TIMED_OUT = "not acknowledged within {seconds:g} s; whether the broker has it is unknown"
FENCED = "another producer took over its transactional.id; this one was replaced"
FATAL = "fatal error of the producer, which was replaced"
LOST_TRACK = "the broker lost track of the producer's messages; the producer was replaced"

REASONS: Mapping[str, str] = {
    "_MSG_TIMED_OUT": TIMED_OUT,
    "_TIMED_OUT": TIMED_OUT,
    "REQUEST_TIMED_OUT": TIMED_OUT,
    "MSG_SIZE_TOO_LARGE": TOO_LARGE,
    "RECORD_LIST_TOO_LARGE": TOO_LARGE,
    "UNKNOWN_TOPIC_OR_PART": UNKNOWN_TOPIC,
    "_UNKNOWN_TOPIC": UNKNOWN_TOPIC,
    "_UNKNOWN_PARTITION": "the topic has no such partition",
    "TOPIC_EXCEPTION": "the topic's name is not valid",
    "_INVALID_ARG": "librdkafka refuses the message",
    "TOPIC_AUTHORIZATION_FAILED": NOT_AUTHORISED,
    "CLUSTER_AUTHORIZATION_FAILED": NOT_AUTHORISED,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": NOT_AUTHORISED,
    "_AUTHENTICATION": NOT_AUTHENTICATED,
    "SASL_AUTHENTICATION_FAILED": NOT_AUTHENTICATED,
    "_QUEUE_FULL": QUEUE_FULL,
    "_PURGE_QUEUE": PURGED_UNSENT,
    "_PURGE_INFLIGHT": PURGED_SENT,
    "_FATAL": FATAL,
    "INVALID_PRODUCER_ID_MAPPING": LOST_TRACK,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": LOST_TRACK,
    "UNKNOWN_PRODUCER_ID": LOST_TRACK,
    "INVALID_TXN_STATE": "its transaction was over already: see transaction.timeout.ms",
    "_FENCED": FENCED,
    "PRODUCER_FENCED": FENCED,
    "INVALID_PRODUCER_EPOCH": FENCED,
    "INVALID_TIMESTAMP": (
        "the broker refuses the timestamp: see options.timestamp and message.timestamp.before.max.ms and .after.max.ms"
    ),
    "INVALID_RECORD": "the broker refuses the record: a compacted topic needs a key",
    "NOT_ENOUGH_REPLICAS": "too few replicas in sync: see min.insync.replicas",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "too few replicas in sync: see min.insync.replicas; the broker may have it",
}
UNKNOWN_PARTITION = "_UNKNOWN_PARTITION"
REFUSED_TOGETHER = frozenset(
    {
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "_INVALID_DIFFERENT_RECORD",
    }
)
"""Errors that a broker reports for a whole record batch, guilty and innocent messages alike."""

TOPIC_FAULTS = frozenset({"TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
"""Errors that every message for the same topic would have met."""

ITEM_FAULTS = REFUSED_TOGETHER | TOPIC_FAULTS | {"TOPIC_EXCEPTION", UNKNOWN_PARTITION}
"""Errors of single messages: others of the same transaction may yet succeed without them."""

CONSEQUENCES = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT", "_STATE"})
"""Errors that follow from another one, which is more informative. ``_STATE``: handed over after the transaction had failed."""

BREAKING = frozenset({"INVALID_PRODUCER_ID_MAPPING", "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "_FATAL"})
"""Errors after which a producer is of no use. A broker that has lost messages, for example, refuses those that followed them."""

UNANSWERED = frozenset({"_MSG_TIMED_OUT", "_TIMED_OUT"})

LOCKED_OUT = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL"})
"""Why running brokers may not answer."""

OUTAGES = (
    CONSEQUENCES
    | BREAKING
    | UNANSWERED
    | LOCKED_OUT
    | {
        "BROKER_NOT_AVAILABLE",
        "CLUSTER_AUTHORIZATION_FAILED",
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_TXN_STATE",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_LEADER_FOR_PARTITION",
        "PRODUCER_FENCED",
        "REQUEST_TIMED_OUT",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "TRANSACTION_ABORTABLE",
        "TRANSACTION_COORDINATOR_FENCED",
        "_ALL_BROKERS_DOWN",
        "_FENCED",
        "_QUEUE_FULL",
        "_RESOLVE",
        "_TRANSPORT",
    }
)
"""Errors of brokers, connections and producers: every message would have met them. Those of a message count as an attempt."""


def is_items_fault(error: Any, message: Message) -> bool:
    """Whether others of the same transaction may yet succeed without the message."""
    return error.name() in ITEM_FAULTS and not _stops_all(error, message)


def answer(error: Any, message: Message, *, timeout: timedelta, last_error: Any = None) -> Failure | Unavailable:
    """What an error means for its message.

    Args:
        last_error: what the connection last complained about.
    """
    reason = explain(error, timeout=timeout, last_error=last_error, topic=message.topic)
    stops_all = error.name() in OUTAGES or error.fatal() or _stops_all(error, message)
    return Unavailable(reason) if stops_all else Failure(reason)


def _stops_all(error: Any, message: Message) -> bool:
    """Whether the transport's other messages would have met this error of a topic, too.

    If the message asked for no partition, and its partition is unknown, the topic was recreated with fewer.
    """
    name = error.name()
    return (message.only_topic and name in TOPIC_FAULTS) or (name == UNKNOWN_PARTITION and message.partition < 0)


def no_broker(error: Any, *, seconds: float, last_error: Any) -> Unavailable:
    """Nobody answered the first question, so nothing was sent."""
    if last_error is not None and last_error.name() in LOCKED_OUT:
        return Unavailable(explain(last_error, timeout=timedelta(seconds=seconds)))
    return Unavailable(f"kafka: {NO_BROKER.format(seconds=seconds)} ({error.name()}: {error.str()}){_last(last_error)}")


def explain(error: Any, *, timeout: timedelta, last_error: Any = None, topic: str | None = None) -> str:
    """An error in words; ``last_error`` explains timeouts."""
    name = str(error.name())
    said = REASONS.get(name, "not delivered").format(seconds=timeout.total_seconds())
    of = f"topic {topic}: " if topic is not None and name in TOPIC_FAULTS else ""
    return f"kafka: {of}{said} ({name}: {error.str()}){_last(last_error) if name in UNANSWERED else ''}"


def _last(error: Any) -> str:
    return "" if error is None else f"; last error: {error.str()}"


def first_outage(answers: Iterable[Answer]) -> Unavailable | None:
    """The first answer that puts its message off; None: none does."""
    return next((each for each in answers if isinstance(each, Unavailable)), None)
