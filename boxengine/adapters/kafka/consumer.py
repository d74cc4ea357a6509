"""A consumer of a group, as a ``MessageSource``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from boxengine.adapters.kafka.absent_topics import AbsentTopics, Tell
from boxengine.adapters.kafka.beginning import begin_at_the_end, begins_at_the_end
from boxengine.adapters.kafka.client import LibrdkafkaLog
from boxengine.adapters.kafka.consumer_client import ConsumerClient, load_consumer_client, words
from boxengine.adapters.kafka.received import message_of
from boxengine.adapters.kafka.statistics import Extent, extents
from boxengine.adapters.kafka.topic_ids import FORBIDDEN, UNKNOWN, TopicIds, log_changes
from boxengine.domain.message import ReceivedMessage
from boxengine.errors import BoxError, SourceUnavailable
from boxengine.ports import TopicPartition

logger = logging.getLogger(__name__)

ASK = 1.0
"""Seconds to wait for the answer of a broker that may be down."""
SILENCE = 5.0
"""Seconds to wait for the broker's answer to a commit before the broker counts as down."""
MOVED = frozenset(
    {
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "FENCED_MEMBER_EPOCH",
        "REBALANCE_IN_PROGRESS",
        "STALE_MEMBER_EPOCH",
        "UNKNOWN_TOPIC_OR_PART",
        "_ASSIGNMENT_LOST",
        "_IN_PROGRESS",
        "_NO_OFFSET",
        "_STATE",
    }
)
"""Answers to a commit during a rebalance, or once a topic is deleted. The next owner, if there is one, receives the messages
again and recognises them. Here the next polls take the partitions away."""
KEPT_OUT = frozenset({"GROUP_AUTHORIZATION_FAILED", "INCONSISTENT_GROUP_PROTOCOL"})
"""Errors that keep a consumer out of its group until people do something. librdkafka goes on trying in silence."""
PASSING = frozenset({"_PARTITION_EOF", "_MAX_POLL_EXCEEDED"})
"""Errors that librdkafka reports but recovers from by itself."""
BEGINNING = -2
"""librdkafka's ``OFFSET_BEGINNING``."""
SILENT = frozenset({"_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT", "_AUTHENTICATION", "_SSL"})
"""Errors that the client's own threads report when they can reach no broker."""


