"""One batch on its way through the transports.

Whole batches go where a transport has ``call_batch`` and no item middleware asks to stand around each item; else items
go one by one, and between two of them the deadline is looked at. Under strict order an item waits for the answer about
the one before it: batches are cut into waves that hold no key twice.

Where a receiver cannot be reached (``Unavailable``), its items stay as they are, and so do the followers of their keys.
The same goes for an item that a middleware did not hand on.

Users' code runs here. Whatever it raises is a failed attempt, ``SystemExit`` and ``CancelledError`` too: no item may end
the thread that works on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Item
from boxengine.engine.answers import WITHHELD, failed, refusal
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.legs import Leg
from boxengine.engine.delivering.middleware import Passage
from boxengine.engine.delivering.pipeline import Middleware
from boxengine.engine.delivering.transports import Carrier, Routes, WrongResults
from boxengine.errors import NoAnswerInTime, Unavailable
from boxengine.ports import Claim, Observer, Result, Tracer

NOBODY: Mapping[str, Unavailable] = {}
NARROWING_SPLITS = 12
"""How often a batch for which its transport raised may be halved to find the guilty items: enough for one in 4,096."""
_NOT_CALLED_ON = object()
"""In place of a result: a middleware did not call on."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told of each call of a transport."""

    box: Box
    observer: Observer
    tracer: Tracer
    monotonic: Callable[[], float]


