"""How many items a box has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from boxengine.domain.box import Box


class Precision(StrEnum):
    """How far a count can be trusted."""

    EXACT = "exact"
    AT_LEAST = "at_least"
    ABOUT = "about"
    """From the database's statistics."""


class Count(NamedTuple):
    """A number of rows."""

    number: int
    precision: Precision = Precision.EXACT


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many rows of each kind a box has; None if counting them would mean reading a large table."""

    pending: Count | None
    retrying: Count | None
    """The pending rows with failed attempts."""
    failed: Count | None
    delivered: Count | None
    discarded: Count | None


class Census(Protocol):
    """Counts the rows of boxes, for people. Never in the path of a delivery."""

    def take(self, box: Box) -> Counts:
        """Takes only a moment, even if the table is huge; the counts are as precise as that allows.

        Raises:
            StoreUnavailable: the database does not answer.
        """

    def take_exactly(self, box: Box) -> Counts:
        """Like ``take``, but counts every row, however long that takes."""
