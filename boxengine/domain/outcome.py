"""The outcomes of a batch's items, gathered so that as few statements as possible write them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import ClassVar

from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId


class Verdict(Enum):
    """What a retry strategy answers for an item that was tried before: try it now, skip it for now, or give it up."""

    PROCESS = "process"
    SKIP = "skip"
    DISCARD = "discard"


PROCESS, SKIP, DISCARD = Verdict.PROCESS, Verdict.SKIP, Verdict.DISCARD


@dataclass(frozen=True, slots=True)
class Failure:
    """What a transport returns if the attempt failed: ``Failure("why")``. The reason goes into the item's ``error_log``."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One item whose attempt failed, as its row will be written."""

    id: ItemId
    status: Status
    """PENDING while retries are left, otherwise FAILED."""
    errors_count: int
    error_log: str


class DiscardCause(StrEnum):
    """Why an item was discarded; a label of the metric."""

    OVERTAKEN = "overtaken"
    """A later item of its key was already delivered."""
    STRATEGY = "strategy"
    """A retry strategy decided so for its own reason."""
    BY_HAND = "by_hand"
    """A person gave it up."""


@dataclass(frozen=True, slots=True)
class Discard:
    """One item that a retry strategy gave up."""

    id: ItemId
    cause: DiscardCause
    errors_count: int
    """Unchanged: a discard is not an attempt."""
    error_log: str
    """The reason. The row keeps the log of its last failed attempt below it."""
    status: ClassVar[Status] = Status.DISCARDED


@dataclass(slots=True)
class Settlement:
    """The outcomes of one batch. Items in none of the lists keep their rows untouched, and so do those in ``aside``."""

    delivered: list[ItemId] = field(default_factory=list)
    discarded: list[Discard] = field(default_factory=list)
    failed: list[FailedAttempt] = field(default_factory=list)
    aside: list[ItemId] = field(default_factory=list)
    """Items that stay pending, and must not stand before those behind them. They have no outcome, so they do not count."""

    @property
    def not_delivered(self) -> Sequence[FailedAttempt | Discard]:
        """The outcomes of the items that were not delivered."""
        return (*self.failed, *self.discarded)

    def __bool__(self) -> bool:
        return bool(self.delivered or self.discarded or self.failed)

    def __len__(self) -> int:
        return len(self.delivered) + len(self.discarded) + len(self.failed)

    def only(self, ids: Collection[ItemId]) -> Settlement:
        """The outcomes of these items."""
        return Settlement(
            [each for each in self.delivered if each in ids],
            [discard for discard in self.discarded if discard.id in ids],
            [attempt for attempt in self.failed if attempt.id in ids],
            [each for each in self.aside if each in ids],
        )

    @property
    def ids(self) -> list[ItemId]:
        """The ids of all items in it."""
        return [*self.delivered, *(each.id for each in self.not_delivered)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrecorded:
    """The part of a settlement that a store could not write: outcomes that the table refuses, row by row."""

    failed: Mapping[ItemId, FailedAttempt]
    """By id, rows that were marked failed instead; the error log gives the reason."""
    left: Mapping[ItemId, str]
    """By id, rows that accept no outcome at all, with the reason. They are unchanged."""
    undone: bool = False
    """Whether the other outcomes were undone too, with everything the handlers wrote: those items will come again."""
