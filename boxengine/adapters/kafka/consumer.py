"""A consumer of a group, as a ``MessageSource``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from boxengine.adapters.kafka.client import LibrdkafkaLog
from boxengine.adapters.kafka.consumer_client import ConsumerClient, load_consumer_client, words
from boxengine.adapters.kafka.statistics import Extent, extents
from boxengine.domain.message import ReceivedMessage
from boxengine.errors import BoxError, SourceUnavailable
from boxengine.ports import TopicPartition

logger = logging.getLogger(__name__)

ASK = 1.0
"""Seconds for the broker's answer, where it is not known whether it is there."""
SILENCE = 5.0
"""Seconds for its answer to a commit, after which it is not believed to be there."""
MOVED = frozenset(
    {
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "REBALANCE_IN_PROGRESS",
        "_ASSIGNMENT_LOST",
        "_IN_PROGRESS",
        "_NO_OFFSET",
        "_STATE",
    }
)
"""Answers to a commit that come with a rebalance. The next owner receives the messages again, and knows them."""
PASSING = frozenset({"_PARTITION_EOF", "_MAX_POLL_EXCEEDED"})
"""What librdkafka reports though it goes on by itself."""
SILENT = frozenset({"_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT", "_AUTHENTICATION", "_SSL"})
"""What the client's own threads report where no broker can be reached."""


