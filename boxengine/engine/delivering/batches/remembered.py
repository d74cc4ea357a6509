"""Failures that the database refused to store: kept elsewhere, and counted when the item comes again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import Settlement
from boxengine.errors import Unavailable
from boxengine.ports import FailureMemory, Observer, RememberedFailure, events


class Remembered:
    """The remembered failures of one box. The memory is no promise: if it does not answer, the box goes on without it."""

    def __init__(self, box: Box, memory: FailureMemory, *, observer: Observer, ttl: timedelta) -> None:
        """Args:
        ttl: how long a failure is remembered.
        """
        self._box = box
        self._memory = memory
        self._observer = observer
        self._ttl = ttl

    def of(self, items: Sequence[Item]) -> Mapping[ItemId, RememberedFailure]:
        """What is remembered of these items, by id."""
        try:
            return self._memory.recall(self._box, [item.id for item in items])
        except Unavailable:
            return {}

    def counted(self, item: Item, failure: RememberedFailure | None) -> Item:
        """The item with what is remembered of it. That alone never uses its retries up: anybody may have written it."""
        if failure is None or failure.uuid not in (None, item.uuid):
            return item
        count, most = failure.errors_count, self._box.max_retries
        if most is not None:
            count = min(count, most)
        return item._replace(errors_count=count) if count > item.errors_count else item

    def forget(
        self, recalled: Mapping[ItemId, RememberedFailure], items: Sequence[Item], settlement: Settlement
    ) -> None:
        """Drops what was recalled and is recorded now, and what was recalled of other rows."""
        settled, known = set(settlement.ids), {item.id: item for item in items}
        spent = [
            id_
            for id_, failure in recalled.items()
            if id_ in settled or self.counted(known[id_], failure) is known[id_]
        ]
        with suppress(Unavailable):  # it is compared with the row again, and its time is limited
            self._memory.forget(self._box, spent)

    def keep(self, items: Sequence[Item], settlement: Settlement) -> None:
        """Remembers the failures of a settlement that the database would not take, so that they count all the same."""
        uuids = {item.id: item.uuid for item in items}
        failures = {f.id: RememberedFailure(f.errors_count, f.error_log[:200], uuids[f.id]) for f in settlement.failed}
        if failures:
            try:
                self._memory.remember(self._box, failures, ttl=self._ttl)
            except Unavailable:
                self._observer.see(
                    events.FetchFailed(self._box, "a failure could be stored neither in the database nor in Redis")
                )
