"""Actions on long jobs: cancel them, and queue them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from boxengine.app.overview.words import counted
from boxengine.domain.jobs import FINAL, JobBox, JobState
from boxengine.errors import BoxError
from boxengine.ports import Count
from boxengine.ports.jobs import JobFilter
from boxengine.ports.people.inspection import Towards
from boxengine.ports.people.jobs import JobSearch
from boxengine.web.console import acting
from boxengine.web.console.errands import COUNT, Errand
from boxengine.web.console.parsing import BadInput
from boxengine.web.console.site import Site

CANCEL, RETRY = "cancel", "retry"
SUITABLE = {CANCEL: frozenset({JobState.QUEUED, JobState.RUNNING}), RETRY: frozenset(FINAL)}
"""By action, the states of jobs that it applies to."""
DONE = {CANCEL: "canceled or asked to stop", RETRY: "queued again"}
AT_ONCE = 500
"""Jobs in one step."""


def action_of(given: Any) -> str:
    """The action of that name."""
    if not isinstance(given, str) or given not in DONE:
        raise BadInput(f"action: expected {', '.join(DONE)}")
    return given


def suits(action: str, which: JobSearch) -> bool:
    """Whether the search names states, and the action applies to all of them."""
    return bool(which.states) and which.states <= SUITABLE[action]


def meant_by(action: str, which: JobSearch) -> JobSearch:
    """The search as the action understands it.

    Raises:
        BoxError: the action does not apply to a state that the search names, or the search names no states and no ids.
    """
    for state in sorted(which.states - SUITABLE[action]):
        raise BoxError(f"{action} is not for {state} jobs")
    if which.states or which.ids:
        return which if which.states else replace(which, states=SUITABLE[action])
    raise BoxError(f"name a status or ids of the jobs to {action}")


def one(site: Site, box: JobBox, action: str, job_id: int, *, states: Iterable[JobState], who: str) -> bool:
    """Acts on one job, if it is in one of these states; returns whether there was something to do."""
    which = JobFilter(ids=[job_id], states=sorted(states))
    desk = site.office.desk
    changed = desk.cancel(box, which) if action == CANCEL else desk.retry(box, which)
    outcome = DONE[action] if changed else "left alone: its status had changed"
    site.errands.note(who=who, action=action, box=box, what=f"job {job_id}", outcome=outcome)
    site.show_change(box)
    return bool(changed)


def begin(site: Site, box: JobBox, action: str, which: JobSearch, *, who: str, most: int | None = None) -> Errand:
    """Acts on all jobs of a search, in the background, and waits a moment for the end.

    Args:
        most: on how many jobs, in id order; None: on all.
    """
    meant, desk = meant_by(action, which), site.office.desk

    def run(errand: Errand) -> str:
        changed = 0
        try:
            for found in _steps(site, box, meant):
                ids = found if most is None else found[: most - errand.done]
                if ids:
                    chosen = JobFilter(ids=ids, states=sorted(meant.states))
                    changed += desk.cancel(box, chosen) if action == CANCEL else desk.retry(box, chosen)
                errand.advance(len(ids))
                if errand.done == most:
                    break
        finally:
            site.changed(box)
        return f"{counted(Count(changed), 'job')} {DONE[action]}"

    return _begun(site, box, action, meant, who=who, run=run)


def count_exactly(site: Site, box: JobBox, which: JobSearch, *, who: str) -> Errand:
    """Counts all jobs of a search, in the background, and waits a moment for the end."""

    def run(errand: Errand) -> str:
        for ids in _steps(site, box, which):
            errand.advance(len(ids))
        return f"exactly {counted(Count(errand.done), 'job')}"

    return _begun(site, box, COUNT, which, who=who, run=run)


def _steps(site: Site, box: JobBox, which: JobSearch) -> Iterator[list[int]]:
    """The ids of all jobs of a search, from the lowest; a step without any gives the action a chance to be cancelled."""
    after: int | None = 0
    while after is not None:
        found = site.office.inspector.find(box, which, start=after, towards=Towards.NEWER, limit=AT_ONCE)
        yield sorted(int(row["id"]) for row in found.rows)
        after = found.searched_to


def _begun(site: Site, box: JobBox, action: str, which: JobSearch, *, who: str, run: Callable[[Errand], str]) -> Errand:
    errand = site.errands.start(who=who, action=action, box=box, what=in_words(which), run=run)
    errand.ended.wait(acting.SOON.total_seconds())
    return errand


def in_words(which: JobSearch) -> str:
    """Describes the chosen jobs in words."""
    if len(which.ids) == 1:
        return f"job {which.ids[0]}"
    named = {
        "of task": which.task,
        "with lock key": which.lock_key,
        "with idempotency key": which.idempotency_key,
        "whose error says": which.error,
        **acting.period(which.created_from, which.created_before),
    }
    parts = [f"{' or '.join(sorted(which.states)) or 'all'} jobs"]
    parts += [f"{len(which.ids):,} ids"] if which.ids else []
    return ", ".join([*parts, *(f"{name} {value}" for name, value in named.items() if value is not None)])
