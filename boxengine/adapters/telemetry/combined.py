"""Several observers, or tracers, told as one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.outcome import Settlement
from boxengine.ports import Observer, Tracer

logger = logging.getLogger(__name__)


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

    def taken(self, box: Box, *, jobs: int, seconds: float) -> None:
        self._tell("taken", box, jobs=jobs, seconds=seconds)

    def transported(self, box: Box, transport: str, *, items: int, failed: int, seconds: float) -> None:
        self._tell("transported", box, transport, items=items, failed=failed, seconds=seconds)

    def settled(self, box: Box, items: Sequence[Item], settlement: Settlement, *, seconds: float) -> None:
        self._tell("settled", box, items, settlement, seconds=seconds)

    def job_done(self, box: Box, buckets: Iterable[int], *, state: str, seconds: float) -> None:
        # Each observer reads it, so it must not be an iterator.
        self._tell("job_done", box, tuple(buckets), state=state, seconds=seconds)

    def fetch_failed(self, box: Box, reason: str) -> None:
        self._tell("fetch_failed", box, reason)

    def deleted(self, box: Box, *, rows: int, seconds: float) -> None:
        self._tell("deleted", box, rows=rows, seconds=seconds)

    def oldest_pending(self, box: Box, *, seconds: float) -> None:
        self._tell("oldest_pending", box, seconds=seconds)

    def outage(self, what: str, reason: str) -> None:
        self._tell("outage", what, reason)

    def recovered(self, what: str, *, seconds: float) -> None:
        self._tell("recovered", what, seconds=seconds)

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

    @contextmanager
    def _all(self, kind: str, *args: Any) -> Iterator[None]:
        with ExitStack() as stack:
            for number, tracer in enumerate(self._tracers):
                try:
                    stack.enter_context(getattr(tracer, kind)(*args))
                except Exception:
                    self._complain(number, kind)
            yield

    def _complain(self, number: int, kind: str) -> None:
        if (number, kind) not in self._complained:
            self._complained.add((number, kind))
            name = type(self._tracers[number]).__name__
            logger.exception("%s raised in %s(); this is said once", name, kind)
