"""The idempotent producer that all threads share.

During the producer's life, librdkafka's idempotence ensures that its own retries neither duplicate nor reorder messages.
It covers neither a restart of the process nor a second attempt by the engine: for those there are the
``Idempotency-Key`` and ``Sequence-ID`` headers, and ``transactional: true``.

A batch that has waited long enough is given up as a whole, and its producer with it. Were it left to librdkafka, which
gives up message by message, a broker that comes back in between would get the later messages of a key and not the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any

from boxengine.adapters.kafka.client import Client
from boxengine.adapters.kafka.config import delivery_timeout_of
from boxengine.adapters.kafka.live import LiveProducer
from boxengine.adapters.kafka.messages import Message
from boxengine.adapters.kafka.reasons import BREAKING, REFUSED_TOGETHER, Answer, answer, first_outage, no_broker
from boxengine.adapters.kafka.receipts import Receipts
from boxengine.adapters.kafka.sizes import TopicLimits
from boxengine.errors import BoxError, Unavailable

CONNECT = 10.0
"""Seconds for the first answer of a broker, before anything is handed over."""
QUEUE_FULL_POLL = 0.05
SEND_NOW = 0.001
"""Seconds for which a batch is flushed once it is handed over: enough for librdkafka to stop lingering and send what
it has, in a request per broker. Waiting in ``flush`` itself would be waiting for the other threads' messages too."""


