"""Transports that remember what reached them, and fail as they are told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from threading import Condition, Event
from typing import Any

from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from tests.integration.engine.watcher import PATIENCE

Answer = Callable[[Item], Any]


def accept(_item: Item) -> None:
    """Delivered."""


class Receiver:
    """Takes items one by one; ``answer`` decides what becomes of each."""

    def __init__(self, answer: Answer = accept) -> None:
        self.answer = answer
        self._changed = Condition()
        self.items: list[Item] = []
        self.payloads: list[Any] = []

    def __call__(self, item: Item, payload: Any) -> Any:
        self._note([item], [payload])
        return self.answer(item)

    def _note(self, items: Sequence[Item], payloads: Sequence[Any]) -> None:
        with self._changed:
            self.items += items
            self.payloads += payloads
            self._changed.notify_all()

    @property
    def ids(self) -> list[int]:
        """Of all items that came, in order of arrival."""
        return [item.id for item in self.items]

    @property
    def by_key(self) -> dict[str, list[int]]:
        """Ids in order of arrival, by event key."""
        found: dict[str, list[int]] = defaultdict(list)
        for item in list(self.items):
            found[item.event_key].append(item.id)
        return found

    def wait_for(self, count: int) -> None:
        """Returns once so many items have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.items) >= count, PATIENCE), f"only {len(self.items)} came"


class BatchReceiver(Receiver):
    """Takes whole batches too."""

    def __init__(self, answer: Answer = accept) -> None:
        super().__init__(answer)
        self.batches: list[list[int]] = []

    def call_batch(self, items: Sequence[Item]) -> list[Any]:
        self.batches.append([item.id for item in items])
        self._note(items, [item.payload for item in items])
        return [self.answer(item) for item in items]


class Gate(Receiver):
    """Lets nothing through until it is opened."""

    def __init__(self, answer: Answer = accept) -> None:
        super().__init__(answer)
        self.entered = Event()
        self._open = Event()

    def __call__(self, item: Item, payload: Any) -> Any:
        self.entered.set()
        assert self._open.wait(PATIENCE), "the gate was never opened"
        return super().__call__(item, payload)

    def open(self) -> None:
        self._open.set()


class FailsFirst:
    """An answer: the first ``times`` attempts at each item that ``guilty`` names fail, at all items if it names none."""

    def __init__(self, times: int, *, guilty: Callable[[Item], bool] = lambda _item: True) -> None:
        self._times = times
        self._guilty = guilty
        self._attempts: dict[int, int] = defaultdict(int)

    def __call__(self, item: Item) -> Failure | None:
        if not self._guilty(item):
            return None
        self._attempts[item.id] += 1
        return Failure("the receiver says no") if self._attempts[item.id] <= self._times else None
