"""Several observers, or tracers, combined into one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.ports import Around, Observer, Tracer
from boxengine.ports.events import Event

if TYPE_CHECKING:
    from boxengine.domain.jobs import ClaimedJob, JobBox

logger = logging.getLogger(__name__)
_NOTHING: AbstractContextManager[object] = nullcontext()


class CombinedObserver:
    """Passes events to each observer in turn. If one raises, that is logged once per kind of event; the others still see it."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)
        self._complained: set[tuple[int, type[Event]]] = set()

    def see(self, event: Event) -> None:
        for number, observer in enumerate(self._observers):
            try:
                observer.see(event)
            except Exception:
                self._complain(number, type(event))

    def _complain(self, number: int, kind: type[Event]) -> None:
        if (number, kind) not in self._complained:
            self._complained.add((number, kind))
            name = type(self._observers[number]).__name__
            logger.exception(
                "%s raised on %s; it still receives events, but this is logged only once", name, kind.__name__
            )


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

    def creating(self, box: Box | JobBox, count: int) -> AbstractContextManager[object]:
        return self._all("creating", box, count)

    def polling(self, box: Box, partition: int) -> AbstractContextManager[object]:
        return self._all("polling", box, partition)

    def processing(self, box: Box, items: Sequence[Item]) -> AbstractContextManager[object]:
        return self._all("processing", box, items)

    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> AbstractContextManager[object]:
        return self._all("sending", box, transport, items)

    def sending_each(self, box: Box, transport: str) -> Around | None:
        found: list[tuple[int, Around]] = []
        for number, tracer in enumerate(self._tracers):
            try:
                each = tracer.sending_each(box, transport)
            except Exception:
                self._complain(number, "sending_each")
            else:
                found += [] if each is None else [(number, each)]
        match found:
            case []:
                return None
            case [(number, each)]:
                return self._alone(number, each)
            case _:
                return lambda item: self._opened("sending", ((number, partial(each, item)) for number, each in found))

    def running(self, box: JobBox, jobs: Sequence[ClaimedJob]) -> AbstractContextManager[object]:
        return self._all("running", box, jobs)

    def _alone(self, number: int, each: Around) -> Around:
        """One tracer's, in as few steps as may be: it is called for each item."""

        def around(item: Item) -> AbstractContextManager[object]:
            try:
                return each(item)
            except Exception:
                self._complain(number, "sending")
                return _NOTHING

        return around

    def _all(self, kind: str, *args: Any) -> AbstractContextManager[object]:
        made = ((number, partial(getattr(tracer, kind), *args)) for number, tracer in enumerate(self._tracers))
        return self._opened(kind, made)

    def _opened(self, kind: str, made: Iterable[tuple[int, Callable[[], Any]]]) -> AbstractContextManager[object]:
        opened: list[tuple[int, AbstractContextManager[object]]] = []
        for number, make in made:
            try:
                context = make()
            except Exception:
                self._complain(number, kind)
            else:
                # What does nothing is left out: one of these is made for each item that is sent by itself.
                if context.__class__ is not nullcontext:
                    opened.append((number, context))
        match opened:
            case []:
                return _NOTHING
            case _:
                # Also around a single one, which may raise only when it is entered or left: so does a span whose sampler fails.
                return _Nested(opened, lambda number: self._complain(number, kind))

    def _complain(self, number: int, kind: str) -> None:
        if (number, kind) not in self._complained:
            self._complained.add((number, kind))
            name = type(self._tracers[number]).__name__
            logger.exception("%s raised in %s(); this is logged only once", name, kind)


class _Nested(AbstractContextManager[None]):
    """Several contexts as one; a context that itself raises is logged and left out."""

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
