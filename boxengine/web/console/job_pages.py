"""The pages of long jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from boxengine.app.overview import job_reasons
from boxengine.domain.jobs import JobBox, JobState
from boxengine.ports.people.inspection import Towards
from boxengine.ports.people.jobs import JobSearch
from boxengine.web.console import job_acting, job_showing, parsing, showing
from boxengine.web.console.calls import Call, Refused
from boxengine.web.console.job_parsing import SEARCH_NAMES, search_of
from boxengine.web.console.paging import links, typed
from boxengine.web.console.rendering import page
from boxengine.web.console.site import COUNTED_TO

EVENTS_SHOWN = 100
_LOOKED_FOR = ("lock_key", "id", "idempotency_key")


def box(call: Call, found: JobBox) -> Response:
    """One box of long jobs."""
    look = call.site.latest()
    pipeline = call.site.boxes.resolved.jobs[found.name]
    return page(call, "job_box.html", look=look, view=look.job_box(found.name), box=found, tasks=sorted(pipeline.tasks))


def jobs(call: Call) -> Response:
    """Jobs of a box, page by page."""
    found, asked = call.site.office.box(call.path["box"]), typed(call, SEARCH_NAMES, looked_for=_LOOKED_FOR)
    which, wanted = _search(call, asked), parsing.page_of(call.query)
    listed = call.site.find_jobs(found, which, wanted)
    first = wanted.start is None and wanted.towards is Towards.OLDER
    return page(
        call,
        "long_jobs.html",
        box=found,
        listed=listed,
        wanted=wanted,
        count=call.site.count_jobs(found, which) if first and asked else None,
        asked=asked,
        links=links(
            call,
            partial(jobs_path, found),
            asked,
            wanted,
            ids=[row["id"] for row in listed.rows],
            searched_to=listed.searched_to,
        ),
        actions=[action for action in job_acting.DONE if job_acting.suits(action, which)],
        states=[str(state) for state in JobState],
        looked_for=_LOOKED_FOR,
    )


def job(call: Call) -> Response:
    """One job, whole."""
    found, row = _one(call)
    inspector, hiding = call.site.office.inspector, call.site.hiding
    why = job_reasons(found, row, inspector, now=call.site.servers.store.now())
    state = JobState(row["status"]) if row["status"] in set(JobState) else None
    journal = inspector.journal(found, row["id"], limit=EVENTS_SHOWN)
    return page(
        call,
        "long_job.html",
        box=found,
        row=row,
        why=why,
        trace_id=showing.trace_named_by(row["trace_context"]),
        advance=job_showing.advance(row["progress"]),
        progress=hiding.value(found.name, row["progress"]) if row["progress"] else None,
        parts={
            title: job_showing.drawn(value, found.name, hiding)
            for title, value in (
                ("Arguments", job_showing.arguments(row["args"])),
                ("Checkpoint", row["checkpoint"]),
                ("Result", row["result"]),
            )
        },
        journal=[(event, hiding.value(found.name, event["payload"])) for event in reversed(journal)],
        actions=[action for action, states in job_acting.SUITABLE.items() if state in states],
        over=state in job_acting.SUITABLE[job_acting.RETRY],
    )


def question(call: Call) -> Response:
    """Asks for confirmation of an action, with the number of jobs it would affect.

    A retry of a single job is for the status shown here: confirmed on an old page, it must not repeat a job that has since
    succeeded. A cancellation is for a job that is queued or running, because one begins while somebody reads.
    """
    found, asked = call.site.office.box(call.path["box"]), typed(call, SEARCH_NAMES, looked_for=_LOOKED_FOR)
    action = job_acting.action_of(call.query.get("action"))
    which = job_acting.meant_by(action, _search(call, asked))
    single = len(which.ids) == 1
    seen = call.site.office.inspector.get(found, which.ids[0]) if single else None
    if action == job_acting.RETRY and seen is not None and seen["status"] in which.states:
        asked["status"], which = seen["status"], replace(which, states=frozenset({JobState(seen["status"])}))
    return page(
        call,
        "job_question.html",
        box=found,
        action=action,
        asked=parsing.settled(asked, which.created_from, which.created_before),
        what=job_acting.in_words(which),
        seen=seen,
        count=call.site.count_jobs(found, which),
        back=call.url(f"{jobs_path(found)}/{which.ids[0]}" if single else jobs_path(found, asked)),
    )


def act(call: Call) -> Response:
    """Performs the action: on a single job at once, else in the background."""
    found, sent = call.site.office.box(call.path["box"]), call.sent
    action = job_acting.action_of(sent.get("action"))
    which = job_acting.meant_by(action, _search(call, sent))
    if len(which.ids) == 1:
        (job_id,) = which.ids
        job_acting.one(call.site, found, action, job_id, states=which.states, who=call.who.name)
        return RedirectResponse(call.url(f"{jobs_path(found)}/{job_id}"), status_code=303)
    # What has come to match since the question was asked is not what was agreed to.
    most = parsing.number_of("most", sent.get("most"), least=1, most=COUNTED_TO)
    begun = job_acting.begin(call.site, found, action, which, who=call.who.name, most=most)
    return RedirectResponse(call.url(f"/jobs/{begun.id}"), status_code=303)


def count(call: Call) -> Response:
    """Counts the jobs of a search exactly, in the background."""
    found = call.site.office.box(call.path["box"])
    begun = job_acting.count_exactly(call.site, found, _search(call, call.sent), who=call.who.name)
    return RedirectResponse(call.url(f"/jobs/{begun.id}"), status_code=303)


def jobs_path(box: JobBox, asked: Mapping[str, Any] | None = None) -> str:
    """The path of the list of a box's jobs."""
    return f"/boxes/{box.url_name}/jobs" + (f"?{urlencode(asked, doseq=True)}" if asked else "")


def _one(call: Call) -> tuple[JobBox, Mapping[str, Any]]:
    found, job_id = call.site.office.box(call.path["box"]), parsing.id_of("id", call.path["job"])
    row = call.site.office.inspector.get(found, job_id or 0)
    if row is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"{found.name} has no job {job_id}. It may have been deleted.")
    return found, row


def _search(call: Call, given: Mapping[str, Any]) -> JobSearch:
    return search_of(given, now=call.site.servers.clock.now())
