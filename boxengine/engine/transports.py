"""Which transports an item goes to, made and called in one way whatever their shape."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.pipeline import TransportSpec
from boxengine.ports import Result


class Carrier:
    """One transport of a box: made once, or anew for each call where it is disposable."""

    def __init__(self, spec: TransportSpec) -> None:
        """Makes the transport; what its constructor raises comes through."""
        self.name = spec.name
        self.event_name = spec.event_name
        self._build = spec.build
        first = spec.build()
        self._kept = None if spec.disposable else first
        self.has_batch = callable(getattr(first, "call_batch", None))
        self.has_single = callable(first)
        self.wants_session = _takes_session(first.call_batch if self.has_batch else first)
        self.single_wants_session = self.has_single and _takes_session(first)

    def single(self) -> Callable[..., Result]:
        """The callable for one item."""
        transport: Callable[..., Result] = self._transport()
        return transport

    def batch(self) -> Callable[..., Sequence[Result]]:
        """The callable for many items."""
        call: Callable[..., Sequence[Result]] = self._transport().call_batch
        return call

    def close(self) -> None:
        """Lets the kept transport free what it holds."""
        close = getattr(self._kept, "close", None)
        if callable(close):
            close()

    def _transport(self) -> Any:
        return self._build() if self._kept is None else self._kept


@dataclass(frozen=True, slots=True)
class Routes:
    """The carriers of a box by event name."""

    carriers: tuple[Carrier, ...]

    @property
    def uniform(self) -> bool:
        """Whether every item goes the same way."""
        return all(carrier.event_name is None for carrier in self.carriers)

    def of(self, item: Item) -> tuple[Carrier, ...]:
        """Those for all items and those for the item's event name, in configured order."""
        return tuple(c for c in self.carriers if c.event_name is None or c.event_name == item.event_name)

    def close(self) -> None:
        for carrier in self.carriers:
            carrier.close()


def failed(result: Result) -> bool:
    """Whether a transport's answer means that the attempt failed."""
    return result is False or isinstance(result, Failure)


def _takes_session(call: Any) -> bool:
    try:
        parameters = inspect.signature(call).parameters
    except (TypeError, ValueError):
        return False
    return "session" in parameters
