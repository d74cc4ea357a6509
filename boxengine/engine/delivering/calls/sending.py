"""One batch on its way through the transports.

Whole batches go where a transport has ``call_batch`` and no item middleware asks to stand around each item. Else items go
one by one, and between two of them the deadline is looked at; where all that they go through is ``async def``, side by side.
Under strict order an item waits for the answer about the one before it: batches are cut into waves that hold no key twice.

Users' code runs here. Whatever it raises is a failed attempt, ``SystemExit`` and ``CancelledError`` too: no item may end
the thread that works on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.engine.awaiting.abreast import Abreast
from boxengine.engine.delivering.calls.deadline import Deadline
from boxengine.engine.delivering.calls.legs import told
from boxengine.engine.delivering.calls.ordering import Ordering, Route
from boxengine.engine.delivering.calls.pipeline import AsyncMiddleware, Middleware
from boxengine.engine.delivering.calls.sent import Failed, Sent
from boxengine.engine.delivering.calls.single import Single
from boxengine.engine.delivering.calls.transports import Routes
from boxengine.engine.delivering.calls.watch import Watch
from boxengine.engine.delivering.calls.whole import Whole
from boxengine.errors import Unavailable
from boxengine.ports import Claim

Step = Callable[[Route, Sequence[Item], Sent], Sent]
"""Sends some items through a route; returns what it was given with what became of these."""
NONE_REFUSED: Mapping[str, Unavailable] = {}


class Sending:
    """Sends one claim's items."""

    def __init__(
        self,
        claim: Claim,
        routes: Routes,
        *,
        middlewares: Sequence[Middleware],
        coroutines: Sequence[AsyncMiddleware] = (),
        strict_order: StrictOrder,
        deadline: Deadline,
        watch: Watch,
        refused: Mapping[str, Unavailable] = NONE_REFUSED,
    ) -> None:
        """Args:
        coroutines: the same middlewares, if items may go through them side by side.
        deadline: once it has passed, the rest stays pending.
        refused: transports that are not to be called now, and why; their items stay pending.
        """
        self._routes = routes
        self._middlewares = middlewares
        self._ordering = Ordering(strict_order)
        self._deadline = deadline
        self._watch = watch
        self._refused = refused
        self._whole = Whole(claim, deadline=deadline, watch=watch)
        self._abreast = Abreast(coroutines, watch=watch)
        self._single = Single(claim, routes, middlewares=middlewares, watch=watch)

    def hold_back(self, items: Iterable[Item]) -> None:
        """These failed before they could be sent: under strict order their followers wait."""
        self._ordering.block(items)

    def hold_back_keys(self, keys: Iterable[str]) -> None:
        """Earlier items of these keys are pending elsewhere: no item of theirs goes out."""
        self._ordering.hold_keys(keys)

    def refusing(self, item: Item) -> Collection[str]:
        """The transports among the item's that are not to be called now."""
        return [carrier.name for carrier in self._routes.of(item) if carrier.name in self._refused]

    def stops(self, item: Item) -> bool:
        """Whether the item follows one that failed or waits."""
        return self._ordering.stops(item)

    def send(self, items: Sequence[Item]) -> Sent:
        """Sends all items, as far as the deadline and the order allow; returns what became of them."""
        sent = Sent(unreachable=self._refused)
        for route, group in self._ordering.by_route(items, self._routes):
            if not route:
                nowhere = [Failed(item, _nobody(item), "transports") for item in group]
                sent = self._noted(sent, sent.judged(nowhere))
            elif not self._middlewares and all(carrier.has_batch for carrier in route):
                sent = self._in_waves(self._whole.send, route, group, sent)
            elif self._abreast.takes(route):
                sent = self._in_waves(self._abreast.send, route, group, sent)
            else:
                sent = self._one_by_one(route, group, sent)
        return told([*self._single.legs(), *self._abreast.legs()], self._watch, sent)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _in_waves(self, send: Step, route: Route, items: Sequence[Item], sent: Sent) -> Sent:
        """Sends the items wave by wave, each through all transports of the route."""
        for wave in self._ordering.waves(items):
            if self._deadline.passed(begun=sent.begun):
                break
            if sent.out_of_reach(route):
                # The transports before that one would be given the same items again and again.
                sent = self._noted(sent, sent.left(wave))
            else:
                sent = self._noted(sent, send(route, self._ordering.free(wave), sent))
        return sent

    def _one_by_one(self, route: Route, items: Sequence[Item], sent: Sent) -> Sent:
        """Sends the items singly. This runs for every item of a batch, so it must cost little."""
        ordering, passed, send = self._ordering, self._deadline.passed, self._single.along(route)
        delivered: list[ItemId] = []
        begun = sent.begun
        for item in items:
            if passed(begun=begun):
                break
            if ordering.blocked and ordering.stops(item):
                continue
            if sent.unreachable and sent.out_of_reach(route):
                sent = self._noted(sent, sent.left((item,)))
                continue
            failure = send(item)
            if failure is None:
                delivered.append(item.id)
                begun = True
            else:
                sent = self._noted(sent, sent.judged((failure,)))
                begun = begun or sent.begun
        return sent.took(delivered)

    def _noted(self, before: Sent, after: Sent) -> Sent:
        """Has the followers of those wait that have failed, or were left waiting, since then."""
        self._ordering.block(failure.item for failure in after.failed[len(before.failed) :])
        self._ordering.hold(after.waiting[len(before.waiting) :])
        return after


def _nobody(item: Item) -> str:
    """Why no transport is for the item."""
    if item.only_to is not None:
        return f"no transport named {item.only_to!r}, to which it was replayed"
    if item.event_name is None:
        return "no transport for an item without an event name: each transport of the box has an event_name"
    return f"no transport for event name {item.event_name!r}"
