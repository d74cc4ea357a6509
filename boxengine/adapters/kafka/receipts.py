"""The delivery reports of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Event
from typing import Any

from boxengine.adapters.kafka.client import Client
from boxengine.adapters.kafka.messages import Message


class Receipts:
    """Waits for one report per message and keeps those that are errors.

    Reports may come from several threads at once: every step is a single operation on a set or a dict.
    """

    def __init__(self, count: int) -> None:
        self._pending = set(range(count))
        self._complete = Event()
        self.errors: dict[int, Any] = {}
        """``KafkaError`` by the message's place in the batch."""
        self.unsent: set[int] = set()
        """Places of the messages among them that librdkafka did not accept."""
        if not count:
            self._complete.set()

    def report(self, index: int, error: Any, _message: Any = None) -> None:
        """librdkafka's delivery callback, with the message's place put before its arguments."""
        if error is not None and index in self._pending:
            self.errors[index] = error
        self._pending.discard(index)
        if not self._pending:
            self._complete.set()

    def wait(self, seconds: float) -> bool:
        """Whether all reports came in that time."""
        return self._complete.wait(seconds)

    def give_up(self, error: Any) -> None:
        """Records this error for every message without a report and ends the wait; later reports are ignored."""
        for index in tuple(self._pending):
            self.errors.setdefault(index, error)
        self._pending.clear()
        self._complete.set()

    def produce(self, producer: Any, client: Client, messages: Sequence[Message], first: int = 0) -> int | None:
        """Hands over the messages from ``first`` on; records an error for each one refused outright.

        Returns the place at which the producer's local queue was full, None where all were handed over.
        """
        produce, report = producer.produce, self.report
        for index in range(first, len(messages)):
            topic, value, key, headers, partition, timestamp, _ = messages[index]
            try:
                produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=partial(report, index),
                    timestamp=timestamp,
                    headers=headers,
                )
            except BufferError:
                return index
            except client.exception as error:
                self.unsent.add(index)
                report(index, error.args[0])
            except (TypeError, ValueError, OverflowError) as error:
                # A value or header that librdkafka's binding cannot take, such as a header's name that is no text.
                report(index, client.make_error("_INVALID_ARG", str(error)))
        return None
