"""One librdkafka producer at work, with the thread that serves its reports."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread, get_ident
from typing import Any

from boxengine.adapters.kafka.client import Client
from boxengine.adapters.kafka.receipts import Receipts

logger = logging.getLogger(__name__)

POLL = 0.2
"""Seconds after which the thread looks whether it should stop. Reports wake it at once."""
TAKING_BACK = 5.0
"""Seconds for librdkafka's threads to take back what is not sent."""
LAST_REPORTS = 5.0
"""Seconds for the reports of what was taken back. They are there at once, or never come."""
ALL_DOWN = "_ALL_BROKERS_DOWN"


class LiveProducer:
    """One producer, made once and replaced when it breaks.

    librdkafka destroys a producer when the last reference to ``handle`` goes, and waits for its own threads then, for
    ever if one of them hangs, for example while it resolves a broker's name. The reports thread is the one to wait.
    """

    def __init__(self, config: Mapping[str, Any], client: Client, *, missing: Callable[[str | None], None]) -> None:
        """Args:
        missing: called with the reason while somebody waits for unreachable brokers, and with None once they answer.
        """
        self.broken: str | None = None
        """Why it must be replaced."""
        self.last_error: Any = None
        """What its connections last complained about (``KafkaError``)."""
        self.waiting: set[Receipts] = set()
        self.users: set[int] = set()
        """The threads that may use ``handle``; it is gone once the producer is retired and they have left."""
        self._client = client
        self._missing = missing
        self._answered = False
        self._all_down = False
        self.handle = client.make_producer({**config, "error_cb": self._complained})
        self._stop = Event()
        self._giving_up: deque[Event] = deque()
        """One for each thread that waits until what it handed over is taken back."""
        self._ended = False
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

    @contextmanager
    def used(self) -> Iterator[None]:
        """While the calling thread uses ``handle``. It begins where nobody else can retire the producer."""
        self.users.add(get_ident())
        try:
            yield
        finally:
            self.users.discard(get_ident())

    def retire(self) -> None:
        """Has unsent messages taken back, so that none goes out after it was given up on, and then the producer destroyed.

        Each thread that gives a batch up calls it, since it may have handed messages over after others were taken back.
        Does not wait for a thread of librdkafka's that hangs: that one sends nothing, and when it goes on, it first takes
        back what it holds.
        """
        taken_back = Event()
        self._giving_up.append(taken_back)
        self._stop.set()
        if not self._ended:
            taken_back.wait(TAKING_BACK)

    def close(self) -> None:
        """Retires it, and gives it a moment to end."""
        self.retire()
        self._thread.join(POLL * 10)

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._report()
        until = time.monotonic() + LAST_REPORTS
        # What is taken back is reported to those that still wait for it.
        while self._giving_up or self.users or (len(self.handle) and time.monotonic() < until):
            self._take_back()
            self._report()
        del self.handle
        self._ended = True
        for late in tuple(self._giving_up):
            late.set()

    def _take_back(self) -> None:
        taken_back = [self._giving_up.popleft() for _ in range(len(self._giving_up))]
        if not taken_back:
            return
        try:
            # The first call does not wait, so a thread that hangs keeps no messages that are of no broker yet.
            self.handle.purge(blocking=False)
            self.handle.purge()
        except self._client.raises:
            logger.warning("a Kafka producer could not be purged", exc_info=True)
        for each in taken_back:
            each.set()

    def _report(self) -> None:
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