class Sending:
    """Sends one claim's items and remembers what became of each."""

    def __init__(
        self,
        claim: Claim,
        routes: Routes,
        *,
        middlewares: Sequence[Middleware],
        strict_order: StrictOrder,
        expired: Callable[[bool], bool],
        watch: Watch,
        refused: Mapping[str, Unavailable] = NOBODY,
    ) -> None:
        """Args:
        expired: given whether any item has been sent, whether sending must stop now; the rest then stays pending.
        refused: transports that are not to be called now, and why; their items stay pending.
        """
        self._claim = claim
        self._routes = routes
        self._expired = expired
        self._watch = watch
        self._strict = strict_order
        self._middlewares = middlewares
        self._in_session = routes.in_session
        self._blocked: set[Any] = set()
        self._held: set[str] = set()
        """Event keys of items that could not be sent and stay pending: their followers must not overtake them."""
        self._narrowing_left = NARROWING_SPLITS
        self._stopped = False
        self._failed_at = ""
        self._legs: dict[tuple[Carrier, ...], tuple[Leg, ...]] = {}
        """The ways of items sent one by one, by their transports."""
        self.delivered: list[int] = []
        self.failed: list[tuple[Item, object, str]] = []
        """Item, what was returned or raised, and the transport's name."""
        self.unreachable: dict[str, Unavailable] = dict(refused)
        """By transport, what was said by those whose receivers could not be reached."""
        self.reached: set[str] = set()
        """Transports that answered."""
        self.through: set[str] = set()
        """Transports that took at least one item."""
        self.kept_back: list[Item] = []
        """Items whose middleware did not call on."""

    def hold_back(self, items: Iterable[Item]) -> None:
        """These failed before they could be sent: under strict order their followers wait."""
        self._blocked.update(map(self._order_key, items))

    def send(self, items: Sequence[Item]) -> None:
        """Sends all items, as far as the deadline and the order allow."""
        for carriers, group in self._by_route(items):
            if not carriers:
                for item in group:
                    self._fail(item, _nobody(item), "transports")
            elif not self._middlewares and all(carrier.has_batch for carrier in carriers):
                for wave in self._waves(group):
                    self._send_whole(carriers, wave)
            else:
                self._send_one_by_one(group)
        for leg in {leg for legs in self._legs.values() for leg in legs if leg.calls}:
            self._watch.observer.transported(
                self._watch.box, leg.name, items=leg.calls, failed=leg.failures, seconds=leg.seconds, calls=leg.calls
            )
            if leg.failures < leg.calls:
                self.through.add(leg.name)
                if leg.name not in self.unreachable:
                    self.reached.add(leg.name)

    # ── whole batches ────────────────────────────────────────────────────────────────────────────────

    def _send_whole(self, carriers: tuple[Carrier, ...], items: Sequence[Item]) -> None:
        if self._must_stop():
            return
        if self.unreachable and any(carrier.name in self.unreachable for carrier in carriers):
            # Those before it would be given the same items again and again.
            self._hold(items)
            return
        if self._held:
            items = [item for item in items if item.event_key not in self._held]
        if any(carrier.wants_session for carrier in carriers):
            self._send_in_session(carriers, items)
            return
        for carrier in carriers:
            items = self._carry_batch(carrier, items)
        self.delivered += [item.id for item in items]

    def _carry_batch(self, carrier: Carrier, items: Sequence[Item]) -> Sequence[Item]:
        """Hands the items to one transport and returns those it took."""
        if not items:
            return ()
        if carrier.name in self.unreachable:
            self._hold(items)
            return ()
        try:
            return self._call_batch(carrier, items)
        except BaseException as error:
            if ends_the_worker(error):
                raise
            if isinstance(error, Unavailable):
                self._put_off(items, error, carrier.name)
                return ()
            return self._narrow(carrier, items, error)

    def _call_batch(self, carrier: Carrier, items: Sequence[Item]) -> Sequence[Item]:
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
            refused = len(items if bad is None else bad)
            given = len(items) - withheld
            watch.observer.transported(watch.box, carrier.name, items=given, failed=refused - withheld, seconds=seconds)
        self.reached.add(carrier.name)
        if len(bad) < len(items):
            self.through.add(carrier.name)
        if not bad:
            return items
        for place in bad:
            self._judge(items[place], refusal(results[place]), carrier.name)
        spoilt = set(bad)
        return [item for place, item in enumerate(items) if place not in spoilt]

    def _send_in_session(
        self, carriers: Sequence[Carrier], items: Sequence[Item], took: frozenset[Carrier] = frozenset()
    ) -> None:
        """One savepoint around all transports: what is written for an item must not stay unless all of them took it.

        Where some items were refused, everything is undone, and the transports that write through the session are called
        again for the others. Where a transport raised, the batch is halved.

        Args:
            took: transports outside the session that have these items already and must not get them twice.
        """
        while items:
            attempt = _Attempt(items, set(took), carriers[0])
            try:
                with self._claim.savepoint():
                    self._carry_on(attempt, carriers)
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
                self._halve_in_session(carriers, attempt, error)
                return
            else:
                self.delivered += [item.id for item in items]
                return

    def _carry_on(self, attempt: _Attempt, carriers: Sequence[Carrier]) -> None:
        for carrier in carriers:
            if attempt.left and carrier not in attempt.took:
                attempt.at = carrier
                attempt.left = self._call_batch(carrier, attempt.left)
                if not carrier.wants_session:
                    attempt.took.add(carrier)

    def _halve_in_session(self, carriers: Sequence[Carrier], attempt: _Attempt, error: BaseException) -> None:
        if isinstance(error, Unavailable):
            self._put_off(attempt.left, error, attempt.at.name)
            return
        for half in self._halves(attempt.at, attempt.left, error):
            if self._must_stop() and not attempt.took:
                return
            if any(carrier.name in self.unreachable and carrier not in attempt.took for carrier in carriers):
                self._hold(half)
            else:
                self._send_in_session(carriers, half, frozenset(attempt.took))

    def _narrow(self, carrier: Carrier, items: Sequence[Item], error: BaseException) -> Sequence[Item]:
        """Halves a batch that raised, so that one poison item does not take the others with it."""
        taken: list[Item] = []
        for number, half in enumerate(self._halves(carrier, items, error)):
            if number and self._must_stop():
                break
            taken += self._carry_batch(carrier, half)
        return taken

    def _halves(self, carrier: Carrier, items: Sequence[Item], error: BaseException) -> Sequence[Sequence[Item]]:
        """The items in two parts to be tried by themselves; none, and all have failed, where that would tell nothing."""
        if len(items) == 1 or self._narrowing_left <= 0 or isinstance(error, WrongResults | NoAnswerInTime):
            for item in items:
                self._judge(item, error, carrier.name)
            return ()
        if self._must_stop():
            return ()
        self._narrowing_left -= 1
        middle = len(items) // 2
        return items[:middle], items[middle:]

    def _must_stop(self) -> bool:
        """Whether the deadline has passed; once it has, nothing more is sent, or a later item could overtake."""
        self._stopped = self._stopped or self._expired(bool(self.delivered or self.failed))
        return self._stopped

    # ── one by one ───────────────────────────────────────────────────────────────────────────────────

    def _send_one_by_one(self, items: Sequence[Item]) -> None:
        # A local, not an attribute: on self it would form a cycle and keep the batch alive until the collector comes.
        one = self._through_middlewares if self._middlewares else self._carry_through
        if self._in_session:
            one = partial(self._one_in_savepoint, one)
        must_stop, delivered = self._must_stop, self.delivered
        ordered = self._strict is not StrictOrder.NONE
        for item in items:
            if must_stop():
                return
            if ordered and self._order_key(item) in self._blocked:
                continue
            if (self.unreachable or self._held) and self._must_wait(item):
                continue
            self._failed_at = "middleware"
            try:
                result = one(item)
            except BaseException as error:
                if ends_the_worker(error):
                    raise
                self._judge(item, error, self._failed_at)
                continue
            if result is True:
                delivered.append(item.id)
            elif result is _NOT_CALLED_ON:
                self.kept_back.append(item)
                self._hold([item])
            else:
                self._judge(item, refusal(result), self._failed_at)

    def _one_in_savepoint(self, one: Callable[[Item], Result], item: Item) -> Result:
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
        passage = Passage(self._middlewares, self._carry_through, item)
        passage.run()
        if isinstance(passage.problem, BaseException):
            raise passage.problem
        if passage.problem is not None:
            return passage.problem
        return True if passage.arrived else _NOT_CALLED_ON

    def _carry_through(self, item: Item) -> Result:
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
        self._failed_at = "middleware"
        return True

    def _legs_of(self, item: Item) -> tuple[Leg, ...]:
        carriers = self._routes.of(item)
        legs = self._legs.get(carriers)
        if legs is None:
            known = {leg.carrier: leg for each in self._legs.values() for leg in each}
            legs = tuple(known.get(carrier) or Leg(carrier, self._claim) for carrier in carriers)
            self._legs[carriers] = legs
        return legs

    # ── order and routes ─────────────────────────────────────────────────────────────────────────────

    def _by_route(self, items: Sequence[Item]) -> Iterable[tuple[tuple[Carrier, ...], Sequence[Item]]]:
        """Items grouped by their transports; of one key (under strict order by bucket: of one bucket) in id order."""
        if self._routes.same_for(items):
            return [(self._routes.carriers, items)]
        groups: dict[tuple[int, tuple[Carrier, ...]], list[Item]] = {}
        last: dict[Any, tuple[int, tuple[Carrier, ...]]] = {}
        for item in items:
            route = self._routes.of(item)
            layer, previous = last.get(self._order_key(item), (0, route))
            place = (layer if previous == route else layer + 1, route)
            last[self._order_key(item)] = place
            groups.setdefault(place, []).append(item)
        return [(place[1], groups[place]) for place in sorted(groups, key=lambda place: place[0])]

    def _waves(self, items: Sequence[Item]) -> Iterable[Sequence[Item]]:
        """The items in waves without a key twice, each made when the answers about the one before are known."""
        if self._strict is StrictOrder.NONE:
            yield items
            return
        rest = list(items)
        while rest:
            wave: dict[Any, Item] = {}
            later = []
            for item in rest:
                key = self._order_key(item)
                if key in self._blocked:
                    continue
                if key in wave:
                    later.append(item)
                else:
                    wave[key] = item
            if not wave:
                return
            yield list(wave.values())
            rest = later

    def _order_key(self, item: Item) -> Any:
        return item.bucket if self._strict is StrictOrder.BUCKET else item.event_key

    # ── what was not delivered ───────────────────────────────────────────────────────────────────────

    def _judge(self, item: Item, problem: object, where: str) -> None:
        if isinstance(problem, Unavailable):
            self._put_off([item], problem, where)
            return
        if problem is WITHHELD:
            self._hold([item])
            return
        self._fail(item, problem, where)
        if isinstance(problem, NoAnswerInTime):
            # Another call would hang as well, or meet a transport that is in the middle of one.
            self.unreachable[where] = Unavailable(str(problem))
            self.reached.discard(where)

    def _put_off(self, items: Sequence[Item], problem: Unavailable, where: str) -> None:
        """The receiver cannot be reached: no attempt, and nothing more through this transport for now."""
        self.unreachable[where] = problem
        self.reached.discard(where)
        self._hold(items)

    def _hold(self, items: Sequence[Item]) -> None:
        self._held.update(item.event_key for item in items)
        self._blocked.update(map(self._order_key, items))

    def _must_wait(self, item: Item) -> bool:
        if any(carrier.name in self.unreachable for carrier in self._routes.of(item)):
            self._hold([item])
        return item.event_key in self._held

    def _fail(self, item: Item, problem: object, where: str) -> None:
        self.failed.append((item, problem, where))
        self._blocked.add(self._order_key(item))


def _nobody(item: Item) -> str:
    """Why no transport is for the item."""
    if item.only_to is not None:
        return f"no transport named {item.only_to!r}, to which it was replayed"
    return f"no transport for event name {item.event_name!r}"


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
