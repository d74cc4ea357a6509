"""Makes a transport whose calls are ``async def`` into the plain transport that the engine calls."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.answers import Raised, asynchronous
from boxengine.engine.awaiting.lanes import CUTOFF, Lanes, no_answer
from boxengine.engine.awaiting.surroundings import Surroundings
from boxengine.engine.awaiting.visit import Visit
from boxengine.engine.delivering.calls.decoding import asks_for
from boxengine.engine.delivering.calls.transports import SideBySide
from boxengine.errors import BoxError, NoAnswerInTime
from boxengine.ports import Result

LOOK = 0.1
"""Seconds between the checks, by the thread that waits for a batch, whether the rest of the batch must wait."""


class Asynchronous:
    """Makes the transport and calls it on the event loop. The engine sees only ``plain``."""

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        surroundings: Surroundings,
        timeout: timedelta | None,
        cutoff: timedelta,
        disposable: bool,
        name: str,
    ) -> None:
        """Makes the transport on the event loop, where clients that belong to a loop can be made.

        Args:
            make: as the configuration has it.
            timeout: how long one call may take, as configured; None: no such limit.
            cutoff: how long a batch's calls may take (``processor.cutoff_timeout``).
            disposable: whether each call gets a new one.
            name: of its tasks.

        Raises:
            BoxError: it has a time limit, and a call that is a plain ``def``.
        """
        self._make = make
        self._with = surroundings
        self._timeout = timeout
        self._cutoff = cutoff
        self._disposable = disposable
        self._name = name
        self._kept = surroundings.loop.run(on_the_loop, make, name=name)
        if timeout is not None:
            self._refuse_what_nothing_ends()
        self._wants_decoded = asks_for(self._kept, "decoded")

    def plain(self) -> Any:
        """An object with the same calls, none of them ``async def``, and with ``call_batch`` where items may go side by side."""
        return self._plain(self.side_by_side)

    def _plain(self, side_by_side: Callable[[Sequence[Item]], Sequence[Result]]) -> Any:
        members: dict[str, Any] = {
            "close": lambda _self: self.close(),
            "to_the_end": lambda _self: self._plain(self.all_side_by_side),
        }
        one = self._kept if callable(self._kept) else None
        batch = getattr(self._kept, "call_batch", None)
        if one is not None:
            members["__call__"] = _single(self, one)
        if batch is not None:
            members["call_batch"] = _batch(self, batch)
        elif one is not None and not asks_for(one, "session"):
            members["call_batch"] = lambda _self, items: side_by_side(items)
        # A class of its own: the engine decides by class and signature how to call a transport.
        bases: tuple[type, ...] = ()
        if one is not None and asynchronous(one) and not asks_for(one, "session"):
            members["one"] = lambda _self, item: self.one(item)
            members["each"] = lambda _self, items, call: self.each(items, call)
            bases = (SideBySide,)
        return type(type(self._kept).__name__, bases, members)()

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────

    def side_by_side(self, items: Sequence[Item]) -> Sequence[Result]:
        """Sends each item by itself, items of one key in sequence, until the rest must wait."""
        return self.each(items, self.one)

    def each(self, items: Sequence[Item], call: Callable[[Item], Awaitable[Result]]) -> Sequence[Result]:
        """Awaits this call for each item."""
        surroundings = self._with
        lanes, visit = self._begin(items, call)
        began = surroundings.clock.monotonic()
        while not visit.wait(LOOK):
            late = lanes.begun and surroundings.clock.monotonic() - began >= surroundings.flush_after
            if late or surroundings.paused():
                lanes.stopped = True
        results: Sequence[Result] = visit.result()
        return results

    def all_side_by_side(self, items: Sequence[Item]) -> Sequence[Result]:
        """Like ``side_by_side``, but neither a pause nor ``flush_after`` stops it; only timeout and cutoff cancel calls."""
        _, visit = self._begin(items, self.one)
        visit.wait()
        results: Sequence[Result] = visit.result()
        return results

    def _begin(self, items: Sequence[Item], call: Callable[[Item], Awaitable[Result]]) -> tuple[Lanes, Visit]:
        lanes = Lanes(call, items, gate=self._with.gate, cutoff=self._cutoff, name=self._name)
        visit = self._with.loop.visit()
        visit.begin(lanes.run, name=self._name)
        return lanes, visit

    def alone(self, item: Item) -> Result:
        """Sends one item; the caller has just checked that it need not wait. Raises what the transport raised."""
        (result,) = self.all_side_by_side([item])
        if isinstance(result, Raised):
            raise result.error
        return result

    def alone_in_session(self, item: Item, given: Mapping[str, Any]) -> Result:
        """Sends one item, with a session on the claim's transaction. Raises what the transport raised."""
        try:
            return self._limited(lambda **options: self.transport()(item, item.payload, **options), given)
        except NoAnswerInTime as error:
            # The call has ended, and takes no other items with it.
            return Failure(str(error))

    def batch(self, items: Sequence[Item], given: Mapping[str, Any]) -> Any:
        """The transport's own ``call_batch``, awaited."""
        return self._limited(lambda **options: self.transport().call_batch(items, **options), given)

    def transport(self) -> Any:
        """The kept transport, or a new one if each call gets its own."""
        return self._make() if self._disposable else self._kept

    def close(self) -> None:
        """Awaits ``aclose()``, or calls ``close()`` and awaits its result if that is awaitable."""
        close = getattr(self._kept, "aclose", None) or getattr(self._kept, "close", None)
        if callable(close):
            self._with.loop.run(_on_the_loop_to_the_end, close, name=f"{self._name} close")

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _refuse_what_nothing_ends(self) -> None:
        ways = {
            "__call__": self._kept if callable(self._kept) else None,
            "call_batch": getattr(self._kept, "call_batch", None),
        }
        for way, call in ways.items():
            if call is not None and not asynchronous(call):
                self.close()
                raise BoxError(
                    f"{self._name}: timeout ends only what is awaited, and its {way} is a plain def beside an async def; "
                    "write both as async def, or both as plain def, or leave timeout out and set a limit inside the transport"
                )

    async def one(self, item: Item) -> Result:
        """One call, cancelled after its ``timeout``; to be awaited on the loop, in a place that the box has at the gate."""
        if self._timeout is None:
            return await self._call_one(item)
        limit = asyncio.timeout(self._timeout.total_seconds())
        try:
            async with limit:
                return await self._call_one(item)
        except TimeoutError:
            if not limit.expired():
                raise
            return Failure(no_answer(self._timeout, "timeout"))

    async def _call_one(self, item: Item) -> Result:
        transport = self.transport()
        given = {"decoded": item.decoded} if self._wants_decoded else {}
        result: Result = await transport(item, item.payload, **given)
        return result

    def _limited(self, call: Callable[..., Awaitable[Any]], given: Mapping[str, Any]) -> Any:
        """Runs a call that always ends before the thread goes on, because it may hold the claim's session.

        Args:
            call: called on the event loop, where a disposable transport is made, too.

        Raises:
            NoAnswerInTime: it was cancelled.
        """
        visit = self._with.loop.visit()
        session = given.get("session")
        with nullcontext() if session is None else self._with.lend(session, visit) as lent:
            options = dict(given) if session is None else {**given, "session": lent}
            visit.begin(self._gated, partial(call, **options), name=self._name)
            visit.wait()
            return visit.result()

    async def _gated(self, call: Callable[[], Awaitable[Any]]) -> Any:
        within, setting = self._cutoff, CUTOFF
        if self._timeout is not None and self._timeout <= within:
            within, setting = self._timeout, "timeout"
        async with self._with.gate:
            limit = asyncio.timeout(within.total_seconds())
            try:
                async with limit:
                    return await call()
            except TimeoutError:
                if not limit.expired():
                    raise
                raise NoAnswerInTime(no_answer(within, setting)) from None


