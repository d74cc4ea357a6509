"""Retry, discard and delete many items: in batches, and once more for those that were in work at the first try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.errors import QueueUnavailable
from boxengine.ports import FailureMemory, ItemFilter, ItemsStore

BATCH = 1000
"""Items per transaction."""


class Action(StrEnum):
    """What is done to items."""

    RETRY = "retry"
    DISCARD = "discard"
    DELETE = "delete"


SUITABLE = {
    Action.RETRY: frozenset({Status.PENDING, Status.FAILED, Status.DISCARDED}),
    Action.DISCARD: frozenset({Status.PENDING, Status.FAILED}),
    Action.DELETE: frozenset({Status.FAILED, Status.DELIVERED, Status.DISCARDED}),
}
"""The statuses that an action is for. Of pending items a retry takes those that were tried before; they are deleted only
where somebody names the status."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of an action."""

    changed: int
    left: int
    """Items left alone: in work, or changed by somebody else meanwhile."""


class ItemActions:
    """Acts on the items of boxes."""

    def __init__(self, store: ItemsStore, memory: FailureMemory) -> None:
        self._store = store
        self._memory = memory

    def count(self, box: Box, action: Action, which: ItemFilter) -> int:
        """How many items the action would take."""
        return sum(self._store.count(box, part) for part in parts(action, which))

    def run(
        self, box: Box, action: Action, which: ItemFilter, *, progress: Callable[[int], None] = lambda _: None
    ) -> Tally:
        """Does it. ``progress`` is told after each batch how many items it held.

        Raises:
            StoreUnavailable: the batches before are done; doing it again does the rest.
        """
        changed, left = 0, list[int]()
        for part in parts(action, which):
            for ids in self._batches(box, part):
                done = self._act(box, action, part, ids)
                changed += len(done)
                left += [item_id for item_id in ids if item_id not in done]
                progress(len(ids))
        remaining = 0
        for start in range(0, len(left), BATCH):
            ids = left[start : start + BATCH]
            done = frozenset[int]()
            for part in parts(action, which):
                done |= self._act(box, action, part, ids)
            changed += len(done)
            remaining += len(ids) - len(done)
        return Tally(changed, remaining)

    def _batches(self, box: Box, which: ItemFilter) -> Iterator[list[int]]:
        after = 0
        while ids := self._store.ids(box, which, after=after, limit=BATCH):
            yield ids
            after = ids[-1]

    def _act(self, box: Box, action: Action, which: ItemFilter, ids: list[int]) -> frozenset[int]:
        match action:
            case Action.RETRY:
                self._forget(box, ids)
                return self._store.retry(box, which, ids)
            case Action.DISCARD:
                return self._store.discard(box, which, ids)
            case Action.DELETE:
                return self._store.delete(box, which, ids)
            case never:
                assert_never(never)

    def _forget(self, box: Box, ids: list[int]) -> None:
        """Failures that are remembered outside the database would end the new attempt at once."""
        try:
            self._memory.forget(box, ids)
        except QueueUnavailable:
            return  # what is remembered runs out by itself; what counts is the row


def parts(action: Action, which: ItemFilter) -> list[ItemFilter]:
    """The filter narrowed to what the action is for, in parts with one set of conditions each."""
    statuses = frozenset(Status(each) for each in which.statuses) or SUITABLE[action]
    if action is Action.RETRY and Status.PENDING in statuses:
        waiting = replace(which, statuses=frozenset({Status.PENDING}), tried=True)
        finished = statuses - {Status.PENDING}
        return [waiting, *([replace(which, statuses=finished)] if finished else [])]
    return [replace(which, statuses=statuses)]
