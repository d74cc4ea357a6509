"""Long jobs over HTTP, version 1: trigger, status, cancel, and two routes for monitors."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from boxengine.adapters.telemetry.opentelemetry import called_with
from boxengine.app.overview.job_waiting import MOST_AWAITED
from boxengine.domain.jobs import JobBox, JobState, Waits
from boxengine.errors import InvalidItem
from boxengine.ports.jobs import JobFilter
from boxengine.version import __version__
from boxengine.web.console import job_showing
from boxengine.web.console.answers import Json
from boxengine.web.console.calls import Call, Refused
from boxengine.web.console.job_parsing import NEW_JOB, attributes_of
from boxengine.web.console.parsing import BadInput, id_of, known_only, text_of
from boxengine.web.console.site import COUNTED_TO


def trigger(call: Call) -> Response:
    """Creates a job in a transaction of its own, or finds the one with the same ``idempotency_key``."""
    sent = call.sent
    known_only(sent, ("csrf", "queue", *NEW_JOB))
    queue = text_of("queue", sent.get("queue"))
    if queue is None:
        raise BadInput("queue: expected the name of a job box")
    box, office = call.site.office.box(queue), call.site.office
    try:
        with called_with(call.request.headers):
            job_id, status = office.create(box, {**attributes_of(sent, box.url_name), "producer": call.who.name})
    except InvalidItem as error:
        raise BadInput(str(error)) from error
    what, outcome = f"job {job_id}", f"task {sent['task']}"
    call.site.errands.note(who=call.who.name, action="trigger", box=box, what=what, outcome=outcome, kept=False)
    return Json({"job_id": public_id(box, job_id), "status": status})


def status(call: Call) -> Response:
    """The state and progress of a job."""
    return Json(_shown(call, *_one(call)))


def cancel(call: Call) -> Response:
    """Cancels a queued job, and asks the handler of a running one to stop; a finished one stays as it is."""
    box, job_id = _one(call)
    _shown(call, box, job_id)
    changed = call.site.office.desk.cancel(box, JobFilter(ids=[job_id]))
    if changed:
        call.site.errands.note(
            who=call.who.name, action="cancel", box=box, what=f"job {job_id}", outcome="canceled or asked to stop"
        )
    return Json(_shown(call, box, job_id))


def service_status(call: Call) -> Response:
    """The job boxes, with their waiting and running jobs."""
    inspector = call.site.office.inspector
    queues = [
        {"queue": box.name, "paused": _paused(call, box), **job_showing.counts(inspector.counts(box, limit=COUNTED_TO))}
        for box in call.site.office.boxes
    ]
    return Json({"status": "ok", "version": __version__, "queues": queues})


def _paused(call: Call, box: JobBox) -> bool:
    running = call.site.office.pauses.running(box)
    return call.site.boxes.resolved.settings.polling_auto_disabled if running is None else not running


async def health(_request: Request) -> Response:
    """Reports that this process answers. It asks no server, so it says nothing about the database."""
    return Json({"status": "ok"})


def public_id(box: JobBox, job_id: int) -> str:
    """A job's id over HTTP. It includes the box, because each box counts its ids from one."""
    return f"{box.url_name}:{job_id}"


def _one(call: Call) -> tuple[JobBox, int]:
    queue, colon, number = call.path["job_id"].rpartition(":")
    job_id = id_of("job_id", number) if colon else None
    if job_id is None:
        raise BadInput("job_id: expected one such as report-job:42")
    return call.site.office.box(queue), job_id


def _shown(call: Call, box: JobBox, job_id: int) -> Mapping[str, Any]:
    row = call.site.office.inspector.get(box, job_id)
    if row is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"{box.name} has no job {job_id}. It may have been deleted.")
    waits = row["status"] == JobState.QUEUED and row["waits"] == Waits.JOBS
    awaited = call.site.office.inspector.awaited(box, job_id, limit=MOST_AWAITED) if waits else ()
    return {
        "job_id": public_id(box, job_id),
        "queue": box.name,
        **job_showing.state(row, box.name, call.site.hiding),
        "waits_for": [public_id(box, each.id) for each in awaited],
    }
