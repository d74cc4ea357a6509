"""Which transports an item goes to, and one way to build and call transports of every shape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from functools import partial
from operator import itemgetter
from typing import Any

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.engine.answers import never_runs
from boxengine.engine.delivering.calls.decoding import decoding, takes
from boxengine.engine.delivering.calls.pipeline import TransportSpec
from boxengine.engine.delivering.calls.results import demand_results
from boxengine.engine.delivering.calls.time_limit import TimeLimit
from boxengine.errors import BoxError, described
from boxengine.ports import Claim, Result

_RAW_OPTIONS = itemgetter(Item._fields.index("raw_options"))


class Withholding(ABC):
    """A transport that may leave out items of a batch, such as when the time is over (``WITHHELD``)."""

    @abstractmethod
    def to_the_end(self) -> Any:
        """The same transport, for items that others have taken already: left out, they would go to those once more."""


class SideBySide(Withholding):
    """A transport that sends the items of a batch side by side."""

    @abstractmethod
    def one(self, item: Item) -> Awaitable[Result]:
        """Its call for one item, cancelled after its time limit."""

    @abstractmethod
    def each(self, items: Sequence[Item], call: Callable[[Item], Awaitable[Result]]) -> Sequence[Result]:
        """Awaits a call for each item, those of one key in sequence, until the rest must wait."""


class Carrier:
    """One transport of a box. It is built once, or for each call if it is disposable."""

    def __init__(self, spec: TransportSpec, *, box: Box | None = None) -> None:
        """Builds the transport.

        Args:
            box: its codec decodes payloads for a transport that takes ``decoded``.

        Raises:
            BoxError: its constructor raised, it has a time limit and takes ``session=``, a call of it would not run its
                code (``async def``), or it takes ``decoded`` and the box has no codec.
        """
        self.name = spec.name
        self.event_name = spec.event_name
        self._build = spec.build
        plain = _made(spec)
        first = decoding(plain)
        self.side_by_side = plain if isinstance(plain, SideBySide) else None
        self._withholding = plain if isinstance(plain, Withholding) else None
        if first is not plain and box is not None and box.codec is None:
            raise BoxError(
                f"transport {spec.name} takes decoded, but box {box.name} has no codec: give its model __payload__, such as "
                "boxengine.Payload.json(), and name the model in the configuration (model: package.module.Class)"
            )
        self._kept = None if spec.disposable else first
        self.disposable = spec.disposable
        self.has_batch = callable(getattr(first, "call_batch", None))
        self.has_single = callable(first)
        self._refuse_what_never_runs(first)
        self.wants_session = takes(first.call_batch if self.has_batch else first, "session")
        self.single_wants_session = self.has_single and takes(first, "session")
        self.timeout = spec.timeout
        self._limit: TimeLimit | None = None
        if spec.timeout is not None and (self.wants_session or self.single_wants_session):
            # A session belongs to one thread, and the engine would commit the transaction while the call still writes.
            raise BoxError(
                f"transport {spec.name}: timeout cannot be combined with session=; "
                "set statement_timeout or lock_timeout in the database URL instead"
            )

    def following(self) -> Carrier:
        """What stands for it behind another transport: a call that leaves out no item for lack of time."""
        if self._withholding is None:
            return self
        carrier = copy(self)
        if self.disposable:
            carrier._build = lambda: self._build().to_the_end()  # noqa: SLF001 - of the same class
        else:
            carrier._kept = decoding(self._withholding.to_the_end())  # noqa: SLF001 - of the same class
        return carrier

    def limit(self, limit: TimeLimit) -> None:
        """Applies a time limit to every later call."""
        self._limit = limit

    def single(self) -> Callable[..., Result]:
        """The callable for one item."""
        transport: Callable[..., Result] = self._transport()
        return transport if self._limit is None else partial(self._limit.call, transport)

    def send_batch(self, items: Sequence[Item], claim: Claim) -> Sequence[Result]:
        """Sends many items in one call and returns a result for each.

        Raises:
            WrongResults: the transport returned something else. Whatever the transport raises passes through.
        """
        call: Callable[..., Any] = self._transport().call_batch
        if self._limit is not None:
            call = partial(self._limit.call, call)
        options = {"session": claim.session} if self.wants_session else {}
        # A list of their own: what users' code takes out of it, or moves in it, must not change what is recorded.
        results = call(list(items), **options)
        if type(results) is list and len(results) == len(items):
            return results  # as nearly always, without one more call
        return demand_results(results, len(items))

    def close(self) -> None:
        """Closes the transport, so that it frees what it holds."""
        if self._limit is not None:
            self._limit.close()
        close = getattr(self._kept, "close", None)
        if callable(close):
            close()

    def _transport(self) -> Any:
        return decoding(self._build()) if self._kept is None else self._kept

    def _refuse_what_never_runs(self, transport: Any) -> None:
        ways = {
            "__call__": transport if self.has_single else None,
            "call_batch": getattr(transport, "call_batch", None),
        }
        for way, call in ways.items():
            kind = never_runs(call)
            if kind is not None:
                raise BoxError(
                    f"transport {self.name}: its {way} is {kind}, whose code would never run; write a plain def"
                )


class Routes:
    """A box's transports by event name."""

    def __init__(self, carriers: tuple[Carrier, ...]) -> None:
        self.carriers = carriers
        self._named: Mapping[str | None, tuple[Carrier, ...]] = {
            carrier.event_name: self._for(carrier.event_name) for carrier in carriers if carrier.event_name is not None
        }
        self._others = self._for(None)
        self.all = _one_after_the_other(carriers)
        """The way of items that go to every transport."""
        self.uniform = not self._named
        """Whether all items go to the same transports, except those that name one themselves."""
        self.in_session = any(carrier.wants_session or carrier.single_wants_session for carrier in carriers)
        """Whether a transport writes through the claim's session."""

    def of(self, item: Item) -> tuple[Carrier, ...]:
        """The transports for all items and for the item's event name, as configured; or only the one that the item names."""
        only = item.only_to
        if only is not None:
            return tuple(carrier for carrier in self.carriers if carrier.name == only)
        return self._named.get(item.event_name, self._others) if self._named else self._others

    def same_for(self, items: Sequence[Item]) -> bool:
        """Whether all of these items go to every transport."""
        if not self.uniform:
            return False
        # Without options, as most items are, none names one.
        return not any(map(_RAW_OPTIONS, items)) or all(item.only_to is None for item in items)

    def _for(self, event_name: str | None) -> tuple[Carrier, ...]:
        return _one_after_the_other([carrier for carrier in self.carriers if carrier.event_name in (None, event_name)])

    def close(self) -> None:
        """Closes all of them, even if one raises."""
        with ExitStack() as closing:
            for carrier in self.carriers:
                closing.callback(carrier.close)


def _one_after_the_other(carriers: Sequence[Carrier]) -> tuple[Carrier, ...]:
    return (*carriers[:1], *(carrier.following() for carrier in carriers[1:]))


def _made(spec: TransportSpec) -> Any:
    try:
        return spec.build()
    except BoxError:
        raise
    except (Exception, SystemExit) as error:
        raise BoxError(f"transport {spec.name}: its constructor raised {described(error)}") from error
