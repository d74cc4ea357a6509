"""One librdkafka producer at work, with the thread that serves its reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from boxengine.adapters.kafka.client import Client
from boxengine.adapters.kafka.receipts import Receipts

logger = logging.getLogger(__name__)

POLL = 0.2
"""Seconds; bounds how long ``retire`` waits for the thread. Reports wake it at once."""
ALL_DOWN = "_ALL_BROKERS_DOWN"


class LiveProducer:
    """One producer, made once and replaced when it breaks."""

    def __init__(self, config: Mapping[str, Any], client: Client, *, missing: Callable[[str | None], None]) -> None:
        """Args:
        missing: called with the reason while somebody waits for unreachable brokers, and with None once they answer.
        """
        self.broken: str | None = None
        """Why it must be replaced."""
        self.last_error: Any = None
        """What its connections last complained about (``KafkaError``)."""
        self.waiting: set[Receipts] = set()
        self._client = client
        self._missing = missing
        self._answered = False
        self._all_down = False
        self.handle = client.make_producer({**config, "error_cb": self._complained})
        self._stop = Event()
        self._thread = Thread(target=self._serve, name="boxengine-kafka-reports", daemon=True)
        self._thread.start()

    def connect(self, topic: str, seconds: float) -> Any:
        """None once a broker has answered, else the ``KafkaError``. Asks only if that is not known already.

        Without a broker, librdkafka may keep a message for the whole delivery timeout before it gives up.
        """
        if self._answered:
            return None
        try:
            self.handle.list_topics(topic, timeout=seconds)
        except self._client.raises as raised:
            return self._client.error_of(raised)
        self.answered()
        return None

    def answered(self) -> None:
        """The brokers are there."""
        self._answered = True
        self.last_error = None
        if self._all_down:
            self._all_down = False
            self._missing(None)

    def retire(self) -> None:
        """Takes back unsent messages, so that none goes out after it was given up on, and stops the thread."""
        try:
            self.handle.purge()
        except self._client.raises:
            logger.warning("a Kafka producer could not be purged", exc_info=True)
        self._stop.set()
        self._thread.join(POLL * 10)

    def _serve(self) -> None:
        # Continues after the stop until the messages taken back have been reported to those that still wait.
        while not self._stop.is_set() or len(self.handle):
            with self.breaking():
                self.handle.poll(POLL)
            if self._all_down and self.waiting:
                self._missing("no broker can be reached")

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Errors raised inside are fatal: all who wait for reports get the error, and the producer counts as broken."""
        try:
            yield
        except Exception as raised:
            error = self._client.error_of(raised)
            logger.error("a Kafka producer broke: %s", error.str())  # noqa: TRY400 - the traceback shows only this loop
            self.broken = error.str()
            for receipts in tuple(self.waiting):
                receipts.give_up(error)

    def _complained(self, error: Any) -> None:
        if error.name() == ALL_DOWN:
            # The next batch asks first.
            self._all_down, self._answered = True, False
        else:
            self.last_error = error
