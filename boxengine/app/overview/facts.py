"""What a look knows of one box, and the form in which it tells what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.ports import Count, Counts, ItemRow, OpenCircuit, WorkerInfo
from boxengine.ports.people.history import Happened

LONG = timedelta(minutes=1)
"""A longer wait is reported even if nothing else is wrong."""


class Severity(IntEnum):
    """How bad it is; the smaller, the worse."""

    STOPPED = 0
    """Nothing is delivered."""
    STUCK = 1
    """Some items wait for a person, or for a cause that does not go away by itself."""
    SLOW = 2
    """Delivery continues, but worse than it should."""
    QUIET = 3
    """A person chose this state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong."""

    severity: Severity
    sentence: str
    advice: str
    """What to do."""
    box: str | None = None
    item: int | None = None
    """The item to look at."""
    statuses: tuple[Status, ...] = ()
    """Which items of the box to look at."""
    job_status: str | None = None
    """Which jobs of the box to look at."""
    kind: str
    """One word, under which ``docs/on-call.md`` explains the problem."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """An item whose attempts failed, and how many wait for it; None: not counted."""

    row: ItemRow
    followers: Count | None
    leads: bool = False
    """Whether it is the first of its key or bucket, so that others may wait for it."""
    due_at: datetime | None = None
    """When it is tried again; None: it is not, or could be at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known about one box."""

    box: Box
    now: datetime
    counts: Counts | None
    waits_since: datetime | None
    paused: bool | None
    workers: Sequence[WorkerInfo] | None
    circuits: Sequence[OpenCircuit]
    stuck: Sequence[Stuck]
    more_leading: bool = False
    """Whether there are more leading items than those with counted followers."""
    stranded: str | None
    held_back: timedelta | None
    """The age of the oldest item that retention keeps for this subscription; None: it keeps none."""
    broken: str | None
    lately: Happened | None = None
    """What happened in the last minute or two; None: unknown."""
    unread: str | None = None
    """Why some of the box's numbers are unknown although the database answers."""

    @property
    def waiting(self) -> Count | None:
        """The pending items; None: not counted, or there are none."""
        pending = self.counts.pending if self.counts else None
        return pending if pending is not None and pending.number else None
