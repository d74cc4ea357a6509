"""Which items of a batch must wait: those that follow an item which failed, or which could not be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item
from boxengine.engine.delivering.transports import Carrier, Routes

Route = tuple[Carrier, ...]
_BUCKET, _KEY = (itemgetter(Item._fields.index(name)) for name in ("bucket", "event_key"))


def line_of(strict: StrictOrder) -> Callable[[Item], Any]:
    """Gives an item's *line*: the items of one bucket or of one key, which go one after the other."""
    return _BUCKET if strict is StrictOrder.BUCKET else _KEY


class Ordering:
    """The order of one batch's items."""

    def __init__(self, strict: StrictOrder) -> None:
        self.line = line_of(strict)
        self.strict = strict is not StrictOrder.NONE
        """Whether an item waits for the answer about the one before it in its line."""
        self.blocked: set[Any] = set()
        """Lines in which an item failed or waits. Under strict order, nothing more of them is sent. Empty: no item need wait."""
        self.held: set[str] = set()
        """Keys of items that could not be sent and stay pending. Their followers must not overtake them in any order."""

    def block(self, items: Iterable[Item]) -> None:
        """These failed: under strict order their followers wait."""
        self.blocked.update(map(self.line, items))

    def hold(self, items: Sequence[Item]) -> None:
        """These stay pending: their followers wait whatever the order."""
        self.held.update(item.event_key for item in items)
        self.block(items)

    def hold_keys(self, keys: Iterable[str]) -> None:
        """Items of these keys stay pending elsewhere; order is not by bucket."""
        self.held.update(keys)
        self.blocked.update(self.held)

    def stops(self, item: Item) -> bool:
        """Whether the item follows one that failed or waits."""
        return (self.strict and self.line(item) in self.blocked) or item.event_key in self.held

    def free(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items that may go: those that follow no held item."""
        return [item for item in items if item.event_key not in self.held] if self.held else items

    def waves(self, items: Sequence[Item]) -> Iterable[Sequence[Item]]:
        """The items in waves that hold no line twice, each made when the answers about the one before are known."""
        if not self.strict:
            yield items
            return
        rest: Sequence[Item] = items
        while rest:
            wave: dict[Any, Item] = {}
            later = []
            for item in rest:
                line = self.line(item)
                if line in self.blocked:
                    continue
                if line in wave:
                    later.append(item)
                else:
                    wave[line] = item
            if not wave:
                return
            yield list(wave.values())
            rest = later

    def by_route(self, items: Sequence[Item], routes: Routes) -> Iterable[tuple[Route, Sequence[Item]]]:
        """Items grouped by their transports. The items of one line stay in id order, whatever their routes."""
        if routes.same_for(items):
            return [(routes.all, items)]
        groups: dict[tuple[int, Route], list[Item]] = {}
        last: dict[Any, tuple[int, Route]] = {}
        for item in items:
            route, line = routes.of(item), self.line(item)
            layer, previous = last.get(line, (0, route))
            place = last[line] = (layer if previous == route else layer + 1, route)
            groups.setdefault(place, []).append(item)
        return [(place[1], groups[place]) for place in sorted(groups, key=lambda place: place[0])]
