"""What the sources of inboxes must be to one another, and to the dead letters of their boxes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from boxengine.domain.box import Storage
from boxengine.settings.diagnosis import Finding
from boxengine.settings.schema import Settings


def check(settings: Settings) -> Iterator[Finding]:
    """Dead letters that would go nowhere, or come back."""
    for name, inbox in settings.inbox_items.items():
        if inbox.source is None:
            continue
        kafka = inbox.source.kafka
        box, topic = ((kafka.dead_letter or {}).get(kind) for kind in ("box", "topic"))
        path = ("inbox_items", name, "source", "kafka", "dead_letter")
        if box is not None and (box == name or box not in settings.boxes):
            others = ", ".join(sorted(settings.boxes.keys() - {name})) or "none is configured"
            yield Finding((*path, "box"), f"expected another box, got {box!r}; known: {others}")
        elif box is not None and box in settings.outbox_items and settings.boxes[box].storage is Storage.LOG:
            message = (
                f"{box} is an outbox with storage: log, which cannot tell a dead letter that comes twice; expected an inbox, or "
                "an outbox with storage: table"
            )
            yield Finding((*path, "box"), message)
        if topic is not None and any(_covers(each, topic) for each in kafka.topics):
            message = f"the source itself reads {topic!r}, and would bury each dead letter again, for ever"
            yield Finding(
                (*path, "topic"), f"{message}; expected a topic that is none of its topics and matches no pattern"
            )


def _covers(topics: str, topic: str) -> bool:
    """Whether a topic is the named one, or matches the pattern (``^``)."""
    if not topics.startswith("^"):
        return topics == topic
    try:
        return re.search(topics, topic) is not None
    except re.error:  # librdkafka's patterns are not quite Python's
        return False


def shared_topics(sources: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Two boxes that are members of one group for one topic: Kafka gives each partition to one of them by chance.

    Args:
        sources: by box, the arguments of its consumers, with the defaults worked in.
    """
    for (first, one), (second, other) in combinations(sources.items(), 2):
        same_cluster = not _brokers(one).isdisjoint(_brokers(other))
        shared = [topic for topic in other["topics"] if any(_may_be_one(topic, each) for each in one["topics"])]
        if same_cluster and one["group"] == other["group"] and shared:
            message = (
                f"group {other['group']!r} reads topic {shared[0]!r} for inbox_items.{first} too: each message would reach one "
                "of the two boxes by chance; expected a group for each box"
            )
            yield Finding(("inbox_items", second, "source", "kafka", "group"), message)


def _brokers(source: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(each.strip() for each in str(source.get("bootstrap_servers", "")).split(","))


def _may_be_one(topic: str, other: str) -> bool:
    """Whether the two names, of which those that begin with ^ are patterns, have a topic in common, as far as one can tell."""
    if topic.startswith("^") and other.startswith("^"):
        return topic == other
    return _covers(topic, other) or _covers(other, topic)
