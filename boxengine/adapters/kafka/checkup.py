"""What may hurt in Kafka: topics that are not there, one partition, too few replicas that must have an item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from boxengine.domain.box import Box
from boxengine.errors import SourceUnavailable
from boxengine.ports.people.checkup import Remark

AREA = "kafka"
PATIENCE = 5.0


class KafkaCheckup:
    """``Checkup`` of the topics that boxes feed or are fed from, at one cluster."""

    def __init__(self, *, bootstrap_servers: str, config: Mapping[str, Any], topics: Mapping[str, str]) -> None:
        """Args:
        topics: each with the box that uses it.
        """
        self._servers = bootstrap_servers
        self._config = config
        self._topics = topics

    def remarks(self, boxes: Sequence[Box]) -> list[Remark]:  # noqa: ARG002 - the topics know theirs
        from confluent_kafka import KafkaException  # noqa: PLC0415 - only where there is Kafka
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        try:
            admin = AdminClient({**self._config, "bootstrap.servers": self._servers})
            known = admin.list_topics(timeout=PATIENCE).topics
            return [
                remark
                for topic, box in self._topics.items()
                for remark in self._of(admin, known.get(topic), topic, box)
            ]
        except KafkaException as error:
            raise SourceUnavailable(f"Kafka at {self._servers}: {error.args[0].str()}") from error

    def _of(self, admin: Any, found: Any, topic: str, box: str) -> Iterator[Remark]:
        if found is None or found.error is not None:
            yield Remark(
                area=AREA,
                box=box,
                text=f"Topic {topic} of {box} does not exist.",
                advice="Create it, or correct its name.",
            )
            return
        partitions, replicas = len(found.partitions), min(len(each.replicas) for each in found.partitions.values())
        in_sync = self._in_sync(admin, topic)
        text = f"Topic {topic} has {partitions} partition{'' if partitions == 1 else 's'}, {replicas} replicas each"
        text += (
            ""
            if in_sync is None
            else f", of which {in_sync} must store an item before it counts as sent (min.insync.replicas)"
        )
        yield Remark(area=AREA, box=box, text=f"{text}.")
        if replicas == 1:
            yield Remark(
                area=AREA,
                box=box,
                text=f"Topic {topic} has one replica: if its broker is lost, so are acknowledged messages.",
                advice="Give it three replicas, and min.insync.replicas=2.",
            )
        elif in_sync is not None and in_sync < 2:  # noqa: PLR2004 - one beside the leader
            yield Remark(
                area=AREA,
                box=box,
                text=f"min.insync.replicas of topic {topic} is {in_sync}: with acks=all, the leader alone acknowledges.",
                advice="Set min.insync.replicas=2.",
            )

    def _in_sync(self, admin: Any, topic: str) -> int | None:
        from confluent_kafka import KafkaException  # noqa: PLC0415
        from confluent_kafka.admin import (  # type: ignore[attr-defined] # noqa: PLC0415 - it exports them all the same
            ConfigResource,
            ResourceType,
        )

        try:
            (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
            return int(answer.result(timeout=PATIENCE)["min.insync.replicas"].value)
        except (KafkaException, KeyError, ValueError, TypeError):
            return None  # the account may not see it
