"""One Kafka transaction per batch: consumers with ``isolation.level=read_committed`` see it whole or not at all.

A transaction needs a producer for itself, so each thread that is sending takes one of the slots; a slot's
``transactional.id`` is ``PREFIX-WORKER-SLOT``. A worker that restarts under the same name fences its predecessor off and
ends the transactions that it left open, even in slots that it does not need itself: until they end, consumers wait.
The name must therefore be the worker's own: two workers that share a name fence each other in turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any

from boxengine.adapters.kafka.client import LOST, Client
from boxengine.adapters.kafka.config import delivery_timeout_of
from boxengine.adapters.kafka.farewell import part_with
from boxengine.adapters.kafka.live import ALL_DOWN
from boxengine.adapters.kafka.messages import Message
from boxengine.adapters.kafka.reasons import (
    CONSEQUENCES,
    REFUSED_TOGETHER,
    TOPIC_FAULTS,
    UNANSWERED,
    Answer,
    answer,
    explain,
    first_outage,
    is_items_fault,
    no_broker,
)
from boxengine.adapters.kafka.receipts import Receipts
from boxengine.adapters.kafka.sizes import TopicLimits
from boxengine.domain.outcome import Failure
from boxengine.errors import BoxError, Unavailable

logger = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds beyond the delivery timeout that a transaction may take to end."""
INIT = 20.0
"""Seconds for a producer's first answer, which may have to wait until its predecessor's open transaction ends."""
QUEUE_FULL_POLL = 0.05


@dataclass(frozen=True, slots=True)
class Ending:
    """How a transaction ended. Errors are ``KafkaError``."""

    errors: Mapping[int, Any]
    """By place in the batch: messages that were refused, before or after they were sent."""
    aborted: Any = None
    """Why nothing was committed; None: all messages without an error of their own were."""
    begun: bool = True
    """False where no broker answered in the first place."""


