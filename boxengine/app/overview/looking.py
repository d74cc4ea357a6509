"""One look at all boxes, each part separate: an outage of one server must not hide what the other knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

from boxengine.app.overview.facts import Facts, Problem, Stuck
from boxengine.app.overview.job_boxes import JobBoxView, with_workers
from boxengine.app.overview.problems import (
    NO_WORKER,
    alarm,
    nobody_works,
    problems,
    refusal,
    told_of_retention,
    trouble_of,
)
from boxengine.app.overview.sparing import Sparing
from boxengine.app.overview.stuck import BLOCKERS, stuck_items
from boxengine.app.overview.views import BoxView, Overview
from boxengine.app.overview.wait_once import WaitOnce
from boxengine.domain.box import Box, Storage
from boxengine.domain.holding_back import held_back
from boxengine.domain.jobs import JobBox
from boxengine.errors import BoxError, NotPermitted, StoreConflict, StoreTooSlow, TableMissing, Unavailable
from boxengine.ports import (
    Census,
    Clock,
    Counts,
    HistoryStore,
    JobQueue,
    Pauses,
    WorkerInfo,
    Workers,
)
from boxengine.ports.people.checkup import Remark
from boxengine.ports.people.history import Happened, History
from boxengine.ports.people.inspection import Inspector

T = TypeVar("T")
_JOBS, _SERVERS = "all job boxes", "all servers"
"""The names under which questions that concern more than one box are asked; no box has such a name."""
SHOWN_FROM = timedelta(seconds=5)
"""People are told the age of figures that are older than this."""
ALIKE = timedelta(seconds=2)
"""Clocks that differ by no more than this show the same time: to ask one takes a moment."""


class Rows(HistoryStore, Protocol):
    """What a look reads from the rows without an ``Inspector``."""

    def stranded(self, box: Box) -> str | None:
        """A message about pending rows in buckets that the box does not have; None if there are none."""


class Sources(Protocol):
    """What a look reads from."""

    @property
    def census(self) -> Census: ...
    @property
    def store(self) -> Rows: ...
    @property
    def queue(self) -> JobQueue: ...
    @property
    def pauses(self) -> Pauses: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def history(self) -> History: ...
    @property
    def clock(self) -> Clock: ...


class Lookout:
    """Looks at boxes."""

    def __init__(
        self,
        sources: Sources,
        boxes: Sequence[Box],
        *,
        auto_disabled: bool,
        inspector: Inspector | None = None,
        alarms: Callable[[], Sequence[Remark]] = tuple,
        tables: Callable[[], object] = tuple,
        jobs: Callable[[], tuple[tuple[JobBoxView, ...], tuple[str, ...]]] = lambda: ((), ()),
        job_workers: Callable[[], Sequence[WorkerInfo]] = tuple,
        exact: bool = False,
    ) -> None:
        """Args:
        inspector: finds what holds items back; without it the look leaves that out.
        alarms: the remarks about the servers that people should see.
        tables: finds out which tables somebody has altered since; what watches for months asks it now and then.
        jobs: looks at the boxes of long jobs; also returns the outages.
        job_workers: the living workers that run long jobs, also those that deliver items.
        exact: counts every row, however long that takes.
        """
        self._sources = sources
        self._boxes = boxes
        self._auto_disabled = auto_disabled
        self._inspector = inspector
        self._alarms = alarms
        self._tables = tables
        self._jobs = jobs
        self._job_workers = job_workers
        self._count = sources.census.take_exactly if exact else sources.census.take
        self._sparing = Sparing()
        self._ahead = timedelta(0)
        """By how much this machine's clock is ahead of the database's, which sets the times of rows."""

    def look(self) -> Overview:
        """Looks at all boxes now."""
        sources = self._sources
        asked = _Asked(sources.clock)
        asked.part(lambda: self._sparing.ask((_SERVERS, "tables"), lambda: asked.database.ask(self._tables)))
        # Long jobs need no Redis: without other boxes, its absence is no outage.
        workers = asked.redis(sources.workers.living) if self._boxes else []
        of_jobs = asked.part(
            lambda: self._sparing.ask((_JOBS, "workers"), lambda: asked.database.ask(self._job_workers))
        )
        pauses = asked.redis(lambda: sources.pauses.polling_enabled(self._boxes))
        now = sources.clock.now()
        names = [box.name for box in self._boxes]
        lately = (asked.redis(lambda: sources.history.lately(names, now=now)) if names else None) or {}
        views = tuple(self._view(box, asked, workers, pauses, lately.get(box.name)) for box in self._boxes)
        jobs, outages = self._sparing.ask((_JOBS, "counts"), self._jobs)
        unknown = workers is None or (of_jobs is None and not self._boxes)
        if self._boxes and workers is not None:
            # At every look: workers that cannot write to it soon look as if none ran.
            asked.writes(sources.queue.ping)
        counted_at = self._of_another_time(self._sparing.age((_JOBS, "counts")))
        jobs = tuple(
            replace(with_workers(view, _working_on(view.box, of_jobs)), counted_at=counted_at) for view in jobs
        )
        asked.outages += [outage for outage in outages if outage not in asked.outages]
        return Overview(
            taken_at=sources.clock.now(),
            boxes=views,
            workers=None if unknown else _each_once(workers or (), of_jobs or ()),
            outages=tuple(asked.outages),
            refusals=tuple(asked.refusals),
            hints=tuple(_hints(views)),
            problems=_all_problems(views, jobs, asked, self._sparing.ask((_SERVERS, "alarms"), self._alarms)),
            jobs=jobs,
        )

    @property
    def awaits(self) -> timedelta:
        """For how long a look under way has awaited one answer of the database; zero: it awaits none. Any thread may ask."""
        return self._sparing.awaits

    def forget(self, box: Box | JobBox) -> None:
        """Makes the next look ask anew about this box, because somebody has changed it."""
        self._sparing.forget(_JOBS if isinstance(box, JobBox) else box.name)

    def _view(
        self,
        box: Box,
        asked: _Asked,
        workers: list[WorkerInfo] | None,
        pauses: Mapping[str, bool] | None,
        lately: Happened | None,
    ) -> BoxView:
        sources = self._sources

        def ask(what: str, question: Callable[[Box], T]) -> T | None:
            return asked.of(
                box, lambda: self._sparing.ask((box.name, what), lambda: asked.database.ask(lambda: question(box)))
            )

        counts = ask("counts", self._count)
        known = counts is not None
        since = ask("since", sources.store.oldest_pending) if known else None
        queue = asked.redis(lambda: sources.queue.state(box))
        pushed_at = None if queue is None or queue.oldest_pushed_at is None else _since_epoch(queue.oldest_pushed_at)
        own = None if workers is None else tuple(worker for worker in workers if box.name in worker.boxes)
        circuits = tuple((worker, each) for worker in own or () for each in worker.circuits if each.box == box.name)
        stuck = ask("stuck", lambda box: self._stuck(box, counts)) or ()
        if (since is not None or stuck) and not asked.the_time:
            asked.the_time = True
            asked.of(
                box, lambda: self._sparing.ask((_SERVERS, "clock"), lambda: asked.database.ask(self._compare_clocks))
            )
        facts = Facts(
            box=box,
            now=sources.clock.now(),
            counts=counts,
            waits_since=self._as_shown_here(since),
            paused=None if pauses is None else not pauses.get(box.name, not self._auto_disabled),
            workers=own,
            circuits=tuple(circuit for _, circuit in circuits),
            stuck=tuple(replace(each, due_at=self._as_shown_here(each.due_at)) for each in stuck),
            more_leading=sum(each.leads for each in stuck) > BLOCKERS,
            stranded=ask("stranded", sources.store.stranded) if known else None,
            held_back=ask("held back", self._held_back) if known else None,
            broken=asked.broken.get(box.name),
            lately=lately,
            unread=asked.unread.get(box.name),
        )
        return BoxView(
            box=box,
            counts=counts,
            counted_at=self._counted_at(box) if known else None,
            waits_since=since,
            waited=None if facts.waits_since is None else max(timedelta(0), facts.now - facts.waits_since),
            queue_length=None if queue is None else queue.length,
            queue_since=pushed_at,
            paused=facts.paused,
            decided=None if pauses is None else box.name in pauses,
            workers=own,
            circuits=circuits,
            lately=lately,
            lately_lasts=timedelta(seconds=60 + facts.now.timestamp() % 60),
            held_back=facts.held_back,
            broken=facts.broken,
            unread=facts.unread,
            stranded=facts.stranded,
            problems=problems(facts),
        )

    def _counted_at(self, box: Box) -> datetime | None:
        return self._of_another_time(
            max(self._sparing.age((box.name, question)) for question in ("counts", "since", "stuck"))
        )

    def _of_another_time(self, age: timedelta) -> datetime | None:
        """The time of figures of this age, if people are told it."""
        return self._sources.clock.now() - age if age > SHOWN_FROM else None

    def _stuck(self, box: Box, counts: Counts | None) -> tuple[Stuck, ...]:
        return () if self._inspector is None or counts is None else stuck_items(self._inspector, box, counts)

    def _compare_clocks(self) -> None:
        ahead = self._sources.clock.now() - self._sources.store.now()
        if abs(ahead - self._ahead) > ALIKE:
            self._ahead = ahead

    def _as_shown_here(self, moment: datetime | None) -> datetime | None:
        """What this machine's clock showed, or will show, at a moment of the database's clock."""
        try:
            return None if moment is None else moment + self._ahead
        except OverflowError:  # so far away that no difference of clocks matters
            return moment

    def _held_back(self, box: Box) -> timedelta | None:
        since = None if box.subscription is None else self._sources.store.unread_since(box)
        return None if since is None else held_back(box, since, self._sources.store.now())


class _Asked:
    """Asks the questions of one look, and collects what went wrong."""

    def __init__(self, clock: Clock) -> None:
        self.database, self._redis = WaitOnce(clock), WaitOnce(clock)
        self.outages: list[str] = []
        self.refusals: list[str] = []
        """Of servers that answer, and take no writes."""
        self.broken: dict[str, str] = {}
        """What is wrong with the table, by box."""
        self.unread: dict[str, str] = {}
        """Why the table did not answer although the database does, by box."""
        self.the_time = False
        """Whether the database was asked what its clock shows."""

    def writes(self, ping: Callable[[], None]) -> None:
        """Redis has answered: what it lacks now is that it takes writes."""
        try:
            self._redis.ask(ping)
        except Unavailable as error:
            if str(error) not in self.outages:
                self.refusals.append(str(error))

    def redis(self, ask: Callable[[], T]) -> T | None:
        return self.part(lambda: self._redis.ask(ask))

    def part(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except Unavailable as error:
            self._away(error)
            return None

    def of(self, box: Box, ask: Callable[[], T]) -> T | None:
        if box.name in self.broken:
            return None
        try:
            return ask()
        except (StoreTooSlow, StoreConflict, NotPermitted) as error:
            self.unread.setdefault(box.name, str(error))
        except BoxError as error:
            if isinstance(error, Unavailable) and not isinstance(error, TableMissing):
                self._away(error)
            else:
                self.broken[box.name] = str(error)
        return None

    def _away(self, error: Unavailable) -> None:
        if str(error) not in self.outages:
            self.outages.append(str(error))


def _each_once(first: Sequence[WorkerInfo], second: Sequence[WorkerInfo]) -> tuple[WorkerInfo, ...]:
    """A worker that is in both is the one of the first."""
    known = {worker.id for worker in first}
    return (*first, *(worker for worker in second if worker.id not in known))


def _working_on(box: JobBox, workers: Sequence[WorkerInfo] | None) -> tuple[WorkerInfo, ...] | None:
    return None if workers is None else tuple(worker for worker in workers if box.name in worker.job_boxes)


def _hints(views: Sequence[BoxView]) -> Iterator[str]:
    for view in views:
        if view.counts is not None and _uncounted(view.counts):
            yield f"{view.box.name}: {_why_uncounted(view.box, view.counts)}"
        if view.stranded is not None:
            yield f"{view.box.name}: {view.stranded}"
        if view.held_back is not None:
            yield " ".join(told_of_retention(view.box, view.held_back))


def _all_problems(
    views: Sequence[BoxView], jobs: Sequence[JobBoxView], asked: _Asked, alarms: Sequence[Remark]
) -> tuple[Problem, ...]:
    """The problems of all boxes; if several boxes all lack a worker, that is one problem."""
    found = [*map(trouble_of, asked.outages), *map(refusal, asked.refusals), *map(alarm, alarms)]
    idle = [problem for view in views for problem in view.problems if problem.kind == NO_WORKER]
    together = len(idle) == len(views) > 1
    if together:
        job_workers = {worker.id for view in jobs for worker in view.workers or () if not worker.boxes}
        found.append(nobody_works([view.counts.pending for view in views if view.counts], job_workers=len(job_workers)))
    found += [each for view in views for each in view.problems if not (together and each.kind == NO_WORKER)]
    found += [each for view in jobs for each in view.problems]
    return tuple(sorted(found, key=lambda each: each.severity))


def _uncounted(counts: Counts) -> bool:
    return None in (counts.pending, counts.retrying, counts.failed, counts.discarded)


def _why_uncounted(box: Box, counts: Counts) -> str:
    if box.storage is Storage.LOG and counts.failed is not None:
        return "its log came from another server, and all of it must be read to count what waits: --exact does"
    return "no index to count by; boxengine db create makes it, --exact does without"


def _since_epoch(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
