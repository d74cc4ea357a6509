"""Several observers, or tracers, told as one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from types import TracebackType
from typing import Any

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.outcome import Settlement
from boxengine.ports import Consumed, Observer, OpenCircuit, TopicPartition, Tracer

logger = logging.getLogger(__name__)
_NOTHING: AbstractContextManager[object] = nullcontext()


class CombinedObserver:
    """Tells each observer in turn. One that raises is logged once per kind of event; the others are told all the same."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)
        self._complained: set[tuple[int, str]] = set()

    def created(self, box: Box, *, ids: Sequence[int], buckets: Sequence[int], seconds: float) -> None:
        self._tell("created", box, ids=ids, buckets=buckets, seconds=seconds)

    def polled(self, box: Box, partition: int, *, found: int, pushed: int, seconds: float) -> None:
        self._tell("polled", box, partition, found=found, pushed=pushed, seconds=seconds)

    def throttled(self, box: Box, partition: int, *, throttler: str, status: str, seconds: float) -> None:
        self._tell("throttled", box, partition, throttler=throttler, status=status, seconds=seconds)

    def queue_measured(self, box: Box, *, length: int, lag: float) -> None:
        self._tell("queue_measured", box, length=length, lag=lag)

    def foreign(self, box: Box, elements: Sequence[bytes]) -> None:
        self._tell("foreign", box, elements)

    def taken(self, box: Box, *, jobs: int, seconds: float) -> None:
        self._tell("taken", box, jobs=jobs, seconds=seconds)

    def transported(self, box: Box, transport: str, *, items: int, failed: int, seconds: float, calls: int = 1) -> None:
        self._tell("transported", box, transport, items=items, failed=failed, seconds=seconds, calls=calls)

    def kept_back(self, box: Box, *, items: Sequence[Item]) -> None:
        self._tell("kept_back", box, items=items)

    def circuit_changed(self, box: Box, transport: str, circuit: OpenCircuit | None) -> None:
        self._tell("circuit_changed", box, transport, circuit)

    def circuit_open(self, box: Box, circuit: OpenCircuit) -> None:
        self._tell("circuit_open", box, circuit)

    def settled(self, box: Box, items: Sequence[Item], settlement: Settlement, *, seconds: float) -> None:
        self._tell("settled", box, items, settlement, seconds=seconds)

    def discarded_by_hand(self, box: Box, ids: Collection[int]) -> None:
        self._tell("discarded_by_hand", box, ids)

    def order_violated(self, box: Box, *, items: Sequence[Item]) -> None:
        self._tell("order_violated", box, items=items)

    def job_done(self, box: Box, buckets: Iterable[int], *, state: str, seconds: float) -> None:
        # Each observer reads it, so it must not be an iterator.
        self._tell("job_done", box, tuple(buckets), state=state, seconds=seconds)

    def fetch_failed(self, box: Box, reason: str) -> None:
        self._tell("fetch_failed", box, reason)

    def deleted(self, box: Box, *, rows: int, seconds: float) -> None:
        self._tell("deleted", box, rows=rows, seconds=seconds)

    def oldest_pending(self, box: Box, *, seconds: float) -> None:
        self._tell("oldest_pending", box, seconds=seconds)

    def stranded(self, box: Box, *, items: int) -> None:
        self._tell("stranded", box, items=items)

    def consumed(self, box: Box, counts: Mapping[TopicPartition, Consumed], *, seconds: float) -> None:
        self._tell("consumed", box, counts, seconds=seconds)

    def lagging(self, box: Box, lags: Mapping[TopicPartition, int]) -> None:
        self._tell("lagging", box, lags)

    def outage(self, what: str, reason: str) -> None:
        self._tell("outage", what, reason)

    def recovered(self, what: str, *, seconds: float) -> None:
        self._tell("recovered", what, seconds=seconds)

    def coordinator_slow(self, *, seconds: float, lease: timedelta) -> None:
        self._tell("coordinator_slow", seconds=seconds, lease=lease)

    def coordinator_quick(self, *, seconds: float, lease: timedelta) -> None:
        self._tell("coordinator_quick", seconds=seconds, lease=lease)

    def _tell(self, event: str, *args: Any, **kwargs: Any) -> None:
        for number, observer in enumerate(self._observers):
            try:
                getattr(observer, event)(*args, **kwargs)
            except Exception:
                if (number, event) not in self._complained:
                    self._complained.add((number, event))
                    name = type(observer).__name__
                    logger.exception("%s raised in %s(); it will go on being told, but this is said once", name, event)


class CombinedTracer:
    """Opens the context of each tracer, the first outermost. One that raises is logged once per kind and left out."""

    def __init__(self, tracers: Iterable[Tracer]) -> None:
        self._tracers = tuple(tracers)
        self._complained: set[tuple[int, str]] = set()

    def inject(self, headers: dict[str, str]) -> dict[str, str]:
        for number, tracer in enumerate(self._tracers):
            try:
                headers = tracer.inject(headers)
            except Exception:
                self._complain(number, "inject")
        return headers

    def creating(self, box: Box, count: int) -> AbstractContextManager[object]:
        return self._all("creating", box, count)

    def polling(self, box: Box, partition: int) -> AbstractContextManager[object]:
        return self._all("polling", box, partition)

    def processing(self, box: Box, items: Sequence[Item]) -> AbstractContextManager[object]:
        return self._all("processing", box, items)

    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> AbstractContextManager[object]:
        return self._all("sending", box, transport, items)

    def _all(self, kind: str, *args: Any) -> AbstractContextManager[object]:
        opened: list[tuple[int, AbstractContextManager[object]]] = []
        for number, tracer in enumerate(self._tracers):
            try:
                context = getattr(tracer, kind)(*args)
            except Exception:
                self._complain(number, kind)
            else:
                # What does nothing is left out: one of these is made for each item that is sent by itself.
                if context.__class__ is not nullcontext:
                    opened.append((number, context))
        match opened:
            case []:
                return _NOTHING
            case [(_, context)]:
                return context
            case _:
                return _Nested(opened, lambda number: self._complain(number, kind))

    def _complain(self, number: int, kind: str) -> None:
        if (number, kind) not in self._complained:
            self._complained.add((number, kind))
            name = type(self._tracers[number]).__name__
            logger.exception("%s raised in %s(); this is said once", name, kind)


class _Nested(AbstractContextManager[None]):
    """Several contexts as one; one that raises by itself is complained of and left out."""

    __slots__ = ("_complain", "_contexts", "_entered")

    def __init__(
        self, contexts: Sequence[tuple[int, AbstractContextManager[object]]], complain: Callable[[int], None]
    ) -> None:
        self._contexts = contexts
        self._complain = complain
        self._entered: list[tuple[int, AbstractContextManager[object]]] = []

    def __enter__(self) -> None:
        for number, context in self._contexts:
            try:
                context.__enter__()
            except Exception:
                self._complain(number)
            else:
                self._entered.append((number, context))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trail: TracebackType | None
    ) -> None:
        for number, context in reversed(self._entered):
            try:
                context.__exit__(kind, error, trail)
            except Exception as raised:
                if raised is not error:
                    self._complain(number)
