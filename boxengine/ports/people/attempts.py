"""Failed attempts of items, for people who want to know whether all failed for the same reason."""

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
    """One failed attempt of an item."""

    item_id: ItemId
    uuid: str
    """The item's uuid, because ids are reused after a TRUNCATE or a restore."""
    at: datetime
    number: int
    """How many of its attempts have failed, this one included; a retry by hand restarts the count."""
    reason: str
    """Which transport, and what it said; one line."""


class Attempts(Protocol):
    """Failed attempts of the last day, for those items of a box that failed most recently. Nothing depends on it.

    Raises ``QueueUnavailable`` if the server does not answer.
    """

    def add(self, failed: Mapping[str, Sequence[Attempt]]) -> None:
        """Keeps failed attempts, given by box name in the order in which they failed."""

    def of(self, box: str, item_id: ItemId, uuid: str) -> list[Attempt]:
        """The kept attempts of one item, the oldest first."""