class KafkaSource:
    """``MessageSource`` over one librdkafka consumer, made at the first ``receive`` and again after it breaks."""

    def __init__(
        self,
        *,
        topics: Sequence[str],
        config: Mapping[str, Any],
        client: Callable[[], ConsumerClient] = load_consumer_client,
        monotonic: Callable[[], float] = time.monotonic,
        waiting: Callable[[str | None], None] = lambda _reason: None,
        absent: Tell = lambda _topic, _reason: None,
    ) -> None:
        """No broker is asked.

        Args:
            topics: names, or patterns beginning with ``^``.
            config: see ``consumer_config``.
            monotonic: seconds that never go back.
            waiting: called before a commit with what would be wrong if the wait for its answer became long, and with None
                once that has come. If a broker dies meanwhile, librdkafka retries the commit endlessly and silently.
            absent: called again and again with each named topic that does not exist or may not be read, and why nothing
                comes from it, and with None once it can be read.

        Raises:
            BoxError: ``confluent-kafka`` is missing, or librdkafka refuses the configuration or the topics.
        """
        self._topics = list(dict.fromkeys(topics))  # librdkafka refuses one that comes twice
        self._config = dict(config)
        self._client = client()
        self._consumer: Any = None
        self._owned: set[TopicPartition] = set()
        self._stored: dict[TopicPartition, int] = {}
        """The next offset of each partition whose messages are stored, or at whose end the group begins; kept until the broker
        has it."""
        self._done: dict[TopicPartition, int] = {}
        """The next offset to acknowledge, for each owned partition with an acknowledged message."""
        self._extents: Mapping[TopicPartition, Extent] = {}
        self._committed: dict[TopicPartition, int] = {}
        """The next offset of each partition that this consumer has committed; kept when the partition moves."""
        self._cluster: str | None = None
        """The cluster's id; None: not asked since partitions were assigned."""
        known = self._client.topics(self._config)
        self._topic_ids = TopicIds(known.ids)
        self._absent = AbsentTopics(self._topics, known.troubles, tell=absent)
        self._next: dict[TopicPartition, int] = {}
        """The next offset to hand out, for each owned partition of which messages came."""
        self._postponed: Any = None
        """An error that came along with messages."""
        self._kept_out: Any = None
        """Why the group does not take this consumer in; None: nothing is known to be wrong."""
        self._unreachable: str | None = None
        self._monotonic = monotonic
        self._waiting = waiting
        self._check_config()

    # ── MessageSource ────────────────────────────────────────────────────────────────────────────────

    def receive(self, limit: int, *, wait: timedelta) -> Sequence[ReceivedMessage]:
        consumer = self._connected()
        with self._translated():
            self._raise_postponed()
            if self._stored:
                self._commit(consumer)
            self._ask_for_topics(consumer)
            self._ask_for_absent_topics()
            messages = self._taken(consumer, limit, wait)
            if messages is None:
                self._ask_whether_reachable(consumer)
                if self._kept_out is not None:
                    raise self._client.exception(self._kept_out)
                return []
            if not messages:
                self._raise_postponed()
            return messages

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

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                # Calls _revoked, which commits what is stored.
                consumer.close()
            except Exception:  # the consumer is gone either way
                logger.warning("a Kafka consumer could not leave its group", exc_info=True)
        self._stored.clear()
        self._done.clear()
        self._next.clear()
        self._topic_ids.forget(self._owned)
        self._owned.clear()
        self._extents = {}
        self._kept_out = None

    # ── the consumer ─────────────────────────────────────────────────────────────────────────────────

    def _connected(self) -> Any:
        if self._consumer is None:
            consumer = self._make(self._config)
            consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
            self._consumer = consumer
            self._absent.begin(self._monotonic())
        return self._consumer

    def _make(self, config: Mapping[str, Any]) -> Any:
        try:
            callbacks = {"error_cb": self._complained, "stats_cb": self._measured}
            return self._client.consumer({**config, **callbacks}, logger=LibrdkafkaLog())
        except (self._client.exception, TypeError, ValueError) as error:
            raise BoxError(f"kafka: librdkafka refuses the configuration: {words(error)}") from error

    def _check_config(self) -> None:
        offline = {key: value for key, value in self._config.items() if key != "bootstrap.servers"}
        consumer = self._make({**offline, "log_level": 0})
        try:
            consumer.subscribe(self._topics)
        except self._client.exception as error:
            raise BoxError(f"kafka: librdkafka refuses the topics {', '.join(self._topics)}: {words(error)}") from error
        finally:
            consumer.close()

    def _taken(self, consumer: Any, limit: int, wait: timedelta) -> list[ReceivedMessage] | None:
        """The messages that librdkafka has; None: nothing came in time."""
        try:
            first = consumer.poll(wait.total_seconds())
            if first is None:
                return None
            # Only what has already arrived: waiting for more would delay the first message.
            others = consumer.consume(limit - 1, timeout=0) if limit > 1 else []
            return self._usable(consumer, [first, *others])
        except BaseException:
            # Messages may have left librdkafka without reaching us, and its position is behind them. Only a new consumer
            # begins at the committed offsets again.
            self.close()
            raise

    def _usable(self, consumer: Any, received: Iterable[Any]) -> list[ReceivedMessage]:
        messages: list[ReceivedMessage] = []
        for each in received:
            error = each.error()
            if error is None:
                messages.append(message_of(each, cluster=self._cluster_id(consumer, each.topic())))
            elif error.name() in PASSING:
                continue
            elif error.name() not in {UNKNOWN, FORBIDDEN} or not self._absent.doubt(each.topic()):
                self._postponed = error
                if error.name() in KEPT_OUT and not self._owned:
                    self._kept_out = error
        if messages and self._topic_ids.unsure(self._owned):
            others = self._leave_other_topics(consumer)
            messages = [each for each in messages if (each.topic, each.partition) not in others]
        if messages:
            self._unreachable = None
            self._look_for_steps_back(messages)
        places = {(each.topic, each.partition): each.offset + 1 for each in messages}
        self._next |= {place: places[place] for place in self._owned & places.keys()}
        return messages

    def _cluster_id(self, consumer: Any, topic: str) -> str:
        if self._cluster is None:
            self._cluster = consumer.list_topics(topic, timeout=SILENCE).cluster_id or ""
        return self._cluster

    def _look_for_steps_back(self, messages: Iterable[ReceivedMessage]) -> None:
        """Logs offsets below a committed one, once for each step back."""
        for message in messages:
            partition = (message.topic, message.partition)
            committed = self._committed.get(partition, 0)
            if message.offset < committed:
                del self._committed[partition]
                logger.warning(
                    "the offsets of %s[%d] went back from %d to %d: the topic was deleted and created again, the group's "
                    "offsets were reset, or this is another cluster. Messages that are stored already are recognised "
                    "by their dedup_key",
                    *partition,
                    committed,
                    message.offset,
                )

    def _raise_postponed(self) -> None:
        error, self._postponed = self._postponed, None
        if error is not None:
            raise self._client.exception(error)

    def _ask_whether_reachable(self, consumer: Any) -> None:
        """Nothing reports a broker's return, so after an outage this asks for the topics."""
        if self._unreachable is not None:
            try:
                consumer.list_topics(timeout=ASK)
            except self._client.exception:
                raise SourceUnavailable(self._unreachable) from None
            self._unreachable = None

    def _complained(self, error: Any) -> None:
        """librdkafka calls this for errors that concern no single message."""
        if error.name() in SILENT:
            self._unreachable = f"kafka: {error.str()}"
        elif error.fatal():
            self._postponed = error

    def _measured(self, statistics: str) -> None:
        """librdkafka calls this every ``statistics.interval.ms``."""
        self._extents = extents(statistics)

    # ── topics that were created again ───────────────────────────────────────────────────────────────

    def _ask_for_topics(self, consumer: Any) -> None:
        """Checks now and then: librdkafka keeps its old position in a topic that was recreated under the same name."""
        if self._owned and self._unreachable is None and self._topic_ids.takes_turn(self._monotonic()):
            try:
                self._leave_other_topics(consumer)
            except self._client.exception as error:
                self._topic_ids.give_up(self._monotonic())
                logger.debug("the topics' ids could not be asked for: %s", words(error))

    def _ask_for_absent_topics(self) -> None:
        if self._unreachable is None:
            try:
                self._absent.look(self._monotonic())
            except self._client.exception as error:
                logger.debug("it is not known whether topics exist: %s", words(error))

    def _leave_other_topics(self, consumer: Any) -> frozenset[TopicPartition]:
        """Goes back to the beginning of the partitions whose topic was recreated, and returns them."""
        cluster = self._cluster_id(consumer, next(iter(self._owned))[0])

        def committed(partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
            answers = consumer.committed([self._client.partition(*each) for each in partitions], timeout=SILENCE)
            return {(each.topic, each.partition): each.metadata or "" for each in answers if each.error is None}

        changes = self._topic_ids.changes(self._owned, committed=committed, cluster=cluster)
        places = frozenset(change.partition for change in changes)
        for place in places:
            # The acknowledged messages belong to the deleted topic.
            for known in (self._stored, self._done, self._committed):
                known.pop(place, None)
            self._next[place] = BEGINNING
        self._seek(dict.fromkeys(places, BEGINNING))
        log_changes(changes)
        return places

    # ── positions ────────────────────────────────────────────────────────────────────────────────────

    def _seek(self, starts: Mapping[TopicPartition, int]) -> None:
        """Only goes back. If a seek fails, the partition must not go on: a new consumer begins where the group left off."""
        try:
            for partition, start in starts.items():
                if self._consumer is not None and partition in self._owned:
                    # Going forward would skip messages that were put back, or those of a new topic that replaced a deleted one.
                    if partition in self._next:
                        offset = self._next[partition] = min(start, self._next[partition])
                        self._consumer.seek(self._client.partition(*partition, offset))
                    # The partition may have been halted at a later offset.
                    self._consumer.resume([self._client.partition(*partition)])
        except Exception:
            logger.warning("a Kafka consumer could not be reset; a new one replaces it", exc_info=True)
            self.close()

    def _commit(self, consumer: Any, only: Iterable[TopicPartition] | None = None) -> None:
        """Commits the stored offsets and waits for the answer. Offsets that the broker refuses stay for the next commit."""
        wanted = self._stored.keys() if only is None else self._stored.keys() & set(only)
        offsets = [self._offset_of(partition) for partition in wanted]
        if not offsets:
            return
        self._waiting("no answer")
        try:
            answers = consumer.commit(offsets=offsets, asynchronous=False)
        except self._client.exception as error:
            if error.args[0].name() in MOVED:
                logger.debug("offsets are not committed during a rebalance: %s", words(error))
                return
            raise
        finally:
            self._waiting(None)
        refusal = None
        for answer in answers:
            if answer.error is None:
                partition = (answer.topic, answer.partition)
                self._committed[partition] = self._stored.pop(partition, answer.offset)
            elif answer.error.name() not in MOVED:
                refusal = answer.error
        if refusal is not None:
            raise self._client.exception(refusal)

    def _offset_of(self, partition: TopicPartition) -> Any:
        return self._client.partition(*partition, self._stored[partition], self._topic_ids.metadata(partition))

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._owned |= set(_names(partitions))
        if partitions and begins_at_the_end(self._config):
            self._stored |= begin_at_the_end(
                consumer, partitions, config=self._config, exception=self._client.exception
            )
        self._absent.seen(each.topic for each in partitions)
        self._cluster = None
        self._kept_out = None

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Runs between two batches, so nothing is in flight: every received message is stored or put back."""
        leaving = set(_names(partitions))
        try:
            self._commit(consumer, leaving)
        except self._client.exception as error:
            logger.warning("offsets of partitions that move on are not committed: %s", words(error))
        self._lost(consumer, partitions)

    def _lost(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        self._topic_ids.forget(_names(partitions))
        for partition in _names(partitions):
            self._owned.discard(partition)
            self._next.pop(partition, None)
            self._stored.pop(partition, None)
            self._done.pop(partition, None)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._client.exception as error:
            if error.args[0].fatal():
                # The consumer is unusable; the next one begins where the group left off.
                self.close()
            raise SourceUnavailable(f"kafka: {words(error)}") from error


def _names(partitions: Sequence[Any]) -> list[TopicPartition]:
    return [(each.topic, each.partition) for each in partitions]
