"""Questions of people about the log of a box with ``storage: log``, most of whose items stand nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId
from boxengine.ports.people.census import Count
from boxengine.ports.people.items import ItemRow


class BucketInLog(NamedTuple):
    """What one bucket has in the log that no delivery has passed yet."""

    bucket: int
    waiting: Count
    first: ItemId
    """The item with the lowest id, of those that were counted."""
    since: datetime
    """When the oldest of them was created."""


class LogItems(Protocol):
    """Answers about one box; about a box without a log, that there is nothing.

    Every method raises ``StoreUnavailable`` if the database does not answer in time.
    """

    def get(self, box: Box, item_id: ItemId) -> ItemRow | None:
        """One row with its payload, pending or ``PASSED``; None: there is no such row."""

    def waiting(self, box: Box, *, limit: int) -> Sequence[BucketInLog]:
        """The buckets in which items wait, the oldest wait first. Of each bucket at most ``limit`` items are counted."""

    def next(self, box: Box, bucket: int, *, limit: int) -> Sequence[ItemRow]:
        """Items of a bucket that come next, by id, without payloads."""

    def ahead(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        """Waiting items of the row's bucket with a smaller id, among at most ``limit`` that come next."""
