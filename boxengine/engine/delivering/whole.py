"""Items that go through their transports as whole batches (``call_batch``).

A batch for which a transport raises is halved, so that one poison item does not take the others with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boxengine.domain.item import Item
from boxengine.engine.answers import WITHHELD, failed, refusal
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.deadline import Deadline
from boxengine.engine.delivering.ordering import Ordering, Route
from boxengine.engine.delivering.sent import Sent
from boxengine.engine.delivering.transports import Carrier, WrongResults
from boxengine.engine.delivering.watch import Watch
from boxengine.errors import NoAnswerInTime, Unavailable
from boxengine.ports import Claim, events

NARROWING_SPLITS = 12
"""How often a batch for which its transport raised may be halved to find the guilty items: enough for one in 4,096."""


class Whole:
    """Sends the items of one claim that may go in whole batches."""

    def __init__(self, claim: Claim, *, ordering: Ordering, deadline: Deadline, watch: Watch, sent: Sent) -> None:
        self._claim = claim
        self._ordering = ordering
        self._deadline = deadline
        self._watch = watch
        self._sent = sent
        self._splits_left = NARROWING_SPLITS

    def send(self, route: Route, items: Sequence[Item]) -> None:
        """Sends these items, none of which waits for another, through all transports of their route."""
        if self._must_stop():
            return
        if self._sent.out_of_reach(route):
            # The transports before that one would be given the same items again and again.
            self._ordering.hold(items)
            return
        items = self._ordering.free(items)
        if any(carrier.wants_session for carrier in route):
            self._in_session(route, items)
            return
        for carrier in route:
            items = self._carry(carrier, items)
        self._sent.take(items)

    # ── outside the session ──────────────────────────────────────────────────────────────────────────

    def _carry(self, carrier: Carrier, items: Sequence[Item]) -> Sequence[Item]:
        """Hands the items to one transport and returns those it took."""
        if not items:
            return ()
        if carrier.name in self._sent.unreachable:
            self._ordering.hold(items)
            return ()
        try:
            return self._call(carrier, items)
        except BaseException as error:
            if ends_the_worker(error):
                raise
            if isinstance(error, Unavailable):
                self._sent.put_off(items, error, carrier.name)
                return ()
            return self._narrow(carrier, items, error)

    def _call(self, carrier: Carrier, items: Sequence[Item]) -> Sequence[Item]:
        """One call, told to those who watch however it ends; returns the items that the transport took."""
        watch, bad, withheld = self._watch, None, 0
        began = watch.monotonic()
        try:
            with watch.tracer.sending(watch.box, carrier.name, items):
                results = carrier.send_batch(items, self._claim)
            bad = [place for place, result in enumerate(results) if result is not None and failed(result)]
            withheld = sum(results[place] is WITHHELD for place in bad)
        finally:
            seconds = watch.monotonic() - began
            given, refused = len(items) - withheld, len(items if bad is None else bad) - withheld
            watch.observer.see(
                events.Transported(watch.box, carrier.name, items=given, failed=refused, seconds=seconds)
            )
        self._sent.answered(carrier.name, took=len(items) - len(bad))
        if not bad:
            return items
        for place in bad:
            self._sent.judge(items[place], refusal(results[place]), carrier.name)
        spoilt = set(bad)
        return [item for place, item in enumerate(items) if place not in spoilt]

    def _narrow(self, carrier: Carrier, items: Sequence[Item], error: BaseException) -> Sequence[Item]:
        """Halves a batch that raised; returns the items that the transport took after all."""
        taken: list[Item] = []
        for number, half in enumerate(self._halves(carrier, items, error)):
            if number and self._must_stop():
                break
            taken += self._carry(carrier, half)
        return taken

    # ── through the session ──────────────────────────────────────────────────────────────────────────

    def _in_session(self, route: Route, items: Sequence[Item], took: frozenset[Carrier] = frozenset()) -> None:
        """One savepoint around all transports: what is written for an item must not stay unless all of them took it.

        Where some items were refused, everything is undone, and the transports that write through the session are called
        again for the others. Where a transport raised, the batch is halved.

        Args:
            took: transports outside the session that have these items already and must not get them twice.
        """
        while items:
            attempt = _Attempt(items, set(took), route[0])
            try:
                with self._claim.savepoint():
                    self._carry_on(attempt, route)
                    if len(attempt.left) < len(items):
                        raise _Undo  # noqa: TRY301 - it is the raise that makes the savepoint undo what was written
            except _Undo:
                # However late it is: left pending, these items would go out twice through the transports that have them.
                if self._must_stop() and not attempt.took:
                    return
                items, took = attempt.left, frozenset(attempt.took)
            except BaseException as error:
                if ends_the_worker(error):
                    raise
                self._halve_in_session(route, attempt, error)
                return
            else:
                self._sent.take(items)
                return

    def _carry_on(self, attempt: _Attempt, route: Route) -> None:
        for carrier in route:
            if attempt.left and carrier not in attempt.took:
                attempt.at = carrier
                attempt.left = self._call(carrier, attempt.left)
                if not carrier.wants_session:
                    attempt.took.add(carrier)

    def _halve_in_session(self, route: Route, attempt: _Attempt, error: BaseException) -> None:
        if isinstance(error, Unavailable):
            self._sent.put_off(attempt.left, error, attempt.at.name)
            return
        for half in self._halves(attempt.at, attempt.left, error):
            if self._must_stop() and not attempt.took:
                return
            if self._sent.out_of_reach(tuple(carrier for carrier in route if carrier not in attempt.took)):
                self._ordering.hold(half)
            else:
                self._in_session(route, half, frozenset(attempt.took))

    # ── both ─────────────────────────────────────────────────────────────────────────────────────────

    def _halves(self, carrier: Carrier, items: Sequence[Item], error: BaseException) -> Sequence[Sequence[Item]]:
        """The items in two parts to be tried by themselves; none, and all have failed, where that would tell nothing."""
        if len(items) == 1 or self._splits_left <= 0 or isinstance(error, WrongResults | NoAnswerInTime):
            for item in items:
                self._sent.judge(item, error, carrier.name)
            return ()
        if self._must_stop():
            return ()
        self._splits_left -= 1
        middle = len(items) // 2
        return items[:middle], items[middle:]

    def _must_stop(self) -> bool:
        return self._deadline.passed(self._sent)


@dataclass(slots=True)
class _Attempt:
    """How far a batch has come through transports of which one writes through the session."""

    left: Sequence[Item]
    """Those that no transport has refused."""
    took: set[Carrier]
    """Transports outside the session that have all of these."""
    at: Carrier
    """The transport that was called last."""


class _Undo(Exception):
    """Leaves a savepoint so that what was written in it is undone."""
