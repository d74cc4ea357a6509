"""Long jobs in the console's own API."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from boxengine.app.overview import job_reasons
from boxengine.domain.jobs import JobBox
from boxengine.ports.people.jobs import JobSearch
from boxengine.web.console import job_acting, job_showing, parsing, showing
from boxengine.web.console.answers import Json
from boxengine.web.console.api import begun
from boxengine.web.console.calls import Call, Refused
from boxengine.web.console.job_pages import EVENTS_SHOWN
from boxengine.web.console.job_parsing import SEARCH_NAMES, search_of
from boxengine.web.console.parsing import BadInput, known_only


def jobs(call: Call) -> Response:
    """A page of jobs; ``next`` holds the parameter of the next page."""
    known_only(call.query, (*SEARCH_NAMES, *parsing.PAGE_NAMES))
    found, wanted = call.site.office.box(call.path["box"]), parsing.page_of(call.query)
    listed = call.site.find_jobs(found, _search(call, call.query), wanted)
    side = "before" if wanted.towards == "older" else "after"
    return Json(
        {
            "jobs": [job_showing.row(row) for row in listed.rows],
            "next": None if listed.searched_to is None else {side: listed.searched_to},
        }
    )


def count(call: Call) -> Response:
    """How many jobs, up to 10,000."""
    known_only(call.query, SEARCH_NAMES)
    found = call.site.office.box(call.path["box"])
    return Json(showing.count(call.site.count_jobs(found, _search(call, call.query))))


def count_exactly(call: Call) -> Response:
    """Begins to count all jobs of a search."""
    known_only(call.sent, ("filter", "csrf"))
    found = call.site.office.box(call.path["box"])
    return begun(job_acting.count_exactly(call.site, found, _filter(call, call.sent.get("filter")), who=call.who.name))


def job(call: Call) -> Response:
    """One job, whole."""
    found, job_id = _one(call)
    inspector = call.site.office.inspector
    row = inspector.get(found, job_id)
    if row is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"{found.name} has no job {job_id}.")
    why = job_reasons(found, row, inspector, now=call.site.servers.store.now())
    journal = inspector.journal(found, job_id, limit=EVENTS_SHOWN)
    return Json(job_showing.whole(row, journal, why, found.name, call.site.hiding))


def act_on_one(call: Call) -> Response:
    """Cancels a job, or queues it again; answers with the job."""
    found, job_id = _one(call)
    action = job_acting.action_of(call.path["action"])
    known_only(call.sent, ("csrf",))
    if call.site.office.inspector.get(found, job_id) is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"{found.name} has no job {job_id}.")
    states = job_acting.SUITABLE[action]
    if not job_acting.one(call.site, found, action, job_id, states=states, who=call.who.name):
        raise Refused(HTTPStatus.CONFLICT, f"There is nothing to {action} about job {job_id} of {found.name}.")
    return job(call)


def act(call: Call) -> Response:
    """Acts on all jobs of a filter; with ``dry_run`` only counts them."""
    sent = call.sent
    known_only(sent, ("action", "filter", "dry_run", "csrf"))
    found, action = call.site.office.box(call.path["box"]), job_acting.action_of(sent.get("action"))
    which = job_acting.meant_by(action, _filter(call, sent.get("filter")))
    if parsing.flag_of("dry_run", sent.get("dry_run")):
        return Json(showing.count(call.site.count_jobs(found, which)))
    return begun(job_acting.begin(call.site, found, action, which, who=call.who.name))


def _filter(call: Call, given: Any) -> JobSearch:
    if given is None:
        return JobSearch()
    if not isinstance(given, dict):
        raise BadInput("filter: expected an object")
    known_only(given, SEARCH_NAMES)
    return _search(call, given)


def _search(call: Call, given: Mapping[str, Any]) -> JobSearch:
    return search_of(given, now=call.site.servers.clock.now())


def _one(call: Call) -> tuple[JobBox, int]:
    return call.site.office.box(call.path["box"]), parsing.id_of("id", call.path["job"]) or 0