class KafkaSource:
    """``MessageSource`` over one librdkafka consumer, which is made at the first ``receive`` and anew where it broke."""

    def __init__(
        self,
        *,
        topics: Sequence[str],
        config: Mapping[str, Any],
        client: Callable[[], ConsumerClient] = load_consumer_client,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """No broker is asked.

        Args:
            topics: names, or patterns beginning with ``^``.
            config: see ``consumer_config``.
            monotonic: seconds that never go back.

        Raises:
            BoxError: ``confluent-kafka`` is missing, or librdkafka refuses the configuration.
        """
        self._topics = list(topics)
        self._config = dict(config)
        self._client = client()
        self._consumer: Any = None
        self._owned: set[TopicPartition] = set()
        self._stored: dict[TopicPartition, int] = {}
        """The next offset of each partition whose messages are stored, until the broker has it."""
        self._done: dict[TopicPartition, int] = {}
        """The next offset to be acknowledged of each owned partition of which any has been."""
        self._extents: Mapping[TopicPartition, Extent] = {}
        self._postponed: Any = None
        """An error that came along with messages."""
        self._unreachable: str | None = None
        self._monotonic = monotonic
        self._committing_since: float | None = None
        self._check_config()

    # ── MessageSource ────────────────────────────────────────────────────────────────────────────────

    def receive(self, limit: int, *, wait: timedelta) -> Sequence[ReceivedMessage]:
        consumer = self._connected()
        with self._translated():
            self._raise_postponed()
            if self._stored:
                self._commit(consumer)
            first = consumer.poll(wait.total_seconds())
            if first is None:
                self._ask_whether_reachable(consumer)
                return []
            # What has come by now and no more: waiting for company would only delay.
            return self._usable([first, *consumer.consume(max(1, limit - 1), timeout=0)])

    def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            partition = (message.topic, message.partition)
            if partition in self._owned:
                self._stored[partition] = self._done[partition] = message.offset + 1
        with self._translated():
            self._commit(self._connected())

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        starts: dict[TopicPartition, int] = {}
        for message in messages:
            starts.setdefault((message.topic, message.partition), message.offset)
        self._seek(starts)

    def halt(self, message: ReceivedMessage) -> None:
        partition = (message.topic, message.partition)
        self._seek({partition: message.offset})
        if partition in self._owned and self._consumer is not None:
            with self._translated():
                self._consumer.pause([self._client.partition(*partition)])

    def lags(self) -> Mapping[TopicPartition, int]:
        measured = {
            partition: extent.lag(self._done.get(partition))
            for partition, extent in self._extents.items()
            if partition in self._owned
        }
        return {partition: lag for partition, lag in measured.items() if lag is not None}

    def check(self) -> None:
        if self._unreachable is not None:
            raise SourceUnavailable(self._unreachable)
        # A commit that a broker's death cuts short is tried again by librdkafka without end and without a word.
        since = self._committing_since
        silent = 0.0 if since is None else self._monotonic() - since
        if silent > SILENCE:
            raise SourceUnavailable(f"kafka: no answer to a commit for {silent:.0f} s")

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                # Calls _revoked, which commits what is stored.
                consumer.close()
            except self._client.exception:
                logger.warning("a Kafka consumer could not leave its group", exc_info=True)
        self._owned.clear()
        self._stored.clear()
        self._done.clear()
        self._extents = {}

    # ── the consumer ─────────────────────────────────────────────────────────────────────────────────

    def _connected(self) -> Any:
        if self._consumer is None:
            consumer = self._make(self._config)
            consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
            self._consumer = consumer
        return self._consumer

    def _make(self, config: Mapping[str, Any]) -> Any:
        try:
            callbacks = {"error_cb": self._complained, "stats_cb": self._measured}
            return self._client.consumer({**config, **callbacks}, logger=LibrdkafkaLog())
        except (self._client.exception, TypeError, ValueError) as error:
            raise BoxError(f"kafka: librdkafka refuses the configuration: {words(error)}") from error

    def _check_config(self) -> None:
        offline = {key: value for key, value in self._config.items() if key != "bootstrap.servers"}
        self._make({**offline, "log_level": 0}).close()

    def _usable(self, received: Iterable[Any]) -> list[ReceivedMessage]:
        messages: list[ReceivedMessage] = []
        for each in received:
            error = each.error()
            if error is None:
                messages.append(message_of(each))
            elif error.name() not in PASSING:
                self._postponed = error
        if messages:
            self._unreachable = None
        else:
            self._raise_postponed()
        return messages

    def _raise_postponed(self) -> None:
        error, self._postponed = self._postponed, None
        if error is not None:
            raise self._client.exception(error)

    def _ask_whether_reachable(self, consumer: Any) -> None:
        """Nobody tells when a broker is back, so where none was, it is asked."""
        if self._unreachable is not None:
            try:
                consumer.list_topics(timeout=ASK)
            except self._client.exception:
                raise SourceUnavailable(self._unreachable) from None
            self._unreachable = None

    def _complained(self, error: Any) -> None:
        """Called by librdkafka for what concerns no single message."""
        if error.name() in SILENT:
            self._unreachable = f"kafka: {error.str()}"
        elif error.fatal():
            self._postponed = error

    def _measured(self, statistics: str) -> None:
        """Called by librdkafka now and then."""
        self._extents = extents(statistics)

    # ── positions ────────────────────────────────────────────────────────────────────────────────────

    def _seek(self, starts: Mapping[TopicPartition, int]) -> None:
        """A partition that cannot be set back must not go on either: a new consumer begins where the group left off."""
        try:
            for partition, offset in starts.items():
                if self._consumer is not None and partition in self._owned:
                    self._consumer.seek(self._client.partition(*partition, offset))
                    # It may have been halted further on.
                    self._consumer.resume([self._client.partition(*partition)])
        except self._client.exception:
            self.close()

    def _commit(self, consumer: Any, only: Iterable[TopicPartition] | None = None) -> None:
        """Commits what is stored, and waits for it. What the broker will not have stays for the next time."""
        wanted = self._stored.keys() if only is None else self._stored.keys() & set(only)
        offsets = [self._client.partition(*partition, self._stored[partition]) for partition in wanted]
        if not offsets:
            return
        self._committing_since = self._monotonic()
        try:
            answers = consumer.commit(offsets=offsets, asynchronous=False)
        except self._client.exception as error:
            if error.args[0].name() in MOVED:
                logger.debug("offsets are not committed during a rebalance: %s", words(error))
                return
            raise
        finally:
            self._committing_since = None
        refusal = None
        for answer in answers:
            if answer.error is None:
                self._stored.pop((answer.topic, answer.partition), None)
            elif answer.error.name() not in MOVED:
                refusal = answer.error
        if refusal is not None:
            raise self._client.exception(refusal)

    def _assigned(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        self._owned |= set(_names(partitions))

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Between two batches, so nothing is in flight: all that was received is stored or put back."""
        leaving = set(_names(partitions))
        try:
            self._commit(consumer, leaving)
        except self._client.exception as error:
            logger.warning("offsets of partitions that move on are not committed: %s", words(error))
        self._lost(consumer, partitions)

    def _lost(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        for partition in _names(partitions):
            self._owned.discard(partition)
            self._stored.pop(partition, None)
            self._done.pop(partition, None)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._client.exception as error:
            if error.args[0].fatal():
                # It is of no more use; the next one begins where the group left off.
                self.close()
            raise SourceUnavailable(f"kafka: {words(error)}") from error


def message_of(received: Any) -> ReceivedMessage:
    """What librdkafka received, as a value."""
    kind, milliseconds = received.timestamp()
    return ReceivedMessage(
        received.topic(),
        received.partition(),
        received.offset(),
        received.key(),
        received.value(),
        tuple(received.headers() or ()),
        datetime.fromtimestamp(milliseconds / 1000, UTC) if kind else None,
    )


def _names(partitions: Sequence[Any]) -> list[TopicPartition]:
    return [(each.topic, each.partition) for each in partitions]
