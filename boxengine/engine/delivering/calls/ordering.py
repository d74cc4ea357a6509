"""Which items of a batch must wait: those that follow an item which failed, or which could not be sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item
from boxengine.engine.delivering.calls.transports import Carrier, Routes

Route = tuple[Carrier, ...]


class Ordering:
    """The order of one batch's items. A *line* is the items of one bucket or of one key, which go one after the other."""

    def __init__(self, strict: StrictOrder) -> None:
        self._by_bucket = strict is StrictOrder.BUCKET
        self.strict = strict is not StrictOrder.NONE
        """Whether an item waits for the answer about the one before it in its line."""
        self.blocked: set[Any] = set()
        """Lines in which an item failed or waits. Under strict order, nothing more of them is sent. Empty: no item need wait."""
        self.held: set[str] = set()
        """Keys of items that could not be sent and stay pending. Their followers must not overtake them in any order."""

    def line(self, item: Item) -> Any:
        """The item's line: its bucket or its key."""
        return item.bucket if self._by_bucket else item.event_key

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
