"""Whether a topic is still the one read so far: a topic that is deleted and recreated keeps only its name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from boxengine.adapters.kafka.config import without_consumer_settings
from boxengine.ports import TopicPartition

logger = logging.getLogger(__name__)

ASK_EVERY = 5.0
"""Seconds. Until a new topic is noticed, messages behind the old position are stored before those in front of it."""
ASK_AGAIN = 60.0
"""Seconds before the next question when an answer did not come: waiting for one holds up all partitions."""
ANSWER = 5.0
"""Seconds."""
UNKNOWN = "UNKNOWN_TOPIC_OR_PART"
FORBIDDEN = "TOPIC_AUTHORIZATION_FAILED"
NONE = "AAAAAAAAAAAAAAAAAAAAAA"
"""The answer of brokers that have no topic ids (before Kafka 2.8)."""
AskIds = Callable[[Collection[str]], Mapping[str, str]]
"""The ids of those of the topics that exist; empty where the broker has none. Raises librdkafka's exception."""
AskTroubles = Callable[[Collection[str]], Mapping[str, str | None]]
"""Why nothing can come from each of the topics; None: nothing is wrong with it. Raises librdkafka's exception."""
AskMetadata = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, str]]
"""What was committed with the partitions' offsets."""


class Change(NamedTuple):
    """A partition of a topic that was created again."""

    partition: TopicPartition
    before: str
    now: str


class TopicIds:
    """The ids of the topics whose partitions a consumer owns. They are kept with its committed offsets."""

    def __init__(self, ask: AskIds) -> None:
        self._ask = ask
        self._known: dict[TopicPartition, str] = {}
        self._cluster = ""
        self._due = 0.0

    def takes_turn(self, now: float) -> bool:
        """Whether it is time to ask again: True once in ``ASK_EVERY`` seconds."""
        if now < self._due:
            return False
        self._due = now + ASK_EVERY
        return True

    def give_up(self, now: float) -> None:
        """Asks later: there was no answer."""
        self._due = now + ASK_AGAIN

    def unsure(self, owned: Collection[TopicPartition]) -> bool:
        """Whether any of the partitions has not been compared with what was committed."""
        return len(self._known) < len(owned)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets the ids of partitions that this consumer no longer owns."""
        for partition in partitions:
            self._known.pop(partition, None)

    def metadata(self, partition: TopicPartition) -> str:
        """The metadata to commit with an offset of the partition."""
        topic_id = self._known.get(partition)
        return f"topic-id={topic_id} cluster={self._cluster}" if topic_id else ""

    def changes(self, owned: Collection[TopicPartition], *, committed: AskMetadata, cluster: str) -> list[Change]:
        """The partitions whose topic was recreated, each reported once."""
        ids = self._ask({topic for topic, _ in owned})
        before = dict(self._known)
        new = [partition for partition in owned if partition not in before and partition[0] in ids]
        if new:
            before |= {partition: _id_in(text, cluster) for partition, text in committed(new).items()}
        self._cluster = cluster
        found = []
        for partition in owned:
            known, own = before.get(partition), ids.get(partition[0])
            if own is not None:
                self._known[partition] = own
            if known and own and known != own:
                found.append(Change(partition, known, own))
        return found


class BrokersTopics:
    """Asks the brokers of a consumer about topics, with a client of its own that is made at the first question."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._client: Any = None

    def ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """See ``AskIds``."""
        found = {}
        for topic, answer in self._described(topics):
            try:
                found[topic] = _shown(str(answer.result().topic_id or NONE))
            except self._error() as error:
                if error.args[0].name() != UNKNOWN:
                    raise
        return found

    def troubles(self, topics: Collection[str]) -> Mapping[str, str | None]:
        """See ``AskTroubles``."""
        return {topic: self._trouble(topic, answer) for topic, answer in self._described(topics)}

    def _trouble(self, topic: str, answer: Any) -> str | None:
        forbidden = f"topic {topic} may not be read: see the principal's ACLs for this topic"
        try:
            allowed = answer.result().authorized_operations
        except self._error() as error:
            if error.args[0].name() not in {UNKNOWN, FORBIDDEN}:
                raise
            return forbidden if error.args[0].name() == FORBIDDEN else f"topic {topic} does not exist"
        # Old brokers do not tell what is allowed.
        return forbidden if allowed and all(each.name != "READ" for each in allowed) else None

    def _described(self, topics: Collection[str]) -> Iterable[tuple[str, Any]]:
        admin: Any = import_module("confluent_kafka.admin")
        kafka: Any = import_module("confluent_kafka")
        if self._client is None:
            # The consumer itself logs any trouble with the brokers.
            self._client = admin.AdminClient({**without_consumer_settings(self._config), "log_level": 0})
        asked = kafka.TopicCollection(list(topics))
        answers: Mapping[str, Any] = self._client.describe_topics(
            asked, request_timeout=ANSWER, include_authorized_operations=True
        )
        return answers.items()

    def _error(self) -> type[Exception]:
        return import_module("confluent_kafka").KafkaException  # type: ignore[no-any-return]


def _shown(topic_id: str) -> str:
    """The id as Kafka's own tools write it."""
    return "" if topic_id == NONE else topic_id.replace("+", "-").replace("/", "_")


def _id_in(text: str, cluster: str) -> str:
    """The committed id, if it is of this cluster: a tool that copies groups between clusters may copy the id too."""
    parts = dict(part.partition("=")[::2] for part in text.split())
    return parts.get("topic-id", "") if parts.get("cluster") == cluster else ""


def log_changes(changes: Iterable[Change]) -> None:
    """Logs one line per topic and change of id."""
    lines = sorted((change.partition[0], change.before, change.now, change.partition[1]) for change in changes)
    for (topic, before, now), group in groupby(lines, key=itemgetter(0, 1, 2)):
        numbers = ", ".join(str(number) for *_, number in group)
        logger.warning(
            "topic %s was deleted and created again (its id was %s and is %s): the committed offsets belong to the "
            "topic that is gone, so its partitions owned here (%s) are read from their beginning",
            topic,
            before,
            now,
            numbers,
        )
