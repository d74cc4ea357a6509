"""What an audit can find."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What is wrong with an item; ``docs/audit.md`` defines each."""

    INVERSION = "inversion"
    """It was overtaken: a later item of its key was delivered first."""
    GAP = "gap"
    """The numbers of its key (``seq``) do not lead up to it one by one."""
    DUPLICATE = "duplicate"
    """It is there twice."""
    STUCK = "stuck"
    """It has long been due, and was passed over."""
    ORPHANED = "orphaned"
    """Nobody looks after it: a row outside the buckets of its box, a message without a row."""
    MISSING = "missing"
    """It counts as delivered, and the topic does not have it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with one item."""

    kind: Kind
    item: int | None
    """Its id, where it is known."""
    key: str | None
    """Its event key; of a message without a row the message's key."""
    detail: str


@dataclass(slots=True)
class Summary:
    """What an audit looked at."""

    rows: int = 0
    messages: int = 0
    """Of this box, in its topics."""
    foreign: int = 0
    """Messages of others in the same topics."""
    findings: Counter[Kind] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    """What could not be judged, and why."""
