"""What became of the items of one batch on their way through the transports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.engine.answers import KEPT_BACK, WITHHELD
from boxengine.engine.attempt import text_of
from boxengine.engine.delivering.calls.ordering import Route
from boxengine.errors import NoAnswerInTime, StoreConflict, Unavailable

MIDDLEWARE = "middleware"
"""Where an item fails that fails in a middleware."""


class Failed(NamedTuple):
    """One item that was not delivered: a failed attempt, unless ``Sent.judged`` finds that it was none."""

    item: Item
    problem: object
    """What was returned or raised."""
    where: str
    """The transport's name, or what it failed in before it was sent."""


@dataclass(frozen=True, slots=True)
class Sent:
    """How far a batch has come. Each step of sending takes one and returns the next.

    An item is delivered, failed or waiting; one in none of these was not reached.
    """

    delivered: Sequence[ItemId] = field(default_factory=list)
    failed: Sequence[Failed] = field(default_factory=list)
    waiting: Sequence[Item] = field(default_factory=list)
    """Items that stay pending although it was their turn. Their followers must not overtake them."""
    kept_back: Sequence[Item] = field(default_factory=list)
    """The waiting items whose middleware did not call ``call_next()``."""
    in_conflict: Sequence[tuple[ItemId, StoreConflict]] = ()
    """The waiting items whose handlers met another transaction in the database, each with what the database said."""
    unreachable: Mapping[str, Unavailable] = field(default_factory=dict)
    """By transport, why it is not called any more."""
    reached: frozenset[str] = frozenset()
    """Transports that answered."""
    through: frozenset[str] = frozenset()
    """Transports that took at least one item."""

    @property
    def begun(self) -> bool:
        """Whether the batch has an outcome to record."""
        return bool(self.delivered or self.failed)

    @property
    def raised(self) -> Mapping[ItemId, BaseException]:
        """What transports raised, by the item whose attempt failed by it."""
        return {
            item.id: problem
            for item, problem, where in self.failed
            if isinstance(problem, BaseException) and where != MIDDLEWARE
        }

    def out_of_reach(self, route: Route) -> bool:
        """Whether one of these transports is not called any more."""
        return bool(self.unreachable) and any(carrier.name in self.unreachable for carrier in route)

    # ── the next one ─────────────────────────────────────────────────────────────────────────────────

    def took(self, ids: Iterable[ItemId]) -> Sent:
        """All transports took these items."""
        return replace(self, delivered=[*self.delivered, *ids])

    def left(self, items: Iterable[Item]) -> Sent:
        """These cannot be sent now."""
        return replace(self, waiting=[*self.waiting, *items])

    def put_off(self, items: Iterable[Item], problem: Unavailable, where: str) -> Sent:
        """This transport's receiver cannot be reached: no attempt, and nothing more through it for now."""
        unreachable = {**self.unreachable, where: problem}
        reached = self.reached - unreachable.keys()
        return replace(self, waiting=[*self.waiting, *items], unreachable=unreachable, reached=reached)

    def judged(self, failures: Iterable[Failed]) -> Sent:
        """These were not delivered: failed attempts, except where the receiver cannot be reached or never got the item, or where
        another transaction was in the way of what its handler wrote.
        """
        failed, waiting, kept_back = [*self.failed], [*self.waiting], [*self.kept_back]
        in_conflict, unreachable = [*self.in_conflict], {**self.unreachable}
        for failure in failures:
            item, problem, where = failure
            if problem is KEPT_BACK:
                kept_back.append(item)
                waiting.append(item)
            elif problem is WITHHELD:
                waiting.append(item)
            elif isinstance(problem, StoreConflict):
                waiting.append(item)
                in_conflict.append((item.id, problem))
            elif isinstance(problem, Unavailable):
                waiting.append(item)
                unreachable[where] = problem
            else:
                failed.append(failure)
                if isinstance(problem, NoAnswerInTime):
                    # Another call would hang as well, or meet a transport that is in the middle of one.
                    unreachable[where] = Unavailable(text_of(problem))
        return replace(
            self,
            failed=failed,
            waiting=waiting,
            kept_back=kept_back,
            in_conflict=in_conflict,
            unreachable=unreachable,
            reached=self.reached - unreachable.keys(),
        )

    def answered(self, where: str, *, took: int) -> Sent:
        """A transport answered, and took this many items."""
        name = frozenset((where,))
        return replace(
            self,
            reached=self.reached | name - self.unreachable.keys(),
            through=self.through | name if took else self.through,
        )
