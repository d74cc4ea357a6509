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
    """The item's own: ids are used again after a TRUNCATE or a restore. None where sbmt-outbox wrote it."""


class FailureMemory(Protocol):
    """Remembers items' failures for when the database refused to store them (item meta of sbmt-outbox)."""

    def remember(self, box: Box, failures: Mapping[ItemId, RememberedFailure], *, ttl: timedelta) -> None:
        """Stores them by item id."""

    def recall(self, box: Box, ids: Sequence[ItemId]) -> Mapping[ItemId, RememberedFailure]:
        """Those that are remembered, by item id."""

    def forget(self, box: Box, ids: Sequence[ItemId]) -> None:
        """Drops them."""


class InHand(Protocol):
    """Which buckets whose worker died, and which single items of them, are being sent. Outlives the worker.

    May lose anything at any time: an item that ends its worker is then found out a few deaths later.
    """

    def put(self, box: Box, item: str) -> int:
        """Notes that this worker is about to send the item, or the first batch of the bucket that goes by this name.

        Returns how many other workers have noted it before, one after the other, and never taken it out.
        """

    def take_out(self, box: Box, item: str) -> None:
        """The item's sending has ended, however it did."""