class Slot:
    """One transactional producer, used by one thread at a time, made at first use and after each loss."""

    def __init__(
        self,
        config: Mapping[str, Any],
        client: Client,
        transactional_id: str,
        *,
        missing: Callable[[str | None], None],
    ) -> None:
        self._config = {**config, "transactional.id": transactional_id}
        self._client = client
        self._missing = missing
        self._timeout = delivery_timeout_of(config).total_seconds()
        self._producer: Any = None
        self._dropped: list[Any] = []
        """Producers that are to be destroyed, once nothing here refers to them."""
        self._all_down = False
        self.last_error: Any = None
        """What its connections last complained about (``KafkaError``)."""

    def commit(self, messages: Sequence[Message]) -> Ending:
        """Sends these messages in one transaction, except those that librdkafka does not accept."""
        try:
            return self._committed(messages)
        finally:
            self._part_with_the_dropped()

    def fence(self) -> None:
        """Ends the transaction that a predecessor left open; if that fails now, the first transaction tries again."""
        with suppress(*self._client.raises, BoxError):
            self._ready()
        self._part_with_the_dropped()

    def close(self) -> None:
        """Drops the producer; the next one under the same id ends the transaction that it left open."""
        self._drop()
        self._part_with_the_dropped()

    def _committed(self, messages: Sequence[Message]) -> Ending:
        deadline = time.monotonic() + self._timeout + GRACE
        receipts = Receipts(len(messages))
        try:
            producer = self._ready()
        except self._client.raises as raised:
            return Ending({}, self._client.error_of(raised), begun=False)
        except BoxError as error:
            # librdkafka has taken the configuration before: the system has no more threads, or a file with certificates is gone.
            return Ending({}, self._client.make_error("_FAIL", str(error)), begun=False)
        try:
            producer.begin_transaction()
            self._hand_over(producer, messages, receipts, deadline)
            self._until(deadline, producer.commit_transaction)
        except self._client.raises as raised:
            return Ending(receipts.errors, self._roll_back(raised))
        self.last_error = None
        if self._all_down:
            self._all_down = False
            self._missing(None)
        return Ending(receipts.errors)

    def _ready(self) -> Any:
        if self._producer is None:
            self._producer = self._client.make_producer({**self._config, "error_cb": self._complained})
            try:
                self._initialise()
            except BaseException:
                self._drop()
                raise
        return self._producer

    def _initialise(self) -> None:
        try:
            self._until(time.monotonic() + min(INIT, self._timeout), self._producer.init_transactions)
        finally:
            self._producer.poll(0)  # only here do the connections get to say what is wrong

    def _drop(self) -> None:
        if self._producer is not None:
            self._dropped.append(self._producer)
            self._producer = None

    def _part_with_the_dropped(self) -> None:
        """Called when no exception is being handled any more: its traceback would refer to a producer."""
        if self._dropped:
            dropped, self._dropped = self._dropped, []
            part_with(dropped, last=self._take_back)

    def _take_back(self, producer: Any) -> None:
        with suppress(*self._client.raises):
            producer.purge()
            producer.poll(0)

    def _hand_over(self, producer: Any, messages: Sequence[Message], receipts: Receipts, deadline: float) -> None:
        full_at = receipts.produce(producer, self._client, messages)
        while full_at is not None and time.monotonic() < deadline - GRACE:
            producer.poll(QUEUE_FULL_POLL)
            full_at = receipts.produce(producer, self._client, messages, full_at)
        if full_at is not None:
            raise self._client.exception(self._client.make_error("_QUEUE_FULL", "Local: Queue full"))
        accepted = frozenset(range(len(messages))) - receipts.errors.keys()
        # librdkafka requires that all reports are served before it commits; on an unshared producer, a flush does that.
        producer.flush(max(0.0, deadline - time.monotonic()))
        receipts.give_up(self._client.make_error("_MSG_TIMED_OUT", "no delivery report"))
        lost = (receipts.errors[index] for index in sorted(accepted & receipts.errors.keys()))
        cause = next((error for error in lost if error.name() not in CONSEQUENCES), None)
        # If the messages were only taken back, the commit is refused with the cause.
        if cause is not None:
            raise self._client.exception(cause)

    def _roll_back(self, raised: BaseException) -> Any:
        """Ends the transaction without a commit; returns the ``KafkaError`` that says why."""
        error = self._client.error_of(raised)
        # An unanswered commit cannot be aborted: the next producer finds out whether it happened.
        if self._producer is not None and not error.fatal() and error.name() not in UNANSWERED:
            try:
                self._until(time.monotonic() + GRACE, self._producer.abort_transaction)
            except self._client.raises as refused:
                logger.warning("a Kafka transaction could not be aborted; the next producer does it", exc_info=True)
                if error.name() == LOST:
                    error = self._client.error_of(refused)
        # Errors of an aborted transaction have been seen to spoil the next one of the same producer (librdkafka 2.16:
        # "skipped sequence numbers" after a message too large), so the next one gets a producer of its own.
        self._drop()
        return error

    def _until(self, deadline: float, step: Callable[[float], None]) -> None:
        """Repeats a step of a transaction while librdkafka reports a retriable error."""
        while True:
            try:
                return step(max(0.0, deadline - time.monotonic()))
            except self._client.exception as error:
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    raise

    def _complained(self, error: Any) -> None:
        if error.name() == ALL_DOWN:
            self._all_down = True
            self._missing("no broker can be reached")
        else:
            self.last_error = error


