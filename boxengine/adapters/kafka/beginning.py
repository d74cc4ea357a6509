"""Where a group begins that reads from the end of its topics (``auto.offset.reset: latest``).

The broker does not remember the end at which a consumer began until messages are committed behind it. If the consumer stops
or its partition moves before that, the next one begins at a later end, and what came in between is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from boxengine.errors import SourceUnavailable
from boxengine.ports import TopicPartition

ANSWER = 5.0
"""Seconds to wait for each answer of a broker."""
_END = frozenset({"latest", "largest", "end"})
_INCREMENTAL = "cooperative-sticky"


def begins_at_the_end(config: Mapping[str, Any]) -> bool:
    """Whether a partition without a committed offset is read from its end, as librdkafka understands this configuration."""
    return str(config.get("auto.offset.reset", "")).lower() in _END


def begin_at_the_end(
    consumer: Any,
    partitions: Sequence[Any],
    *,
    config: Mapping[str, Any],
    exception: Callable[[Any], Exception],
) -> Mapping[TopicPartition, int]:
    """Assigns the partitions, which have just been given to the consumer; those without a committed offset from their ends.

    Returns these ends, which are still to be committed.

    Raises:
        SourceUnavailable: a broker does not say where a partition ends.
        Exception: what ``exception`` makes of a broker's refusal, or what librdkafka raises.
    """
    places = consumer.committed(list(partitions), timeout=ANSWER)
    ends: dict[TopicPartition, int] = {}
    for place in places:
        if place.error is not None:
            raise exception(place.error)
        if place.offset < 0:
            place.offset = ends[place.topic, place.partition] = _end_of(consumer, place)
    incremental = (
        config.get("group.protocol") == "consumer" or config.get("partition.assignment.strategy") == _INCREMENTAL
    )
    (consumer.incremental_assign if incremental else consumer.assign)(places)
    return ends


def _end_of(consumer: Any, place: Any) -> int:
    bounds = consumer.get_watermark_offsets(place, timeout=ANSWER)
    if bounds is None:
        raise SourceUnavailable(f"kafka: no broker says where partition {place.partition} of topic {place.topic} ends")
    return int(bounds[1])
