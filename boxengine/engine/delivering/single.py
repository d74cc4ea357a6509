"""Items that go through their transports one by one, each through the item middlewares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from boxengine.domain.item import Item
from boxengine.engine.answers import KEPT_BACK, failed, refusal
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.deadline import Deadline
from boxengine.engine.delivering.legs import Leg, tell
from boxengine.engine.delivering.middleware import Passage
from boxengine.engine.delivering.ordering import Ordering, Route
from boxengine.engine.delivering.pipeline import Middleware
from boxengine.engine.delivering.sent import MIDDLEWARE, Sent
from boxengine.engine.delivering.transports import Routes
from boxengine.engine.delivering.watch import Watch
from boxengine.ports import Claim, Result


class Single:
    """Sends the items of one claim that have to go one by one."""

    def __init__(
        self,
        claim: Claim,
        routes: Routes,
        *,
        middlewares: Sequence[Middleware],
        ordering: Ordering,
        deadline: Deadline,
        watch: Watch,
        sent: Sent,
    ) -> None:
        self._claim = claim
        self._routes = routes
        self._middlewares = middlewares
        self._ordering = ordering
        self._deadline = deadline
        self._watch = watch
        self._sent = sent
        self._failed_at = ""
        self._legs: dict[Route, tuple[Leg, ...]] = {}
        """The ways of items, by their transports."""

    def send(self, items: Sequence[Item]) -> None:
        """Sends them as far as the deadline and the order allow."""
        # A local, not an attribute: on self it would form a cycle and keep the batch alive until the collector comes.
        one = self._through_middlewares if self._middlewares else self._carry
        if self._routes.in_session:
            one = partial(self._in_savepoint, one)
        passed, sent, ordering = self._deadline.passed, self._sent, self._ordering
        delivered = sent.delivered
        for item in items:
            if passed(sent):
                return
            if ordering.strict and ordering.line(item) in ordering.blocked:
                continue
            if (sent.unreachable or ordering.held) and self._must_wait(item):
                continue
            self._failed_at = MIDDLEWARE
            try:
                result = one(item)
            except BaseException as error:
                if ends_the_worker(error):
                    raise
                sent.judge(item, error, self._failed_at)
                continue
            if result is True:
                delivered.append(item.id)
            elif result is KEPT_BACK:
                sent.keep_back(item)
            else:
                sent.judge(item, refusal(result), self._failed_at)

    def tell(self) -> None:
        """Tells of all calls, transport by transport."""
        tell(dict.fromkeys(leg for legs in self._legs.values() for leg in legs), self._watch, self._sent)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _must_wait(self, item: Item) -> bool:
        if self._sent.out_of_reach(self._routes.of(item)):
            self._ordering.hold((item,))
        return item.event_key in self._ordering.held

    def _in_savepoint(self, one: Callable[[Item], Result], item: Item) -> Result:
        """The item through middlewares and transports; unless all is well, nothing they wrote remains."""
        result: Result = False
        try:
            with self._claim.savepoint():
                result = one(item)
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
            self._failed_at = leg.name
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
        self._failed_at = MIDDLEWARE
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
