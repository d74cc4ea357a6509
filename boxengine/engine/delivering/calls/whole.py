"""Items that go through their transports as whole batches (``call_batch``).

A batch for which a transport raises is halved, so that one poison item does not take the others with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from boxengine.domain.item import Item
from boxengine.engine.answers import A_TRANSPORT, WITHHELD, failed, refusal, ungrouped
from boxengine.engine.attempt import ends_the_worker, reason_of
from boxengine.engine.delivering.calls.deadline import Deadline
from boxengine.engine.delivering.calls.ordering import Route
from boxengine.engine.delivering.calls.results import WrongResults
from boxengine.engine.delivering.calls.sent import Failed, Sent
from boxengine.engine.delivering.calls.transports import Carrier
from boxengine.engine.delivering.calls.undoing import Undo
from boxengine.engine.delivering.calls.watch import Watch
from boxengine.errors import NoAnswerInTime, StoreConflict, TransactionLost, Unavailable
from boxengine.ports import Claim, NotTaken, Result, events

_ID = itemgetter(Item._fields.index("id"))
_NOTHING = {id(None)}
NARROWING_SPLITS = 12
"""How often in a row parts for which a transport raises may be halved while none goes through: enough for one guilty item in
4,096. A transport that raises whatever it gets is called so often, and not for every item."""


class Carried(NamedTuple):
    """The result of handing items to one transport."""

    items: Sequence[Item]
    """The items that the transport took."""
    sent: Sent
    """The batch so far, with what became of the other items."""


class Whole:
    """Sends the items of one claim that may go in whole batches."""

    def __init__(self, claim: Claim, *, deadline: Deadline, watch: Watch) -> None:
        self._claim = claim
        self._deadline = deadline
        self._watch = watch
        self._splits_left = NARROWING_SPLITS

    def send(self, route: Route, items: Sequence[Item], sent: Sent) -> Sent:
        """Sends these items, none of which waits for another, through all transports of their route."""
        if any(carrier.wants_session for carrier in route):
            return self._in_session(route, items, sent)
        for carrier in route:
            items, sent = self._carry(carrier, items, sent, first=carrier is route[0])
        return sent.took(map(_ID, items))

    # ── outside the session ──────────────────────────────────────────────────────────────────────────

    def _carry(self, carrier: Carrier, items: Sequence[Item], sent: Sent, *, first: bool) -> Carried:
        """Hands the items to one transport.

        Args:
            first: whether no other transport has the items yet.
        """
        if not items:
            return Carried((), sent)
        if carrier.name in sent.unreachable:
            return Carried((), sent.left(items))
        try:
            carried = self._call(carrier, items, sent)
        except BaseException as error:
            if ends_the_worker(error):
                raise
            problem = ungrouped(error)
            if isinstance(problem, Unavailable):
                return Carried((), sent.put_off(items, problem, carrier.name))
            return self._narrow(carrier, items, error, sent, first=first)
        self._went_through(sent)
        return carried

    def _call(self, carrier: Carrier, items: Sequence[Item], sent: Sent) -> Carried:
        """One call of the transport, reported to the observer however it ends."""
        watch, given, refused = self._watch, len(items), len(items)
        bad: list[int] = []
        problems: list[tuple[Item, object]] = []
        began = watch.monotonic()
        try:
            with suppress(NotTaken), watch.tracer.sending(watch.box, carrier.name, items):
                results = carrier.send_batch(items, self._claim)
                bad = _failed(results)
                refused = len(bad)
                if bad:
                    problems = [(items[place], refusal(results[place], awaited=A_TRANSPORT)) for place in bad]
                    reasons = {item.id: reason_of(problem) for item, problem in problems if problem is not WITHHELD}
                    given, refused = len(items) - len(bad) + len(reasons), len(reasons)
                    if reasons:
                        raise NotTaken(reasons)
        finally:
            seconds = watch.monotonic() - began
            watch.observer.see(
                events.Transported(watch.box, carrier.name, items=given, failed=refused, seconds=seconds)
            )
        sent = sent.answered(carrier.name, took=len(items) - len(bad))
        if not bad:
            return Carried(items, sent)
        sent = sent.judged([Failed(item, problem, carrier.name) for item, problem in problems])
        spoilt = set(bad)
        return Carried([item for place, item in enumerate(items) if place not in spoilt], sent)

    def _narrow(
        self, carrier: Carrier, items: Sequence[Item], error: BaseException, sent: Sent, *, first: bool
    ) -> Carried:
        """Halves a batch that raised, until those items are found that make it raise."""
        if self._hopeless(items, error):
            return Carried((), sent.judged(Failed(item, error, carrier.name) for item in items))
        taken: list[Item] = []
        for half in self._halves(items):
            # However late it is: left pending, items that other transports have would reach these twice.
            if first and self._must_stop(sent):
                break
            took, sent = self._carry(carrier, half, sent, first=first)
            taken += took
        return Carried(taken, sent)

    # ── through the session ──────────────────────────────────────────────────────────────────────────

    def _in_session(
        self, route: Route, items: Sequence[Item], sent: Sent, took: frozenset[Carrier] = frozenset()
    ) -> Sent:
        """One savepoint around all transports: what is written for an item must not stay unless all of them took it.

        Where some items were refused, everything is undone, and the transports that write through the session are called
        again for the others. Where a transport raised, the batch is halved.

        Args:
            took: transports outside the session that have these items already and must not get them twice.
        """
        while items:
            attempt = _Attempt(items, sent, set(took), route[0])
            try:
                with self._claim.savepoint():
                    self._carry_on(attempt, route)
                    if len(attempt.left) < len(items):
                        raise Undo  # noqa: TRY301 - it is the raise that makes the savepoint undo what was written
            except Undo:
                sent = attempt.sent
                # However late it is: left pending, these items would go out twice through the transports that have them.
                if self._must_stop(sent) and not attempt.took:
                    break
                items, took = attempt.left, frozenset(attempt.took)
            except TransactionLost as lost:
                lost.item_ids = map(_ID, items)
                raise
            except BaseException as error:
                if ends_the_worker(error):
                    raise
                return self._halve_in_session(route, attempt, error)
            else:
                self._went_through(sent)
                return attempt.sent.took(map(_ID, items))
        return sent

    def _carry_on(self, attempt: _Attempt, route: Route) -> None:
        for carrier in route:
            if attempt.left and carrier not in attempt.took:
                attempt.at = carrier
                attempt.left, attempt.sent = self._call(carrier, attempt.left, attempt.sent)
                if not carrier.wants_session:
                    attempt.took.add(carrier)

    def _halve_in_session(self, route: Route, attempt: _Attempt, error: BaseException) -> Sent:
        items, sent, where = attempt.left, attempt.sent, attempt.at.name
        problem = ungrouped(error)
        if isinstance(problem, Unavailable) and not isinstance(problem, StoreConflict):
            return sent.put_off(items, problem, where)
        if self._hopeless(items, error):
            return sent.judged(Failed(item, error, where) for item in items)
        if self._must_stop(sent) and not attempt.took:
            return sent
        for half in self._halves(items):
            if self._must_stop(sent) and not attempt.took:
                break
            if sent.out_of_reach(tuple(carrier for carrier in route if carrier not in attempt.took)):
                sent = sent.left(half)
            else:
                sent = self._in_session(route, half, sent, frozenset(attempt.took))
        return sent

    # ── both ─────────────────────────────────────────────────────────────────────────────────────────

    def _hopeless(self, items: Sequence[Item], error: BaseException) -> bool:
        """Whether trying parts of a batch that raised would tell nothing about single items."""
        return len(items) == 1 or self._splits_left <= 0 or isinstance(error, WrongResults | NoAnswerInTime)

    def _halves(self, items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
        self._splits_left -= 1
        middle = len(items) // 2
        return items[:middle], items[middle:]

    def _went_through(self, sent: Sent) -> None:
        """Lets the halving go on: so the transport does not raise for everything, and the rest may be innocent."""
        if self._splits_left < NARROWING_SPLITS and not self._must_stop(sent):
            self._splits_left = NARROWING_SPLITS

    def _must_stop(self, sent: Sent) -> bool:
        return self._deadline.passed(begun=sent.begun)


def _failed(results: Sequence[Result]) -> list[int]:
    """The places of those that are no delivery."""
    # Most transports answer None to all. By identity: what else they return may have an ``__eq__`` of its own.
    if set(map(id, results)) == _NOTHING:
        return []
    return [place for place, result in enumerate(results) if result is not None and failed(result)]


@dataclass(slots=True)
class _Attempt:
    """How far a batch has come on a route with a transport that writes through the session. Read when a transport raises."""

    left: Sequence[Item]
    """Those that no transport has refused."""
    sent: Sent
    """With what became of the others."""
    took: set[Carrier]
    """Transports outside the session that have all of these."""
    at: Carrier
    """The transport that was called last."""
