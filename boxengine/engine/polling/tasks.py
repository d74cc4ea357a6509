"""The tasks of poller threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from boxengine.domain.box import Box


class Kind(IntEnum):
    """What is to be done."""

    CHECK = 0
    LOOK = 1
    ANNOUNCE = 2


Key = tuple[Kind, str, int]
"""Which task it is: what to do, the box's name and the partition. A lookup by it runs no Python of ours."""


@dataclass(frozen=True, slots=True)
class _OfBox:
    box: Box = field(compare=False)
    """Tasks are compared by the box's name, because users' callables in a box may be neither hashable nor comparable."""
    box_name: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "box_name", self.box.name)


@dataclass(frozen=True, slots=True)
class Check(_OfBox):
    """Find out which partitions of a box have due rows."""

    @property
    def key(self) -> Key:
        return Kind.CHECK, self.box_name, 0


@dataclass(frozen=True, slots=True)
class Look(_OfBox):
    """Read the due rows of one partition, and queue their buckets."""

    partition: int
    prompted: bool = field(default=False, compare=False)
    """Whether rows are known to have been committed there."""

    @property
    def key(self) -> Key:
        return Kind.LOOK, self.box_name, self.partition


@dataclass(frozen=True, slots=True)
class Announce(_OfBox):
    """Queue buckets of one partition whose rows need not be read: their writers have named them."""

    partition: int
    buckets: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def key(self) -> Key:
        return Kind.ANNOUNCE, self.box_name, self.partition


Task = Check | Look | Announce
