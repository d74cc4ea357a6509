"""Reads topics from their beginning to their end, as a ``TopicLog``: no group is joined and no offset committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from typing import Any, NamedTuple

from boxengine.adapters.kafka.client import LOGGER
from boxengine.adapters.kafka.consumer_client import ConsumerClient, load_consumer_client, words
from boxengine.adapters.kafka.consumer_config import consumer_config
from boxengine.adapters.kafka.received import message_of
from boxengine.domain.message import ReceivedMessage
from boxengine.errors import BoxError, SourceUnavailable
from boxengine.ports import Clock
from boxengine.ports.people.audit import TopicLosses

PAGE = 1000
"""Messages."""
ANSWER = 30.0
"""Seconds within which a broker must answer."""
BUFFER_KIB = 2048
"""How much librdkafka buffers for each partition; its own default is 64 MB."""
GROUP = "boxengine-audit"
"""librdkafka requires a group; nobody joins it."""
END = "_PARTITION_EOF"
OURS: Mapping[str, Any] = {
    "isolation.level": "read_committed",
    # Reports the end of the committed messages; an open transaction may stand before the end of the log.
    "enable.partition.eof": True,
    "queued.max.messages.kbytes": BUFFER_KIB,
    # The settings come from the transport's producer; this hides warnings about those that a consumer does not use.
    "log_level": 3,
}


class _Stretch(NamedTuple):
    """The part of a partition to read."""

    topic: str
    partition: int
    low: int
    end: int


class TopicReader:
    """``TopicLog`` over one librdkafka consumer."""

    def __init__(
        self,
        *,
        topics: Sequence[str],
        bootstrap_servers: str,
        config: Mapping[str, Any] | None = None,
        clock: Clock,
        client: Callable[[], ConsumerClient] = load_consumer_client,
    ) -> None:
        """No broker is asked.

        Args:
            config: librdkafka's own settings, such as those of the transport that feeds the topics.

        Raises:
            BoxError: ``confluent-kafka`` is missing, or librdkafka refuses the configuration.
        """
        self._client = client()
        self._topics = topics
        self._clock = clock
        own = {**(config or {}), **OURS}
        self._settings = consumer_config(bootstrap_servers=bootstrap_servers, group=GROUP, config=own, slot="0")
        try:
            self._consumer = self._client.consumer(self._settings, logger=LOGGER)
        except (self._client.exception, TypeError, ValueError) as error:
            raise BoxError(f"kafka: librdkafka refuses the configuration: {words(error)}") from error
        self._stretches: list[_Stretch] = []
        self._oldest: dict[tuple[str, int], datetime | None] = {}
        """When the first message of a partition was sent."""

    def measure(self) -> int:
        with self._translated():
            self._stretches = [self._stretch(*place) for topic in self._topics for place in self._partitions(topic)]
        return sum(each.end - each.low for each in self._stretches)

    def read(self) -> Iterator[Sequence[ReceivedMessage]]:
        ends = {(each.topic, each.partition): each.end for each in self._stretches if each.end > each.low}
        starts = [self._client.partition(each.topic, each.partition, each.low) for each in self._stretches]
        with self._translated():
            self._consumer.assign(starts)
        while ends:
            page = self._page(ends)
            if page:
                yield page

    def losses(self) -> TopicLosses:
        cut = [self._oldest.get((each.topic, each.partition)) for each in self._stretches if each.low > 0]
        # If a partition has lost all its messages, or they have no timestamps, nothing is known about what it held.
        complete_from = max((moment or self._clock.now() for moment in cut), default=None)
        return TopicLosses(complete_from, compacted=any(map(self._compacted, self._topics)))

    def close(self) -> None:
        self._consumer.close()

    # ── the parts ────────────────────────────────────────────────────────────────────────────────────

    def _page(self, ends: dict[tuple[str, int], int]) -> list[ReceivedMessage]:
        """The next messages; partitions that are read to their end leave ``ends``."""
        page = []
        for received in self._received():
            place, error = (received.topic(), received.partition()), received.error()
            if error is not None and error.name() != END:
                raise SourceUnavailable(f"kafka: {error.name()}: {error.str()}")
            if place not in ends:
                continue
            if error is None and received.offset() < ends[place]:
                message = message_of(received)
                self._oldest.setdefault(place, message.timestamp)
                page.append(message)
            if error is not None or received.offset() >= ends[place] - 1:
                del ends[place]
        return page

    def _received(self) -> list[Any]:
        with self._translated():
            first = self._consumer.poll(ANSWER)
            if first is None:
                raise SourceUnavailable(f"kafka: no answer within {ANSWER:g} s while reading {', '.join(self._topics)}")
            return [first, *self._consumer.consume(PAGE - 1, timeout=0)]

    def _partitions(self, topic: str) -> list[tuple[str, int]]:
        known = self._consumer.list_topics(topic, timeout=ANSWER).topics[topic]
        if known.error is not None:
            raise BoxError(f"kafka: topic {topic!r}: {known.error.str()}")
        return [(topic, number) for number in sorted(known.partitions)]

    def _stretch(self, topic: str, partition: int) -> _Stretch:
        place = self._client.partition(topic, partition)
        low, end = self._consumer.get_watermark_offsets(place, timeout=ANSWER)
        return _Stretch(topic, partition, low, end)

    def _compacted(self, topic: str) -> bool:
        """Whether the broker reports compaction; without permission to ask, the topic is treated as not compacted."""
        admin: Any = import_module("confluent_kafka.admin")
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
        try:
            # Kept in a variable: a garbage-collected client stops answering.
            client = admin.AdminClient(self._settings, logger=LOGGER)
            asked = client.describe_configs([resource], request_timeout=ANSWER)
            return "compact" in asked[resource].result()["cleanup.policy"].value
        except (self._client.exception, KeyError):
            return False

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._client.exception as error:
            raise SourceUnavailable(f"kafka: {words(error)}") from error
