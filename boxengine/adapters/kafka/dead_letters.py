"""Dead letters in a topic: the message as it came, with the reason in its headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boxengine.adapters.kafka.messages import Message
from boxengine.adapters.kafka.pool import ProducerPool
from boxengine.domain.message import IDEMPOTENCY_KEY, ReceivedMessage
from boxengine.domain.outcome import Failure
from boxengine.engine.consuming.dead_letters import reason_headers
from boxengine.errors import GraveUnavailable
from boxengine.ports import InboxTransaction

REMEMBERED = 10_000
"""Dead letters; more than any batch holds."""


class DeadLetterTopic:
    """``DeadLetters`` in a topic. Used by one thread.

    The broker has the dead letter before the message's batch commits. Where the batch is then tried again, this object
    remembers what it sent; after a restart a dead letter may be sent once more, with the same ``Idempotency-Key``.
    """

    def __init__(self, topic: str, *, config: Mapping[str, Any], producers: ProducerPool) -> None:
        """Args:
        config: see ``producer_config``.
        """
        self._topic = topic
        self._config = config
        self._producers = producers
        self._sender = producers.lease(config)
        self._sent: dict[str, None] = {}
        """Identities, oldest first."""

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> bool:  # noqa: ARG002 - the port's shape
        if message.identity in self._sent:
            return True
        headers: list[tuple[str, Any]] = list(message.headers)
        if not any(name.lower() == IDEMPOTENCY_KEY for name, _ in headers):
            headers.append(("Idempotency-Key", message.identity))
        headers += reason_headers(message, reason)
        key: Any = message.key
        (problem,) = self._sender.send([Message(self._topic, message.value, key, headers)])
        if problem is not None:
            why = problem.reason if isinstance(problem, Failure) else str(problem)
            raise GraveUnavailable(f"the dead-letter topic {self._topic} does not take it: {why}")
        self._sent[message.identity] = None
        if len(self._sent) > REMEMBERED:
            del self._sent[next(iter(self._sent))]
        return True

    def close(self) -> None:
        """Lets go of the producer."""
        self._producers.release(self._config)
