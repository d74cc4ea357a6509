"""The part of librdkafka's statistics that a consumer uses: where the partitions end, and where its group stands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from boxengine.ports import TopicPartition


class Extent(NamedTuple):
    """Offsets of one partition; negative where librdkafka does not know (yet)."""

    first: int
    end: int
    """Of the message that comes next, as this consumer may see it: behind the last committed transaction."""
    committed: int
    """By the group: the offset at which it would begin again."""

    def lag(self, position: int | None) -> int | None:
        """How many messages follow from the position on; None if unknown.

        Args:
            position: the next offset to be acknowledged; None: this consumer has acknowledged nothing here yet.
        """
        start = position if position is not None else self.committed if self.committed >= 0 else self.first
        return max(0, self.end - start) if self.end >= 0 and start >= 0 else None


def extents(statistics: str) -> dict[TopicPartition, Extent]:
    """Of each partition, from the JSON document that librdkafka hands over from time to time."""
    topics: Mapping[str, Any] = json.loads(statistics).get("topics", {})
    return {
        (name, int(number)): Extent(
            known.get("lo_offset", -1),
            known["ls_offset"] if known.get("ls_offset", -1) >= 0 else known.get("hi_offset", -1),
            known.get("committed_offset", -1),
        )
        for name, topic in topics.items()
        for number, known in topic.get("partitions", {}).items()
    }
