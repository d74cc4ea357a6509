"""Items that go through their transports one by one, each through the item middlewares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from boxengine.domain.item import Item
from boxengine.engine.answers import A_TRANSPORT, KEPT_BACK, failed, refusal, ungrouped
from boxengine.engine.attempt import ends_the_worker, reason_of
from boxengine.engine.delivering.calls.legs import Leg
from boxengine.engine.delivering.calls.middleware import Passage
from boxengine.engine.delivering.calls.ordering import Route
from boxengine.engine.delivering.calls.pipeline import Middleware
from boxengine.engine.delivering.calls.sent import MIDDLEWARE, Failed
from boxengine.engine.delivering.calls.transports import Carrier, Routes
from boxengine.engine.delivering.calls.undoing import Undo
from boxengine.engine.delivering.calls.watch import Watch
from boxengine.errors import TransactionLost
from boxengine.ports import Around, Claim, NotTaken, Result


class Single:
    """Sends items of one claim one by one."""

    def __init__(self, claim: Claim, routes: Routes, *, middlewares: Sequence[Middleware], watch: Watch) -> None:
        self._claim = claim
        self._in_session = routes.in_session
        self._middlewares = middlewares
        self._watch = watch
        self._monotonic = watch.monotonic
        self._at = MIDDLEWARE
        """Where the item is, or where it failed."""
        self._way: tuple[Leg, ...] = ()
        """Of the items that come next."""
        self._legs: dict[Route, tuple[Leg, ...]] = {}
        """The ways of items, by their transports."""

    def along(self, route: Route) -> Callable[[Item], Failed | None]:
        """What sends each item that comes next: it returns None if the item is delivered, else why not."""
        self._way = self._legs_of(route)
        return self._send

    def _send(self, item: Item) -> Failed | None:
        self._at = MIDDLEWARE
        try:
            if self._in_session:
                result = self._in_savepoint(item)
            elif self._middlewares:
                result = self._through_middlewares(item)
            else:
                result = self._carry(item)
        except TransactionLost as lost:
            lost.item_ids = (item.id,)
            raise
        except BaseException as error:
            if ends_the_worker(error):
                raise
            return Failed(item, ungrouped(error), self._at)
        if result is True:
            return None
        return Failed(item, KEPT_BACK if result is KEPT_BACK else refusal(result), self._at)

    def legs(self) -> Iterable[Leg]:
        """Each transport that was called, with the counts of its calls."""
        return dict.fromkeys(leg for legs in self._legs.values() for leg in legs)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _in_savepoint(self, item: Item) -> Result:
        """The item through middlewares and transports; unless all is well, nothing they wrote remains."""
        result: Result = False
        try:
            with self._claim.savepoint():
                result = self._through_middlewares(item) if self._middlewares else self._carry(item)
                if result is not True:
                    raise Undo  # noqa: TRY301 - it is the raise that makes the savepoint undo what was written
        except Undo:
            pass
        return result

    def _through_middlewares(self, item: Item) -> Result:
        """True where the transports took the item and no middleware objects; else what failed first."""
        passage = Passage(self._middlewares, self._carry, item)
        passage.run()
        if passage.problem is None:
            return True if passage.arrived else KEPT_BACK
        if isinstance(passage.problem, BaseException):
            raise passage.problem
        return passage.problem

    def _carry(self, item: Item) -> Result:
        """The item through all its transports; True, or the answer of the first that fails, which ends it."""
        monotonic = self._monotonic
        for leg in self._way:
            self._at = leg.name
            leg.calls += 1
            began = monotonic()
            try:
                result = leg.call(item) if leg.around is None else _followed(leg, leg.around, item)
            except BaseException:
                leg.failures += 1
                raise
            finally:
                leg.seconds += monotonic() - began
            if result is not None and failed(result):
                leg.failures += 1
                return refusal(result, awaited=A_TRANSPORT)
        if self._middlewares:
            self._at = MIDDLEWARE
        # Otherwise what fails from here on are the last transport's writes.
        return True

    def _legs_of(self, route: Route) -> tuple[Leg, ...]:
        legs = self._legs.get(route)
        if legs is None:
            known = {leg.carrier: leg for each in self._legs.values() for leg in each}
            legs = tuple(known.get(carrier) or self._leg(carrier) for carrier in route)
            self._legs[route] = legs
        return legs

    def _leg(self, carrier: Carrier) -> Leg:
        return Leg(carrier, self._claim, self._watch.tracer.sending_each(self._watch.box, carrier.name))


def _followed(leg: Leg, around: Around, item: Item) -> Result:
    """Hands the item to the transport within what the tracer opens around it."""
    result: Result = None
    with suppress(NotTaken), around(item):
        result = leg.call(item)
        if result is not None and failed(result):
            raise NotTaken({item.id: reason_of(refusal(result, awaited=A_TRANSPORT))})
    return result
