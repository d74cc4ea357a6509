"""librdkafka's configuration of a consumer: our defaults, over them the user's ``config``, over them what we require."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from boxengine.adapters.kafka.config import is_on, producer_config, without_consumer_settings
from boxengine.errors import BoxError

DEFAULTS: Mapping[str, Any] = {
    "client.id": "boxengine",
    # From a transactional producer, only committed messages.
    "isolation.level": "read_committed",
    # A consumer that comes or goes moves some partitions; the others go on meanwhile.
    "partition.assignment.strategy": "cooperative-sticky",
    # A new group misses nothing that is still there.
    "auto.offset.reset": "earliest",
    # New topics and partitions are noticed within this time instead of five minutes.
    "topic.metadata.refresh.interval.ms": 30_000,
    # How often the lag is measured, for the metrics.
    "statistics.interval.ms": 10_000,
    # A small message waits no longer than this for others to share its fetch.
    "fetch.wait.max.ms": 100,
}
OURS: Mapping[str, Any] = {
    # Offsets are committed after the database has committed, by us alone.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}
STATIC_MEMBER = "group.instance.id"
DEAD_LETTER_TIMEOUT = timedelta(seconds=30)
"""How long a dead letter has to reach its topic."""


def consumer_config(
    *, bootstrap_servers: str, group: str, config: Mapping[str, Any] | None = None, slot: str
) -> dict[str, Any]:
    """The consumer's configuration.

    Args:
        slot: distinguishes this consumer from the others of its group and host (``0.1``: process, thread); goes into
            ``group.instance.id``, where one is configured, since each member's must be its own.

    Raises:
        BoxError: a setting under which messages would be lost, or never read.
    """
    own = dict(config or {})
    demand_safe(own, group=group)
    defaults = dict(DEFAULTS)
    if own.get("group.protocol") == "consumer":
        # In this protocol the broker assigns the partitions, and librdkafka refuses a client-side strategy.
        del defaults["partition.assignment.strategy"]
    merged = {**defaults, "bootstrap.servers": bootstrap_servers, "group.id": group, **own, **OURS}
    if STATIC_MEMBER in own:
        merged[STATIC_MEMBER] = f"{own[STATIC_MEMBER]}-{slot}"
    return merged


def checks(arguments: Mapping[str, Any]) -> Iterator[tuple[str | None, Callable[[], object]]]:
    """What shows that a source could not read, or not bury; see ``boxengine.settings.transports``."""
    config = arguments.get("config") or {}
    yield "config", partial(demand_safe, config, group=arguments["group"])
    if "topic" in (arguments.get("dead_letter") or {}):
        yield "dead_letter", partial(dead_letter_config, bootstrap_servers=None, config=config)


def dead_letter_config(*, bootstrap_servers: str | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a producer for a source's dead-letter topic.

    Raises:
        BoxError: as of ``producer_config``.
    """
    return producer_config(
        bootstrap_servers=bootstrap_servers,
        config=without_consumer_settings(config),
        delivery_timeout=DEAD_LETTER_TIMEOUT,
    )


def demand_safe(own: Mapping[str, Any], *, group: str) -> None:
    """Raises ``BoxError`` if with these settings messages would be lost, or never read."""
    if own.get("group.id", group) != group:
        # Among the defaults it would make all boxes one group, so that each message reached one of them.
        raise BoxError(
            f"kafka: group.id {own['group.id']!r} is not the source's group {group!r}: leave it out of the settings"
        )
    wrong = [
        f"{key} must be {str(value).lower()}" for key, value in OURS.items() if is_on(own.get(key, value)) != value
    ]
    if wrong:
        raise BoxError(f"kafka: {', '.join(wrong)}: offsets are committed once the messages are stored, never before")
    if own.get("auto.offset.reset") == "error":
        raise BoxError(
            "kafka: auto.offset.reset must be earliest or latest: with error, librdkafka reports a partition without a valid "
            "offset once, and then leaves it unread"
        )
