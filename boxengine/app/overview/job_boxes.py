"""One look at the boxes of long jobs: what waits, what runs, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from boxengine.app.overview.facts import LONG, Problem, Severity
from boxengine.app.overview.problems import unread_table, useless_table
from boxengine.app.overview.wait_once import WaitOnce
from boxengine.app.overview.words import counted, lasting
from boxengine.domain.jobs import JobBox, JobState
from boxengine.errors import NotPermitted, StoreConflict, StoreTooSlow, TableMissing, Unavailable
from boxengine.ports import Clock, Count, WorkerInfo
from boxengine.ports.coordination.job_pauses import JobPauses
from boxengine.ports.people.inspection import Towards
from boxengine.ports.people.jobs import JobCounts, JobInspector, JobRow, JobSearch

COUNTED_TO = 10_000
RUNNING_SHOWN = 20
_LATE = "jobs-late"
_START_ONE = "Start a worker for it: boxengine start."
RUNNING = JobSearch(states=frozenset({JobState.RUNNING}))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBoxView:
    """The state of one box of long jobs."""

    box: JobBox
    counts: JobCounts | None
    """None: unknown."""
    counted_at: datetime | None = None
    """When the box was counted, if that was some seconds before the look; otherwise None."""
    paused: bool | None
    decided: bool | None
    """Whether a person paused or resumed it; otherwise the configuration decides."""
    running: Sequence[JobRow]
    """The jobs that started last."""
    problems: tuple[Problem, ...]
    """The worst first."""
    workers: tuple[WorkerInfo, ...] | None = None
    """Those that work on it; None: unknown."""


def look_at_jobs(
    inspector: JobInspector, pauses: JobPauses, boxes: Sequence[JobBox], *, auto_disabled: bool, clock: Clock
) -> tuple[tuple[JobBoxView, ...], tuple[str, ...]]:
    """The state of the boxes, and the outages of the database."""
    views, outages, database = [], list[str](), WaitOnce(clock)
    for box in boxes:
        counts, running, paused, decided = None, tuple[JobRow, ...](), None, None
        found = list[Problem]()
        try:
            told = database.ask(partial(pauses.running, box))
            paused, decided = auto_disabled if told is None else not told, told is not None
            counts = database.ask(partial(inspector.counts, box, limit=COUNTED_TO))
            if counts.taken.number:
                running = tuple(
                    inspector.find(box, RUNNING, start=None, towards=Towards.OLDER, limit=RUNNING_SHOWN).rows
                )
        except TableMissing as error:
            found.append(useless_table(box.name, str(error)))
        except (StoreTooSlow, StoreConflict, NotPermitted) as error:
            found.append(unread_table(box.name, str(error)))
        except Unavailable as error:
            outages += [str(error)] if str(error) not in outages else []
        if counts is not None:
            found += _problems(box, counts, paused=bool(paused))
        problems = tuple(sorted(found, key=lambda problem: problem.severity))
        views.append(
            JobBoxView(box=box, counts=counts, paused=paused, decided=decided, running=running, problems=problems)
        )
    return tuple(views), tuple(outages)


def with_workers(view: JobBoxView, workers: tuple[WorkerInfo, ...] | None) -> JobBoxView:
    """The view with the workers of its box, by which it advises where jobs wait and none runs."""
    late = [each for each in view.problems if each.kind == _LATE and each.severity is Severity.STOPPED]
    if workers is None or not late:
        return replace(view, workers=workers)
    advice = "A worker runs but takes none of them: its log says why." if workers else _START_ONE
    told = {id(each): replace(each, advice=advice) for each in late}
    return replace(view, workers=workers, problems=tuple(told.get(id(each), each) for each in view.problems))


def _problems(box: JobBox, counts: JobCounts, *, paused: bool) -> Iterator[Problem]:
    waited = counts.waits or timedelta(0)
    if paused:
        yield _paused(box, counts.ready)
    elif waited > LONG:
        yield _late(box, counts, waited)
    for state, word in ((JobState.LOST, "was lost"), (JobState.FAILED, "failed")):
        number = counts.ended.get(state, Count(0))
        if number.number:
            yield _ended_badly(box, state, number, word)


def _paused(box: JobBox, ready: Count) -> Problem:
    return Problem(
        kind="paused",
        severity=Severity.STUCK if ready.number else Severity.QUIET,
        box=box.name,
        sentence=f"{box.name} is paused" + (f", and {counted(ready, 'job')} could begin." if ready.number else "."),
        advice="Resume the box once the reason for the pause is gone.",
    )


def _late(box: JobBox, counts: JobCounts, waited: timedelta) -> Problem:
    idle = not counts.taken.number
    return Problem(
        kind=_LATE,
        severity=Severity.STOPPED if idle else Severity.SLOW,
        box=box.name,
        sentence=f"{counted(counts.ready, 'job')} of {box.name} could begin, the oldest for {lasting(waited)}"
        + (", and none runs." if idle else "."),
        advice=_START_ONE if idle else "Jobs arrive faster than they end: raise concurrency, or start more workers.",
    )


def _ended_badly(box: JobBox, state: JobState, number: Count, word: str) -> Problem:
    verb = word if number == Count(1) else word.replace("was", "were")
    return Problem(
        kind=f"jobs-{state}",
        severity=Severity.STUCK,
        box=box.name,
        job_status=str(state),
        sentence=f"{counted(number, 'job')} of {box.name} {verb}, and no attempt is left.",
        advice="Look at the errors. Retry the jobs when the cause is gone: they go on from their last checkpoint."
        if state is JobState.FAILED
        else "Their workers fell silent, and nobody knows how far the jobs got. Find out, then retry them.",
    )
