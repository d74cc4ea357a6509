"""Sends items through asynchronous middlewares and transports side by side; items of one key go in sequence.

For routes on which nothing needs the delivering thread: all middlewares are ``async def``, so are the transports' calls
for single items, and none of them writes through the claim's session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.engine.answers import A_TRANSPORT, KEPT_BACK, Raised, failed, refusal
from boxengine.engine.attempt import reason_of
from boxengine.engine.awaiting.passage import AsyncPassage
from boxengine.engine.delivering.calls.legs import Counts
from boxengine.engine.delivering.calls.ordering import Route
from boxengine.engine.delivering.calls.pipeline import AsyncMiddleware
from boxengine.engine.delivering.calls.sent import MIDDLEWARE, Failed, Sent
from boxengine.engine.delivering.calls.transports import SideBySide
from boxengine.engine.delivering.calls.watch import Watch
from boxengine.errors import Unavailable
from boxengine.ports import NotTaken, Result


class Abreast:
    """Sends the items of one claim for which ``takes`` is true."""

    def __init__(self, middlewares: Sequence[AsyncMiddleware], *, watch: Watch) -> None:
        self._middlewares = middlewares
        self._watch = watch
        self._legs: dict[Route, Sequence[AsyncLeg]] = {}

    def takes(self, route: Route) -> bool:
        """Whether items can go this way side by side."""
        return bool(self._middlewares) and all(carrier.side_by_side is not None for carrier in route)

    def send(self, route: Route, items: Sequence[Item], sent: Sent) -> Sent:
        """Sends these items through all transports of their route; only items of one key wait for each other."""
        legs = self._legs_of(route)
        ways = [_Way(item, legs, self._watch) for item in items]
        by_item = {way.item.id: way for way in ways}
        results = legs[0].transport.each(items, lambda item: by_item[item.id].go(self._middlewares))
        delivered, failures = list[ItemId](), list[Failed]()
        for way, result in zip(ways, results, strict=True):
            if result is True:
                delivered.append(way.item.id)
            else:
                problem = KEPT_BACK if result is KEPT_BACK else refusal(result)
                failures.append(Failed(way.item, problem, way.at))
        return sent.took(delivered).judged(failures)

    def legs(self) -> Iterable[AsyncLeg]:
        """Each transport that was called, with the counts of its calls."""
        return dict.fromkeys(leg for legs in self._legs.values() for leg in legs)

    def _legs_of(self, route: Route) -> Sequence[AsyncLeg]:
        if route not in self._legs:
            # By the transport, not by its name: the same class may stand in the configuration more than once.
            known = {leg.transport: leg for legs in self._legs.values() for leg in legs}
            self._legs[route] = [
                known.get(carrier.side_by_side) or AsyncLeg(carrier.name, carrier.side_by_side)
                for carrier in route
                if carrier.side_by_side is not None
            ]
        return self._legs[route]


class AsyncLeg(Counts):
    """One transport, and the counts of its calls."""

    __slots__ = ("transport",)

    def __init__(self, name: str, transport: SideBySide) -> None:
        super().__init__(name)
        self.transport = transport


class _Way:
    """One item on its way."""

    __slots__ = ("_legs", "_watch", "at", "item")

    def __init__(self, item: Item, legs: Sequence[AsyncLeg], watch: Watch) -> None:
        self.item = item
        self._legs = legs
        self._watch = watch
        self.at = MIDDLEWARE
        """Where the item is, or where it failed."""

    async def go(self, middlewares: Sequence[AsyncMiddleware]) -> Result:
        """Takes the item through middlewares and transports, in a context of its own.

        Returns True if the transports took the item and no middleware objects, else ``KEPT_BACK`` or the first failure.
        """
        return await asyncio.create_task(self._go(middlewares))

    async def _go(self, middlewares: Sequence[AsyncMiddleware]) -> Result:
        passage = AsyncPassage(middlewares, self._carry, self.item)
        await passage.run_async()
        match passage.problem:
            case None:
                return True if passage.arrived else KEPT_BACK
            case asyncio.CancelledError() as cancelled:
                raise cancelled
            case Unavailable() as problem if self.at != MIDDLEWARE:
                return problem
            case BaseException() as error:
                # Not raised: asyncio would treat a task's SystemExit as the loop's own.
                return Raised(error)
            case problem:
                return problem

    async def _carry(self, item: Item) -> Result:
        """Hands the item to all its transports until one fails; returns True, or the failed one's answer."""
        monotonic, sending = self._watch.monotonic, self._watch.tracer.sending
        for leg in self._legs:
            self.at = leg.name
            leg.calls += 1
            leg.failures += 1  # until the call is known to have succeeded
            problem: object = None
            began = monotonic()
            try:
                with suppress(NotTaken), sending(self._watch.box, leg.name, (item,)):
                    result = await leg.transport.one(item)
                    if result is not None and failed(result):
                        problem = refusal(result, awaited=A_TRANSPORT)
                        raise NotTaken({item.id: reason_of(problem)})
            finally:
                leg.seconds += monotonic() - began
            if problem is not None:
                return problem
            leg.failures -= 1
        self.at = MIDDLEWARE
        return True
