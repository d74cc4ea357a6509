"""What all boxes under test can do: show the items that were emitted, and deliver them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.rows import Row
from boxengine.app.boxes import Boxes
from boxengine.app.boxes.creating import Model
from boxengine.domain.box import Box
from boxengine.domain.item import Item, Status
from boxengine.domain.names import box_name
from boxengine.domain.new_values import same_key
from boxengine.engine.delivering.calls.pipeline import Pipeline, TransportSpec
from boxengine.engine.observation import NullTracer
from boxengine.ports import Store
from boxengine.settings import Resolved
from boxengine.testing.clock import move, present
from boxengine.testing.draining import (
    MOST_ROUNDS,
    Drain,
    Drained,
    Horizon,
    Log,
    NotDelivered,
    come,
    due_items,
    horizon,
    insist,
    next_due,
)
from boxengine.testing.emitted import Emitted
from boxengine.testing.sessions import is_mock


class TestedBoxes(Boxes):
    """Boxes of a configuration whose items a test can look at and deliver."""

    __test__ = False  # otherwise pytest would collect it as a class of tests
    stand_in = True

    def __init__(self, resolved: Resolved, *, clock: ManualClock) -> None:
        super().__init__(resolved, tracer=NullTracer())
        self.clock = clock
        """The engine's clock, which stands still: ``clock.advance(timedelta(minutes=5))`` lets retries come due. If a drain finds
        an item whose ``available_at`` has come by the real clock, it moves this one on to that."""
        self._log = Log()
        self._drains: dict[str, Drain] = {}
        self._transports: dict[str, tuple[TransportSpec, ...]] = {}

    # ── what a test asks ─────────────────────────────────────────────────────────────────────────────

    def emitted(self, model: Model, *, event_name: str | None = None, event_key: str | int | None = None) -> Emitted:
        """The items of a box in the order of their ids, delivered ones too.

        Args:
            model: the box's model class, or its name.
            event_name: only items with this name.
            event_key: only items with this key.

        Raises:
            UnknownBox: the configuration has no such box.
        """
        first, *_ = self._readers(model)
        items = self._items(self.box(first))
        return Emitted(
            [
                item
                for item in items
                if (event_name is None or item.event_name == event_name)
                and (event_key is None or item.event_key == str(same_key(event_key)))
            ]
        )

    def use_transport(self, model: Model, transport: Any, *, name: str = "transport") -> None:
        """Replaces all transports of the box with this one from now on.

        Args:
            transport: an instance, called like any transport; see ``RecordingTransport``.

        Raises:
            TypeError: ``transport`` is a class, or something that cannot be called, such as a transport's name.
            UnknownBox: the configuration has no such box.
        """
        if isinstance(transport, type):
            raise TypeError(f"use_transport takes an instance: {transport.__name__}(...)")
        if not (callable(transport) or hasattr(transport, "call_batch")):
            raise TypeError(f"use_transport takes an object that is called as (item, payload), not {transport!r:.80}")
        called = _called(transport) if is_mock(transport) else transport
        for box in self._readers(model):
            self.box(box)  # of a name that nobody knows nothing would be replaced: a drain would call the real receiver
            self._transports[box] = (TransportSpec(name=name, build=lambda: called),)
            self._close(box)

    def drain(
        self,
        *models: Model,
        until: datetime | timedelta | None = None,
        raise_failures: bool = True,
    ) -> Drained:
        """Delivers everything that is due now, as the worker would, and what transports create meanwhile in any of the boxes.

        Args:
            models: the boxes to drain; all of the configuration if none is named.
            until: also delivers what comes due by then (a moment, or a span from now): retries after their pauses, and
                delayed items. ``clock`` is advanced to each in turn, whichever box it is in.
            raise_failures: False: failures are only returned, not raised.

        Raises:
            Exception: what a transport or a batch middleware raised for an item that is still undelivered, with a note that
                names the item.
            NotDelivered: an item is still undelivered, and nothing was raised.
        """
        named = [reader for model in models for reader in self._readers(model)]
        self._log.clear()
        self._deliver(list(dict.fromkeys(named)) or list(self.resolved.pipelines), horizon(until, self.clock))
        for name in self._log.stopped:
            box = self.box(name)
            self._log.not_reached(name, due_items(box, self._rows(box), now=self.clock.now()))
        drained = self._log.drained()
        if raise_failures:
            insist(drained)
        return drained

    def close(self) -> None:
        """Closes the transports that were made."""
        for name in list(self._drains):
            self._close(name)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _readers(self, model: Model) -> list[str]:
        """The box itself, or the subscriptions of a log."""
        name = box_name(model)
        return self.resolved.readers(name) or [name]

    def _deliver(self, names: Sequence[str], until: Horizon) -> None:
        """Delivers what is due in turns, until no box has anything more, and only then moves the clock on."""
        self._catch_up(names)
        quiet = 0  # boxes looked at since the last delivery, its own included: what it created may be in any other
        for turn in range(MOST_ROUNDS * max(1, len(names))):
            if quiet >= len(names):
                moment = self._next_due(names, until)
                if moment is None:
                    return
                move(self.clock, to=moment)
                quiet = 0
            quiet = 1 if self._deliver_what_is_due(names[turn % len(names)]) else quiet + 1
        busy = [name for name in names if any(row.status == Status.PENDING for row in self._rows(self.box(name)))]
        raise NotDelivered(
            f"still not empty after {MOST_ROUNDS} rounds: {', '.join(busy)}; do transports feed these boxes?"
        )

    def _catch_up(self, names: Sequence[str]) -> None:
        """Moves the clock on to what has come due since it was moved last."""
        moments = [come(self._rows(self.box(name)), by=present(self.clock)) for name in names]
        move(self.clock, to=max((moment for moment in moments if moment is not None), default=self.clock.now()))

    def _next_due(self, names: Sequence[str], until: Horizon) -> datetime | None:
        """When the next item of any of the boxes comes due, if one does by then."""
        until = replace(until, delayed=max(until.delayed, present(self.clock)))  # for what transports have just created
        boxes, now = [self.box(name) for name in names if name not in self._log.stopped], self.clock.now()
        moments = [next_due(box, self._rows(box), now=now, until=until) for box in boxes]
        return min((moment for moment in moments if moment is not None), default=None)

    def _deliver_what_is_due(self, name: str) -> bool:
        box = self.box(name)
        if name in self._log.stopped or not self._rows(box):
            return False  # creates no transport, because one may need a server that the test does not have
        drain = self._drains.get(name)
        if drain is None:
            drain = self._drains[name] = Drain(
                self._tested(self.pipeline(name)),
                middlewares=self.resolved.middlewares,
                store=self._store_of(box),
                clock=self.clock,
                log=self._log,
            )
        return drain.deliver_what_is_due()

    def _tested(self, pipeline: Pipeline) -> Pipeline:
        transports = self._transports.get(pipeline.box.name)
        return pipeline if transports is None else replace(pipeline, transports=transports)

    def _close(self, name: str) -> None:
        drain = self._drains.pop(name, None)
        if drain is not None:
            drain.close()

    # ── where the items are ──────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _store_of(self, box: Box) -> Store:
        """What the engine claims the box's items from."""

    @abstractmethod
    def _rows(self, box: Box) -> Sequence[Row]:
        """All rows of the box in id order."""

    @abstractmethod
    def _items(self, box: Box) -> Sequence[Item]:
        """The same rows as items."""


def _called(mock: Any) -> Any:
    """A mock as a transport: it has every attribute, and would pass for one of batches. Only one that was told to be one is."""
    if "call_batch" in dir(mock):
        return mock
    if not isinstance(mock, AsyncMock):
        return partial(mock)

    async def call(item: Item, payload: Any) -> Any:
        return await mock(item, payload)

    return call