def _single(transport: Asynchronous, one: Any) -> Callable[..., Result]:
    in_session, awaited = asks_for(one, "session"), asynchronous(one)

    def call(_self: object, item: Item, payload: Any, **given: Any) -> Result:
        if not awaited:
            result: Result = transport.transport()(item, payload, **given)
            return result
        return transport.alone_in_session(item, given) if in_session else transport.alone(item)

    return _with_options(call, one, "item", "payload")


def _batch(transport: Asynchronous, batch: Any) -> Callable[..., Any]:
    awaited = asynchronous(batch)

    def call_batch(_self: object, items: Sequence[Item], **given: Any) -> Any:
        if not awaited:
            return transport.transport().call_batch(items, **given)
        return transport.batch(items, given)

    return _with_options(call_batch, batch, "items")


def _with_options(call: Callable[..., Any], original: Any, *positional: str) -> Callable[..., Any]:
    """The engine reads a signature to find out what else a transport wants."""
    options = [name for name in ("session", "decoded") if asks_for(original, name)]
    parameters = [
        *(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("self", *positional)),
        *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in options),
    ]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what inspect looks for
    return call


async def on_the_loop(function: Callable[[], Any]) -> Any:
    """Calls a plain function on the event loop."""
    return function()


async def _on_the_loop_to_the_end(function: Callable[[], Any]) -> None:
    result = function()
    if inspect.isawaitable(result):
        await result
