"""What all stores in memory over the same rows share: the rows, the locks, and the faults to be injected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Literal, Protocol

from boxengine.adapters.memory.rows import Rows
from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId
from boxengine.ports import Clock

Step = Literal["ping", "poll", "claim", "waiting_keys", "later_delivered", "commit", "committed", "history"]
"""Where a fault can strike. ``committed`` comes after the write: raising there loses only the acknowledgement."""


def no_fault(step: Step) -> None:
    """Nothing goes wrong."""


class OpenClaim(Protocol):
    """A claim as the database sees it: a connection that it can cut."""

    last_used: float
    """When its last statement ran, by the monotonic clock."""

    def cut(self) -> None:
        """Breaks the connection, as the server does with one that sat idle in a transaction: all is undone and freed."""


@dataclass(slots=True)
class Database:
    """What all handles share. Every access holds ``lock``; nothing waits for anything else while holding it."""

    clock: Clock
    name: Callable[[int], ItemId]
    lock: RLock = field(default_factory=RLock)
    boxes: dict[str, Rows] = field(default_factory=dict)
    held_buckets: set[tuple[str, int]] = field(default_factory=set)
    locked_rows: set[tuple[str, ItemId]] = field(default_factory=set)
    effects: list[Any] = field(default_factory=list)
    refusals: dict[tuple[str, ItemId], bool] = field(default_factory=dict)
    """By box and id, rows that refuse their outcome; whether they also refuse to be made failed."""
    spoilt: dict[tuple[str, ItemId], str] = field(default_factory=dict)
    """By box and id, rows that cannot be read, and why."""
    max_batch_bytes: int = 64 * 1024 * 1024
    """Of the payloads of one claim; a larger item is claimed alone."""
    uncommitted: set[tuple[str, ItemId]] = field(default_factory=set)
    """By box, ids that writers have drawn and not committed yet."""
    open_claims: dict[int, OpenClaim] = field(default_factory=dict)
    """By identity, in the order in which they were opened."""

    def rows(self, box: Box) -> Rows:
        return self.boxes.setdefault(box.name, Rows(self.name))
