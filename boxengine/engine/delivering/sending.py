"""One batch on its way through the transports.

Whole batches go where a transport has ``call_batch`` and no item middleware asks to stand around each item. Else items go
one by one, and between two of them the deadline is looked at; where all that they go through is ``async def``, side by side.
Under strict order an item waits for the answer about the one before it: batches are cut into waves that hold no key twice.

Users' code runs here. Whatever it raises is a failed attempt, ``SystemExit`` and ``CancelledError`` too: no item may end
the thread that works on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item
from boxengine.engine.awaiting.abreast import Abreast
from boxengine.engine.delivering.deadline import Deadline
from boxengine.engine.delivering.ordering import Ordering
from boxengine.engine.delivering.pipeline import AsyncMiddleware, Middleware
from boxengine.engine.delivering.sent import NOBODY, Sent
from boxengine.engine.delivering.single import Single
from boxengine.engine.delivering.transports import Routes
from boxengine.engine.delivering.watch import Watch
from boxengine.engine.delivering.whole import Whole
from boxengine.errors import Unavailable
from boxengine.ports import Claim


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
        refused: Mapping[str, Unavailable] = NOBODY,
    ) -> None:
        """Args:
        coroutines: the same middlewares, if items may go through them side by side.
        deadline: once it has passed, the rest stays pending.
        refused: transports that are not to be called now, and why; their items stay pending.
        """
        self._routes = routes
        self._middlewares = middlewares
        self._ordering = ordering = Ordering(strict_order)
        self._sent = sent = Sent(ordering, refused)
        self._whole = Whole(claim, ordering=ordering, deadline=deadline, watch=watch, sent=sent)
        self._abreast = Abreast(coroutines, ordering=ordering, deadline=deadline, watch=watch, sent=sent)
        self._single = Single(
            claim, routes, middlewares=middlewares, ordering=ordering, deadline=deadline, watch=watch, sent=sent
        )

    def hold_back(self, items: Iterable[Item]) -> None:
        """These failed before they could be sent: under strict order their followers wait."""
        self._ordering.block(items)

    def send(self, items: Sequence[Item]) -> Sent:
        """Sends all items, as far as the deadline and the order allow; what became of them."""
        for route, group in self._ordering.by_route(items, self._routes):
            if not route:
                for item in group:
                    self._sent.fail(item, _nobody(item), "transports")
            elif not self._middlewares and all(carrier.has_batch for carrier in route):
                for wave in self._ordering.waves(group):
                    self._whole.send(route, wave)
            elif self._abreast.takes(route):
                for wave in self._ordering.waves(group):
                    self._abreast.send(route, wave)
            else:
                self._single.send(group)
        self._single.tell()
        self._abreast.tell()
        return self._sent


def _nobody(item: Item) -> str:
    """Why no transport is for the item."""
    if item.only_to is not None:
        return f"no transport named {item.only_to!r}, to which it was replayed"
    return f"no transport for event name {item.event_name!r}"