class SharedProducer:
    """Sends batches for any number of threads through one producer, made at first use and replaced when it breaks."""

    def __init__(
        self, config: Mapping[str, Any], client: Client, *, missing: Callable[[str | None], None] = lambda _reason: None
    ) -> None:
        """Args:
        missing: see ``LiveProducer``.
        """
        self._config = config
        self._client = client
        self._missing = missing
        self._timeout = delivery_timeout_of(config)
        self._connect = min(CONNECT, self._timeout.total_seconds())
        self._limits = TopicLimits(config, client)
        self._lock = Lock()
        self._live: LiveProducer | None = None
        self._alone = Lock()
        """Held while a message is sent through the producer that carries one message at a time."""
        self._lonely: LiveProducer | None = None

    def send(self, messages: Sequence[Message]) -> list[Answer]:
        """Hands over all messages, waits for all their reports, returns what became of each."""
        results: list[Answer] = []
        for run in self._limits.runs(messages):
            sent = [self._send_alone(run.messages[0])] if run.suspect else self._send(run.messages)
            results += sent
            outage = first_outage(sent)
            if outage is not None:
                # Later messages could overtake this one.
                return results + [outage] * (len(messages) - len(results))
        return results

    def _send(self, messages: Sequence[Message]) -> list[Answer]:
        try:
            with self._usable() as live:
                return self._send_through(live, messages)
        except Unavailable as outage:
            return [outage] * len(messages)

    def _send_through(self, live: LiveProducer, messages: Sequence[Message]) -> list[Answer]:
        error = live.connect(messages[0].topic, self._connect)
        if error is not None:
            return [no_broker(error, seconds=self._connect, last_error=live.last_error)] * len(messages)
        deadline = time.monotonic() + self._timeout.total_seconds()
        receipts = self._attempt(live, messages, deadline)
        if live.broken is not None:
            self._retire(live)
        results: list[Answer] = [None] * len(messages)
        if not receipts.errors:
            live.answered()
            return results
        for index, error in receipts.errors.items():
            results[index] = answer(error, messages[index], timeout=self._timeout, last_error=live.last_error)
        self._single_out(messages, receipts, results)
        return results

    def close(self) -> None:
        """Stops the producer; a later ``send`` makes a new one."""
        with self._lock:
            live, self._live = self._live, None
        with self._alone:
            lonely, self._lonely = self._lonely, None
        for each in (live, lonely):
            if each is not None:
                each.close()

    @contextmanager
    def _usable(self) -> Iterator[LiveProducer]:
        broken: LiveProducer | None = None
        with ExitStack() as stack:
            try:
                with self._lock:
                    if self._live is not None and self._live.broken is not None:
                        broken, self._live = self._live, None
                    live = self._live = self._live or self._make()
                    stack.enter_context(live.used())
            finally:
                if broken is not None:
                    broken.retire()
            yield live

    def _make(self) -> LiveProducer:
        """Raises:
        Unavailable: librdkafka makes none. It has taken the configuration before, so no item is to blame.
        """
        try:
            return LiveProducer(self._config, self._client, missing=self._missing)
        except (BoxError, RuntimeError) as error:
            # Such as where the system has no more threads, or a file with certificates is gone.
            reason = str(error).removeprefix("kafka: ")
            raise Unavailable(f"kafka: no producer can be made: {reason}") from error

    def _retire(self, live: LiveProducer) -> None:
        with self._lock:
            if self._live is live:
                self._live = None
        live.retire()

    def _attempt(self, live: LiveProducer, messages: Sequence[Message], deadline: float) -> Receipts:
        receipts = Receipts(len(messages))
        live.waiting.add(receipts)
        self._produce(live, messages, receipts, deadline)
        with live.breaking():
            live.handle.flush(SEND_NOW)
        if not receipts.wait(max(0.0, deadline - time.monotonic())):
            # What librdkafka still holds is taken back with the producer.
            live.broken = "no delivery report in time"
            receipts.give_up(self._client.make_error("_TIMED_OUT", "no delivery report"))
        live.waiting.discard(receipts)
        if any(error.fatal() or error.name() in BREAKING for error in receipts.errors.values()):
            live.broken = live.broken or "fatal error"
        return receipts

    def _produce(self, live: LiveProducer, messages: Sequence[Message], receipts: Receipts, deadline: float) -> None:
        full_at = receipts.produce(live.handle, self._client, messages)
        # Leaves time for what was handed over to be delivered or given up by librdkafka before we stop waiting for it.
        patience = time.monotonic() + self._timeout.total_seconds() / 2
        while full_at is not None:
            with live.breaking():
                live.handle.poll(QUEUE_FULL_POLL)
            stuck_at, full_at = full_at, receipts.produce(live.handle, self._client, messages, full_at)
            if full_at == stuck_at and time.monotonic() > min(patience, deadline):
                for index in range(full_at, len(messages)):
                    receipts.report(index, self._client.make_error("_QUEUE_FULL", "Local: Queue full"))
                return

    def _single_out(self, messages: Sequence[Message], receipts: Receipts, results: list[Answer]) -> None:
        """Sends messages that a broker refused together one by one: a single bad message makes it refuse the record batch.

        The bad message need not be among these: librdkafka puts messages of all threads into one record batch.
        """
        together = sorted(
            index
            for index, error in receipts.errors.items()
            if error.name() in REFUSED_TOGETHER and index not in receipts.unsent
        )
        overtaken, put_off = _overtaken(messages, receipts), _put_off(messages, results)
        for place, index in enumerate(together):
            if index in overtaken:
                # Sent now, it would silently arrive after its followers; a failed attempt makes that visible.
                continue
            if index in put_off:
                results[index] = put_off[index]
                continue
            results[index] = self._send_alone(messages[index])
            if isinstance(results[index], Unavailable):
                for later in together[place:]:
                    results[later] = results[index]
                return

    def _send_alone(self, message: Message) -> Answer:
        """Sends through a producer that carries nothing else: a refusal is then this message's own fault."""
        with self._alone:
            try:
                live = self._lonely = self._lonely or self._make()
            except Unavailable as outage:
                return outage
            with live.used():
                error = live.connect(message.topic, self._connect)
                if error is not None:
                    return no_broker(error, seconds=self._connect, last_error=live.last_error)
                receipts = self._attempt(live, (message,), time.monotonic() + self._timeout.total_seconds())
                if live.broken is not None:
                    self._lonely = None
                    live.retire()
        if not receipts.errors:
            live.answered()
            return None
        return answer(receipts.errors[0], message, timeout=self._timeout, last_error=live.last_error)


def _put_off(messages: Sequence[Message], results: Sequence[Answer]) -> Mapping[int, Unavailable]:
    """Places of messages that must wait, because an earlier one of their topic and key does; with its answer."""
    outages: dict[tuple[str, str], Unavailable] = {}
    places: dict[int, Unavailable] = {}
    for index, (message, result) in enumerate(zip(messages, results, strict=True)):
        key = (message.topic, message.key)
        if key in outages:
            places[index] = outages[key]
        elif isinstance(result, Unavailable):
            outages[key] = result
    return places


def _overtaken(messages: Sequence[Message], receipts: Receipts) -> set[int]:
    """Places of messages that were refused although a later one of their topic and key went through."""
    through: set[tuple[str, str]] = set()
    overtaken: set[int] = set()
    for index in range(len(messages) - 1, -1, -1):
        key = (messages[index].topic, messages[index].key)
        if index not in receipts.errors:
            through.add(key)
        elif key in through:
            overtaken.add(index)
    return overtaken
