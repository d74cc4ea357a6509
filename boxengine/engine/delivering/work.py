"""The door between a drain and what it does with its buckets.

A ``Drain`` knows which buckets it holds, how far it has read in each, and when to stop. What happens to the rows is the
work's business. ``Delivery`` hands them to transports; another work may run long jobs, or move a position in a log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.errors import Unavailable


class Term(Protocol):
    """For how long the buckets are held, as far as is known."""

    @property
    def valid_until(self) -> float:
        """Monotonic time after which nothing more may begin. It moves on while the leases are renewed."""


class Caution(Protocol):
    """What a batch is sent with, in view of how its buckets' last holder ended."""

    def rows(self, usual: int) -> int:
        """At how many rows the batch ends."""

    def condemned(self, items: Sequence[Item]) -> Sequence[Item]:
        """Asked before these items are sent: those that must not be, because they end the worker that sends them."""


class NoCaution:
    """Nothing speaks against the batch."""

    def rows(self, usual: int) -> int:
        """See ``Caution.rows``."""
        return usual

    def condemned(self, _items: Sequence[Item], /) -> Sequence[Item]:
        """See ``Caution.condemned``."""
        return ()


NO_CAUTION = NoCaution()


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One step of a drain: a batch of some of its buckets."""

    positions: Mapping[int, ItemId | None]
    """By bucket, the id after which to read; None means from the start."""
    rows: int
    """At most this many."""
    until: float
    """Monotonic time at which to stop between two items."""
    term: Term
    number: int = 0
    """How many batches of these buckets the drain has run before."""
    caution: Caution = NO_CAUTION
    """``Care`` gives another one where workers have died of a bucket."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of an errand, for the drain to decide how to go on."""

    claimed: int
    """Rows read."""
    positions: Mapping[int, ItemId | None] = field(default_factory=dict)
    """By bucket, where to read on."""
    refused: frozenset[int] = frozenset()
    """Buckets that somebody else has locked."""
    locked: frozenset[int] = frozenset()
    """The refused buckets that no worker holds: some other transaction has locked a row in them."""
    exhausted: frozenset[int] = frozenset()
    """Buckets in which nothing due is left."""
    next_due: Mapping[int, timedelta] = field(default_factory=dict)
    """By bucket, how long until the first of the items that have just failed is due again."""
    progressed: bool = True
    """False where rows were read and no outcome was recorded for any of them."""
    at_rest: bool = False
    """The same, and items were left out because the database refused their outcomes: nobody knows whether it takes them now."""
    weight: int = 0
    """Bytes of the payloads that were read."""
    sending: float = 0.0
    """Seconds that the transports took."""
    unreachable: Mapping[str, Unavailable] = field(default_factory=dict)
    """By transport, why its receiver could not be reached. Its items stay as they were."""
    reached: Collection[str] = ()
    """Transports that answered."""


class Work(Protocol):
    """What a drain does. One object serves all threads, so it keeps nothing about a single hold."""

    @property
    def box(self) -> Box:
        """Whose buckets it works on."""

    def run(self, errand: Errand) -> Report:
        """Works on one batch; whatever it does for a bucket is safe only under a lock that the store grants.

        Raises:
            StoreUnavailable: nothing is known to be recorded, so the rows count as pending.
        """