class TransactionalProducers:
    """As many slots as threads send at once; a free slot goes to the next thread that sends."""

    def __init__(
        self,
        config: Mapping[str, Any],
        client: Client,
        *,
        prefix: str,
        slots: int = 1,
        missing: Callable[[str | None], None] = lambda _reason: None,
    ) -> None:
        """Args:
        prefix: of the ``transactional.id`` of each slot.
        slots: how many there are from the start; more are made where more threads send at once.
        missing: see ``LiveProducer``.
        """
        self._missing = missing
        self._config = config
        self._client = client
        self._limits = TopicLimits(config, client)
        self._prefix = prefix
        self._timeout = delivery_timeout_of(config)
        self._lock = Lock()
        self._slots = [self._make(number) for number in range(slots)]
        self._free = self._slots[::-1]
        self._fenced = slots == 1

    def send(self, messages: Sequence[Message]) -> list[Answer]:
        """One transaction; where single messages spoil it, a second one without them, so that no item stops the others.

        A broker refuses a record batch whole, so messages under suspicion go into transactions of their own.
        """
        with self._slot() as slot:
            results: list[Answer] = []
            for run in self._limits.runs(messages):
                sent = self._send(slot, run.messages)
                results += sent
                outage = first_outage(sent)
                if outage is not None:
                    # Later messages could overtake this one.
                    return results + [outage] * (len(messages) - len(results))
            return results

    def _send(self, slot: Slot, messages: Sequence[Message]) -> list[Answer]:
        ending = slot.commit(messages)
        if ending.begun and not self._fenced:
            self._fence_the_others()
        results = self._results(ending, slot, messages)
        spoilers = {
            index: error.name() for index, error in ending.errors.items() if is_items_fault(error, messages[index])
        }
        if ending.aborted is not None and ending.aborted.name() in TOPIC_FAULTS and not spoilers:
            return self._by_topic(ending, slot, messages)
        if ending.aborted is None or not spoilers or len(messages) == 1:
            return results
        suspects = {index for index, name in spoilers.items() if name in REFUSED_TOGETHER}
        refused = {index for index in ending.errors if isinstance(results[index], Failure)}
        for index in suspects:
            results[index] = self._put_off(ending, slot)
        if any(index not in refused and error.name() not in CONSEQUENCES for index, error in ending.errors.items()):
            # A broker did not answer. Without its message, later ones would overtake that.
            return results
        for group in _in_order(messages, suspects, without=refused - suspects):
            rest = [messages[index] for index in group]
            again = slot.commit(rest)
            sent = self._results(again, slot, rest)
            for index, result in zip(group, sent, strict=True):
                results[index] = result
            if first_outage(sent) is not None:
                break
        return results

    def _by_topic(self, ending: Ending, slot: Slot, messages: Sequence[Message]) -> list[Answer]:
        """Each topic's messages in a transaction of their own, after the broker has refused a topic and not said which."""
        places: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            places.setdefault(message.topic, []).append(index)
        if len(places) == 1:
            return [
                answer(ending.aborted, each, timeout=self._timeout, last_error=slot.last_error) for each in messages
            ]
        results: list[Answer] = [self._put_off(ending, slot)] * len(messages)
        for group in places.values():
            sent = self._send(slot, [messages[index] for index in group])
            for index, result in zip(group, sent, strict=True):
                results[index] = result
            if first_outage(sent) is not None:
                break
        return results

    def close(self) -> None:
        """Drops all producers; a later ``send`` makes new ones."""
        with self._lock:
            for slot in self._free:
                slot.close()

    def _results(self, ending: Ending, slot: Slot, messages: Sequence[Message]) -> list[Answer]:
        if ending.aborted is None and not ending.errors:
            return [None] * len(messages)
        everyone = None
        if ending.aborted is not None:
            everyone = self._put_off(ending, slot)
        results: list[Answer] = [everyone] * len(messages)
        for index, error in ending.errors.items():
            if error.name() in CONSEQUENCES and everyone is not None:
                continue
            results[index] = answer(error, messages[index], timeout=self._timeout, last_error=slot.last_error)
        return results

    def _make(self, number: int) -> Slot:
        return Slot(self._config, self._client, f"{self._prefix}-{number}", missing=self._missing)

    def _fence_the_others(self) -> None:
        """Fences the other slots once, in a thread of its own: no sender has to wait for it."""
        with self._lock:
            if self._fenced:
                return
            self._fenced = True
        try:
            Thread(target=self._fence, name="boxengine-kafka-fence", daemon=True).start()
        except RuntimeError:  # the system has no thread: the next transaction tries again
            self._fenced = False

    def _fence(self) -> None:
        for slot in tuple(self._slots):
            with self._lock:
                if slot not in self._free:
                    continue  # whoever uses it has fenced it
                self._free.remove(slot)
            slot.fence()
            with self._lock:
                self._free.append(slot)

    def _put_off(self, ending: Ending, slot: Slot) -> Unavailable:
        """The answer for messages that did not themselves spoil their transaction."""
        if not ending.begun and ending.aborted.name() in UNANSWERED:
            seconds = min(INIT, self._timeout.total_seconds())
            return no_broker(ending.aborted, seconds=seconds, last_error=slot.last_error)
        why = explain(ending.aborted, timeout=self._timeout, last_error=slot.last_error)
        return Unavailable(f"not committed with its transaction: {why}")

    @contextmanager
    def _slot(self) -> Iterator[Slot]:
        with self._lock:
            if not self._free:
                self._slots.append(self._make(len(self._slots)))
                self._free.append(self._slots[-1])
            slot = self._free.pop()
        try:
            yield slot
        finally:
            with self._lock:
                self._free.append(slot)


def _in_order(messages: Sequence[Message], alone: Container[int], *, without: Container[int]) -> Iterator[list[int]]:
    """The places of the messages in groups: suspect messages alone, the others with their neighbours."""
    group: list[int] = []
    for index in range(len(messages)):
        if index in alone:
            if group:
                yield group
            yield [index]
            group = []
        elif index not in without:
            group.append(index)
    if group:
        yield group
