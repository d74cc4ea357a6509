"""Dead letters in a topic: the message as it came, with the reason in its headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boxengine.adapters.kafka.messages import Message
from boxengine.adapters.kafka.pool import ProducerPool
from boxengine.domain.message import IDEMPOTENCY_KEY, ReceivedMessage
from boxengine.domain.outcome import Failure
from boxengine.engine.consuming import reason_headers
from boxengine.errors import SourceUnavailable
from boxengine.ports import InboxTransaction


class DeadLetterTopic:
    """``DeadLetters`` in a topic.

    The broker has the dead letter before the message's batch commits; where that then fails, it is sent once more, with
    the same ``Idempotency-Key``.
    """

    def __init__(self, topic: str, *, config: Mapping[str, Any], producers: ProducerPool) -> None:
        """Args:
        config: see ``producer_config``.
        """
        self._topic = topic
        self._config = config
        self._producers = producers
        self._sender = producers.lease(config)

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> None:  # noqa: ARG002 - the port's shape
        headers: list[tuple[str, Any]] = list(message.headers)
        if not any(name.lower() == IDEMPOTENCY_KEY for name, _ in headers):
            headers.append(("Idempotency-Key", message.place))
        headers += reason_headers(message, reason)
        key: Any = message.key
        (problem,) = self._sender.send([Message(self._topic, message.value, key, headers)])
        if problem is not None:
            reason = problem.reason if isinstance(problem, Failure) else str(problem)
            raise SourceUnavailable(f"dead letter topic {self._topic}: {reason}")

    def close(self) -> None:
        """Lets go of the producer."""
        self._producers.release(self._config)
