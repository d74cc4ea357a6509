"""Failed attempts of items, for people who ask whether each failed the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from boxengine.domain.item_id import ItemId

KEPT_ATTEMPTS = 20
"""How many attempts of one item are kept: the latest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of an item that failed."""

    item_id: ItemId
    uuid: str
    """The item's own: ids are used again after a TRUNCATE or a restore."""
    at: datetime
    number: int
    """How many of its attempts had failed with this one; a retry by hand counts anew."""
    reason: str
    """Which transport, and what it said; one line."""


class Attempts(Protocol):
    """Failed attempts of the last day, of the items of a box that failed last. Nothing depends on it.

    Raises ``QueueUnavailable`` where the server does not answer.
    """

    def add(self, failed: Mapping[str, Sequence[Attempt]]) -> None:
        """Keeps failed attempts, given by box name in the order in which they failed."""

    def of(self, box: str, item_id: ItemId, uuid: str) -> list[Attempt]:
        """Those of one item, the oldest first."""
