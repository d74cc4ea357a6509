"""Retry, discard and delete many items: in batches, and once more for those that were in work at the first try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.engine.id_batches import id_batches, passed_over
from boxengine.engine.observation import NullObserver
from boxengine.errors import BoxError, QueueUnavailable
from boxengine.ports import FailureMemory, ItemFilter, ItemsStore, Observer, events

BATCH = 1000
"""Items per transaction."""


class Action(StrEnum):
    """What is done to items."""

    RETRY = "retry"
    RESTART = "retry --force"
    """A retry that no retry strategy may refuse."""
    DISCARD = "discard"
    DELETE = "delete"


_RETRIED = frozenset({Status.PENDING, Status.FAILED, Status.DISCARDED})
SUITABLE = {
    Action.RETRY: _RETRIED,
    Action.RESTART: _RETRIED,
    Action.DISCARD: frozenset({Status.PENDING, Status.FAILED}),
    Action.DELETE: frozenset(Status),
}
"""The statuses that an action can be for. Of pending items a retry takes those that failed before and wait."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of an action."""

    changed: int
    left: int
    """Items left alone: in work, or changed by somebody else meanwhile."""


class ItemActions:
    """Acts on the items of boxes."""

    def __init__(self, store: ItemsStore, memory: FailureMemory, *, observer: Observer | None = None) -> None:
        """``observer``: told of items that are given up."""
        self._observer = observer or NullObserver()
        self._store = store
        self._memory = memory

    def count(self, box: Box, action: Action, which: ItemFilter) -> int:
        """How many items the action would take."""
        return sum(self._store.count(box, part) for part in _parts(narrowed(action, which)))

    def passed_over(self, box: Box, action: Action, which: ItemFilter) -> Mapping[ItemId, Status | None]:
        """Of the ids that the filter names, those that the action does not take, with their status; None: no such item."""
        return passed_over(self._store, box, which, _parts(narrowed(action, which)))

    def run(
        self,
        box: Box,
        action: Action,
        which: ItemFilter,
        *,
        limit: int | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Tally:
        """Does it, for the items that are there at the beginning.

        Args:
            limit: to how many items, in id order; None: to all.
            progress: told after each batch how many items it held.

        Raises:
            StoreUnavailable: the batches before are done; doing it again does the rest.
        """
        which, last_id = narrowed(action, which), self._store.last_id(box)
        if last_id is None:
            return Tally(0, 0)
        # What comes while this runs would otherwise keep it running.
        which = replace(which, up_to=last_id)
        changed, left = 0, list[ItemId]()
        for ids in id_batches(self._store, box, _parts(which), size=BATCH, limit=limit):
            done = self._act(box, action, which, ids)
            changed += len(done)
            left += [item_id for item_id in ids if item_id not in done]
            progress(len(ids))
        remaining = 0
        for start in range(0, len(left), BATCH):
            ids = left[start : start + BATCH]
            done = self._act(box, action, which, ids)
            changed += len(done)
            remaining += len(ids) - len(done)
        return Tally(changed, remaining)

    def _act(self, box: Box, action: Action, which: ItemFilter, ids: list[ItemId]) -> frozenset[ItemId]:
        which = replace(which, ids=())  # these ids are all that is meant
        match action:
            case Action.RETRY:
                self._forget(box, ids)
                return self._store.retry(box, which, ids)
            case Action.RESTART:
                self._forget(box, ids)
                return self._store.restart(box, which, ids)
            case Action.DISCARD:
                done = self._store.discard(box, which, ids)
                if done:
                    self._observer.see(events.DiscardedByHand(box, done))
                return done
            case Action.DELETE:
                return self._store.delete(box, which, ids)
            case never:
                assert_never(never)

    def _forget(self, box: Box, ids: list[ItemId]) -> None:
        """Failures that are remembered outside the database would end the new attempt at once."""
        try:
            self._memory.forget(box, ids)
        except QueueUnavailable:
            return  # what is remembered runs out by itself; what counts is the row


def narrowed(action: Action, which: ItemFilter) -> ItemFilter:
    """The filter as the action understands it.

    Without a status failed items are meant, which wait for a person; where ids say which, those of any status that suits,
    though pending ones are deleted only where somebody names that status.

    Raises:
        BoxError: it names a status that the action is not for.
    """
    suitable = SUITABLE[action]
    statuses = frozenset(Status(each) for each in which.statuses)
    unsuitable = statuses - suitable
    if unsuitable:
        raise BoxError(f"{action} is not for {_names(unsuitable)} items: it takes {_names(suitable)} ones")
    if not statuses and which.ids:
        statuses = suitable - {Status.PENDING} if action is Action.DELETE else suitable
    elif not statuses:
        statuses = frozenset({Status.FAILED})
    return replace(which, statuses=statuses, tried=which.tried or action in (Action.RETRY, Action.RESTART))


def _names(statuses: frozenset[Status]) -> str:
    return ", ".join(status.name.lower() for status in sorted(statuses))


def _parts(which: ItemFilter) -> Iterator[ItemFilter]:
    """The filter in parts that name no more ids than a statement takes, in order."""
    if not which.ids:
        yield which
    ids = sorted(set(which.ids))
    for start in range(0, len(ids), BATCH):
        yield replace(which, ids=tuple(ids[start : start + BATCH]))
