"""What is known of failing items outside the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId


@dataclass(frozen=True, slots=True)
class RememberedFailure:
    """An item's failures as remembered outside the database."""

    errors_count: int
    error_msg: str
    uuid: str | None = None
    """The item's uuid, because ids are reused after a TRUNCATE or a restore. None if sbmt-outbox wrote the entry."""


class FailureMemory(Protocol):
    """Remembers items' failures for when the database refused to store them (item meta of sbmt-outbox)."""

    def remember(self, box: Box, failures: Mapping[ItemId, RememberedFailure], *, ttl: timedelta) -> None:
        """Stores them by item id."""

    def recall(self, box: Box, ids: Sequence[ItemId]) -> Mapping[ItemId, RememberedFailure]:
        """The remembered failures, by item id."""

    def forget(self, box: Box, ids: Sequence[ItemId]) -> None:
        """Drops them."""


class InHand(Protocol):
    """Which buckets of dead workers, and which single items of such buckets, are being sent. Outlives the worker.

    May lose anything at any time; then it takes a few more deaths to find the item that kills its worker.
    """

    def put(self, box: Box, item: str) -> int:
        """Notes that this worker is about to send the item, or the first batch of the bucket that goes by this name.

        Returns how many other workers noted it before, one after the other, and never took it out.
        """

    def take_out(self, box: Box, item: str) -> None:
        """The sending has ended, whatever the result."""
