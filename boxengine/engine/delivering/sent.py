"""What became of the items of one batch on their way through the transports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.engine.answers import WITHHELD
from boxengine.engine.delivering.ordering import Ordering, Route
from boxengine.errors import NoAnswerInTime, Unavailable

MIDDLEWARE = "middleware"
"""Where an item fails that fails in a middleware."""
NOBODY: Mapping[str, Unavailable] = {}


class Failed(NamedTuple):
    """One item's failed attempt."""

    item: Item
    problem: object
    """What was returned or raised."""
    where: str
    """The transport's name, or what it failed in before it was sent."""


class Sent:
    """Fills up while a batch is sent. Each item is delivered, failed, kept back, or stays as it was.

    An item whose receiver cannot be reached (``Unavailable``) stays as it was, and so do the followers of its key. The same
    goes for an item that a middleware did not hand on.
    """

    def __init__(self, ordering: Ordering, refused: Mapping[str, Unavailable] = NOBODY) -> None:
        """Args:
        ordering: told of items whose followers must wait.
        refused: transports that are not to be called now, and why.
        """
        self._ordering = ordering
        self.delivered: list[ItemId] = []
        self.failed: list[Failed] = []
        self.kept_back: list[Item] = []
        """Items whose middleware did not call on."""
        self.unreachable: dict[str, Unavailable] = dict(refused)
        """By transport, why it is not called any more."""
        self.reached: set[str] = set()
        """Transports that answered."""
        self.through: set[str] = set()
        """Transports that took at least one item."""

    @property
    def begun(self) -> bool:
        """Whether the batch has an outcome to record."""
        return bool(self.delivered or self.failed)

    def take(self, items: Sequence[Item]) -> None:
        """All transports took these."""
        self.delivered += [item.id for item in items]

    def fail(self, item: Item, problem: object, where: str) -> None:
        """The attempt failed; under strict order the item's followers wait."""
        self.failed.append(Failed(item, problem, where))
        self._ordering.block((item,))

    def judge(self, item: Item, problem: object, where: str) -> None:
        """A transport did not take the item: a failed attempt, unless its receiver cannot be reached or never got it."""
        if isinstance(problem, Unavailable):
            self.put_off((item,), problem, where)
            return
        if problem is WITHHELD:
            self._ordering.hold((item,))
            return
        self.fail(item, problem, where)
        if isinstance(problem, NoAnswerInTime):
            # Another call would hang as well, or meet a transport that is in the middle of one.
            self._give_up(where, Unavailable(str(problem)))

    def put_off(self, items: Sequence[Item], problem: Unavailable, where: str) -> None:
        """The receiver cannot be reached: no attempt, and nothing more through this transport for now."""
        self._give_up(where, problem)
        self._ordering.hold(items)

    def keep_back(self, item: Item) -> None:
        """A middleware did not call on."""
        self.kept_back.append(item)
        self._ordering.hold((item,))

    def answered(self, where: str, *, took: int) -> None:
        """A transport answered about some items and took so many of them."""
        self.reached.add(where)
        if took:
            self.through.add(where)

    def out_of_reach(self, route: Route) -> bool:
        """Whether one of these transports is not called any more."""
        return bool(self.unreachable) and any(carrier.name in self.unreachable for carrier in route)

    def _give_up(self, where: str, problem: Unavailable) -> None:
        self.unreachable[where] = problem
        self.reached.discard(where)
