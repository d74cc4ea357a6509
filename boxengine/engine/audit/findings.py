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
    """It exists more than once."""
    STUCK = "stuck"
    """It has long been due, but was passed over."""
    ORPHANED = "orphaned"
    """Nobody handles it: a row in a bucket where it does not belong, or a message without a row."""
    MISSING = "missing"
    """It counts as delivered, but the topic does not have it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with one item."""

    kind: Kind
    item: int | None
    """Its id, if known."""
    key: str | None
    """Its event key; for a message without a row, the message's key."""
    detail: str


@dataclass(slots=True)
class Summary:
    """What an audit has read and found."""

    rows: int = 0
    messages: int = 0
    """This box's messages in its topics."""
    foreign: int = 0
    """Messages in the same topics that are not this box's."""
    findings: Counter[Kind] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    """What could not be checked, and why."""
