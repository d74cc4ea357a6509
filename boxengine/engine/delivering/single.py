"""Items that go through their transports one by one, each through the item middlewares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from boxengine.domain.item import Item
from boxengine.engine.answers import KEPT_BACK, failed, refusal
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.legs import Leg
from boxengine.engine.delivering.middleware import Passage
from boxengine.engine.delivering.ordering import Route
from boxengine.engine.delivering.pipeline import Middleware
from boxengine.engine.delivering.sent import MIDDLEWARE, Failed
from boxengine.engine.delivering.transports import Routes
from boxengine.engine.delivering.watch import Watch
from boxengine.ports import Claim, Result


class Single:
    """Sends items of one claim one by one."""

    def __init__(self, claim: Claim, routes: Routes, *, middlewares: Sequence[Middleware], watch: Watch) -> None:
        self._claim = claim
        self._routes = routes
        self._middlewares = middlewares
        self._watch = watch
        self._at = MIDDLEWARE
        """Where the item is, or where it failed."""
        self._legs: dict[Route, tuple[Leg, ...]] = {}
        """The ways of items, by their transports."""

    def send(self, item: Item) -> Failed | None:
        """Sends one item; returns None if it is delivered, else why not."""
        self._at = MIDDLEWARE
        try:
            if self._routes.in_session:
                result = self._in_savepoint(item)
            elif self._middlewares:
                result = self._through_middlewares(item)
            else:
                result = self._carry(item)
        except BaseException as error:
            if ends_the_worker(error):
                raise
            return Failed(item, error, self._at)
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
                    raise _Undo  # noqa: TRY301 - it is the raise that makes the savepoint undo what was written
        except _Undo:
            pass
        return result

    def _through_middlewares(self, item: Item) -> Result:
        """True where the transports took the item and no middleware objects; else what failed first."""
        passage = Passage(self._middlewares, self._carry, item)
        passage.run()
        if isinstance(passage.problem, BaseException):
            raise passage.problem
        if passage.problem is not None:
            return passage.problem
        return True if passage.arrived else KEPT_BACK

    def _carry(self, item: Item) -> Result:
        """The item through all its transports; True, or the answer of the first that fails, which ends it."""
        watch = self._watch
        monotonic, sending = watch.monotonic, watch.tracer.sending
        for leg in self._legs_of(item):
            self._at = leg.name
            leg.calls += 1
            leg.failures += 1  # until it is known to be well
            began = monotonic()
            try:
                with sending(watch.box, leg.name, (item,)):
                    result = leg.call(item)
            finally:
                leg.seconds += monotonic() - began
            if result is not None and failed(result):
                return result
            leg.failures -= 1
        if self._middlewares:
            self._at = MIDDLEWARE
        # Otherwise what fails from here on are the last transport's writes.
        return True

    def _legs_of(self, item: Item) -> tuple[Leg, ...]:
        route = self._routes.of(item)
        legs = self._legs.get(route)
        if legs is None:
            known = {leg.carrier: leg for each in self._legs.values() for leg in each}
            legs = tuple(known.get(carrier) or Leg(carrier, self._claim) for carrier in route)
            self._legs[route] = legs
        return legs


class _Undo(Exception):
    """Leaves a savepoint so that what was written in it is undone."""
