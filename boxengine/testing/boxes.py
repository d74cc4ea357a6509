"""What all boxes under test can do: show the items that were emitted, and deliver them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.rows import Row
from boxengine.app.boxes import Boxes
from boxengine.app.boxes.creating import Model
from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.engine.delivering.pipeline import Pipeline, TransportSpec
from boxengine.engine.observation import NullTracer
from boxengine.ports import Store
from boxengine.settings import Resolved
from boxengine.settings.names import box_name
from boxengine.testing.draining import Drain, Drained, combined, horizon, insist
from boxengine.testing.emitted import Emitted


class TestedBoxes(Boxes):
    """Boxes of a configuration whose items a test can look at and deliver."""

    __test__ = False  # otherwise pytest would collect it as a class of tests

    def __init__(self, resolved: Resolved, *, clock: ManualClock) -> None:
        super().__init__(resolved, tracer=NullTracer())
        self.clock = clock
        """The engine's clock: ``clock.advance(timedelta(minutes=5))`` lets retries come due."""
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
                and (event_key is None or item.event_key == str(event_key))
            ]
        )

    def use_transport(self, model: Model, transport: Any, *, name: str = "transport") -> None:
        """Replaces all transports of the box with this one from now on.

        Args:
            transport: an instance, called like any transport; see ``RecordingTransport``.

        Raises:
            TypeError: ``transport`` is a class.
        """
        if isinstance(transport, type):
            raise TypeError(f"use_transport takes an instance: {transport.__name__}(...)")
        for box in self._readers(model):
            self._transports[box] = (TransportSpec(name=name, build=lambda: transport),)
            self._close(box)

    def drain(
        self,
        *models: Model,
        until: datetime | timedelta | None = None,
        raise_failures: bool = True,
    ) -> Drained:
        """Delivers everything that is due now, as the worker would, including items that transports create meanwhile.

        Args:
            models: the boxes to drain; all of the configuration if none is named.
            until: also delivers what comes due by then (a moment, or a span from now): retries after their pauses, and
                delayed items. ``clock`` is advanced to each in turn.
            raise_failures: False: failures are only returned, not raised.

        Raises:
            Exception: what a transport raised for an item that is still undelivered, with a note that names the item.
            NotDelivered: an item is still undelivered, and its transport raised nothing.
        """
        named = [reader for model in models for reader in self._readers(model)]
        names = named or list(self.resolved.pipelines)
        limit = horizon(until, self.clock)
        drained = combined([self._drain_box(name, limit) for name in names])
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

    def _drain_box(self, name: str, until: datetime | None) -> Drained:
        box = self.box(name)
        if not self._items(box):
            return Drained()  # creates no transport, because one may need a server that the test does not have
        drain = self._drains.get(name)
        if drain is None:
            drain = self._drains[name] = Drain(
                self._tested(self.pipeline(name)),
                middlewares=self.resolved.middlewares,
                store=self._store_of(box),
                clock=self.clock,
            )
        return drain.run(rows=lambda: self._rows(box), until=until)

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
