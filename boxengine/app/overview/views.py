"""What a look has found: the view of each box, and of all together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from boxengine.app.overview.facts import Problem
from boxengine.app.overview.job_boxes import JobBoxView
from boxengine.app.overview.problems import silent
from boxengine.domain.box import Box
from boxengine.ports import Counts, OpenCircuit, WorkerInfo
from boxengine.ports.people.history import Happened


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxView:
    """The state of one box; None: unknown."""

    box: Box
    counts: Counts | None
    counted_at: datetime | None
    """When the figures from the database were taken, if that was some seconds before the look; otherwise None."""
    waits_since: datetime | None
    """Since when the oldest pending item has waited, by the database's clock; None also if nothing waits."""
    waited: timedelta | None
    """How long that is; None also if nothing waits."""
    queue_length: int | None
    queue_since: datetime | None
    paused: bool | None
    decided: bool | None
    """Whether a person paused or resumed it; otherwise the configuration decides."""
    workers: tuple[WorkerInfo, ...] | None
    circuits: tuple[tuple[WorkerInfo, OpenCircuit], ...]
    lately: Happened | None
    """What happened in this minute and the previous one, as far as workers have reported it."""
    lately_lasts: timedelta
    """How long ``lately`` spans."""
    held_back: timedelta | None
    """The age of the oldest item that retention keeps for this subscription; None: it keeps none."""
    broken: str | None
    """Why the table is unusable; None: it is usable."""
    unread: str | None
    """Why some of these numbers are unknown although the database answers."""
    stranded: str | None
    """A message about pending rows in buckets that the box does not have; None: there are none."""
    problems: tuple[Problem, ...]
    """The worst first."""

    @property
    def rate(self) -> float | None:
        """Deliveries per second."""
        return None if self.lately is None else self.lately.delivered / self.lately_lasts.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The result of one look."""

    taken_at: datetime
    boxes: tuple[BoxView, ...]
    workers: tuple[WorkerInfo, ...] | None
    outages: tuple[str, ...]
    """Servers that do not answer."""
    refusals: tuple[str, ...]
    """Servers that answer, and take no writes."""
    hints: tuple[str, ...]
    """What to change so that a look can show more, and messages about stranded rows."""
    problems: tuple[Problem, ...]
    """The problems of all boxes and of what they share, the worst first."""
    jobs: tuple[JobBoxView, ...] = ()
    """The boxes of long jobs."""

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Why something in this look is unknown, or nothing is delivered: servers that do not answer or take no writes, and boxes
        whose tables are unusable or slow."""
        return (
            *self.outages,
            *(
                f"{each}; nothing is delivered until it takes them: boxengine doctor says more"
                for each in self.refusals
            ),
            *(_told_of_table(view.box, view.broken) for view in self.boxes if view.broken is not None),
            *(_told_of_table(view.box, view.unread) for view in self.boxes if view.unread is not None),
        )

    def with_silence(self, awaited: timedelta) -> Overview:
        """The same look, of which nobody knows whether it still holds, because the database does not answer the next one."""
        found = silent(awaited, self.taken_at)
        return replace(self, problems=(found, *self.problems), outages=(*self.outages, found.sentence))

    def wrong_with(self, view: BoxView | JobBoxView) -> tuple[Problem, ...]:
        """What is wrong with a box: first with the servers that it needs, then with the box itself."""
        needed = ("database",) if isinstance(view, JobBoxView) else ("database", "redis")
        servers = (each for each in self.problems if each.box is None and each.kind in needed)
        return (*servers, *view.problems)

    def box(self, name: str) -> BoxView:
        """The view of this box."""
        return next(view for view in self.boxes if view.box.name == name)

    def job_box(self, name: str) -> JobBoxView:
        """The view of this box of long jobs."""
        return next(view for view in self.jobs if view.box.name == name)


def _told_of_table(box: Box, broken: str) -> str:
    """What is wrong with the table, in words that name the box."""
    return broken if box.name in broken else f"box {box.name}: {broken}"
