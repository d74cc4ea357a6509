"""Which transports an item goes to, made and called in one way whatever their shape."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.pipeline import TransportSpec
from boxengine.engine.time_limit import TimeLimit
from boxengine.errors import BoxError, Unavailable
from boxengine.ports import Claim, Result


class WrongResults(BoxError):
    """A batch transport answered with another number of results than it was given items."""


class Carrier:
    """One transport of a box: made once, or anew for each call where it is disposable."""

    def __init__(self, spec: TransportSpec) -> None:
        """Makes the transport; what its constructor raises comes through.

        Raises:
            BoxError: it has a time limit and takes ``session=``.
        """
        self.name = spec.name
        self.event_name = spec.event_name
        self._build = spec.build
        first = spec.build()
        self._kept = None if spec.disposable else first
        self.disposable = spec.disposable
        self.has_batch = callable(getattr(first, "call_batch", None))
        self.has_single = callable(first)
        self.wants_session = _takes_session(first.call_batch if self.has_batch else first)
        self.single_wants_session = self.has_single and _takes_session(first)
        self.timeout = spec.timeout
        self._limit: TimeLimit | None = None
        if spec.timeout is not None and (self.wants_session or self.single_wants_session):
            # A session belongs to one thread, and the transaction would be committed while the call is still writing.
            raise BoxError(
                f"transport {spec.name}: timeout cannot be had together with session=; "
                "set statement_timeout or lock_timeout in the database URL instead"
            )

    def limit(self, limit: TimeLimit) -> None:
        """From now on no call takes longer than this."""
        self._limit = limit

    def single(self) -> Callable[..., Result]:
        """The callable for one item."""
        transport: Callable[..., Result] = self._transport()
        return transport if self._limit is None else partial(self._limit.call, transport)

    def send_batch(self, items: Sequence[Item], claim: Claim) -> Sequence[Result]:
        """Hands many items over; returns a result for each.

        Raises:
            WrongResults: the transport returned something else. What it raises comes through.
        """
        call: Callable[..., Any] = self._transport().call_batch
        if self._limit is not None:
            call = partial(self._limit.call, call)
        options = {"session": claim.session} if self.wants_session else {}
        results = call(items, **options)
        if not isinstance(results, Sequence) or len(results) != len(items):
            answer = f"{len(results)} results" if isinstance(results, Sequence) else repr(results)
            raise WrongResults(f"call_batch was given {len(items)} items and must return as many results, not {answer}")
        return results

    def close(self) -> None:
        """Lets the kept transport free what it holds."""
        if self._limit is not None:
            self._limit.close()
        close = getattr(self._kept, "close", None)
        if callable(close):
            close()

    def _transport(self) -> Any:
        return self._build() if self._kept is None else self._kept


class Routes:
    """The carriers of a box by event name."""

    def __init__(self, carriers: tuple[Carrier, ...]) -> None:
        self.carriers = carriers
        self._named: Mapping[str | None, tuple[Carrier, ...]] = {
            carrier.event_name: self._for(carrier.event_name) for carrier in carriers if carrier.event_name is not None
        }
        self._others = self._for(None)
        self.uniform = not self._named
        """Whether every item goes the same way."""
        self.in_session = any(carrier.wants_session or carrier.single_wants_session for carrier in carriers)
        """Whether any of them writes through the claim's session."""

    def of(self, item: Item) -> tuple[Carrier, ...]:
        """Those for all items and those for the item's event name, in configured order."""
        return self._named.get(item.event_name, self._others) if self._named else self._others

    def _for(self, event_name: str | None) -> tuple[Carrier, ...]:
        return tuple(carrier for carrier in self.carriers if carrier.event_name in (None, event_name))

    def close(self) -> None:
        for carrier in self.carriers:
            carrier.close()


def failed(result: Result) -> bool:
    """Whether a transport's answer means that the item is not delivered."""
    return result is False or isinstance(result, Failure | Unavailable)


def _takes_session(call: Any) -> bool:
    try:
        parameters = inspect.signature(call).parameters
    except (TypeError, ValueError):
        return False
    return "session" in parameters
