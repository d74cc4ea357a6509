"""The console as JSON."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from boxengine.app.overview import waiting_in_log
from boxengine.domain.box import Box
from boxengine.domain.item import rfc3339
from boxengine.domain.jobs import JobBox
from boxengine.domain.masking import masked_text
from boxengine.errors import QueueUnavailable
from boxengine.ports import ItemFilter
from boxengine.ports.people.history import Span
from boxengine.web.console import acting, job_showing, parsing, replaying, showing
from boxengine.web.console.acting import Polling
from boxengine.web.console.answers import Json
from boxengine.web.console.calls import Call, Refused
from boxengine.web.console.errands import Errand
from boxengine.web.console.parsing import BadInput, filter_of, known_only, page_of

_MEANT = {acting.REPLAY: ("replay",)}
"""By action, the fields that specify how it is done."""


def overview(call: Call) -> Response:
    """All boxes, and what is wrong."""
    look = call.site.latest()
    return Json({**showing.overview(look), "jobs": [job_showing.box(view) for view in look.jobs]})


def boxes(call: Call) -> Response:
    """All boxes."""
    return Json(showing.overview(call.site.latest())["boxes"])


def box(call: Call) -> Response:
    """One box."""
    return _shown_box(call, call.site.either(call.path["box"]))


def history(call: Call) -> Response:
    """What happened in the last hour or day, as columns."""
    known_only(call.query, ("span",))
    given = call.query.get("span", Span.HOUR)
    if given not in list(Span):
        raise BadInput(f"span: expected {' or '.join(Span)}")
    found, span = call.site.box(call.path["box"]), Span(given)
    slots = call.site.servers.history.read(found.name, span, now=call.site.servers.clock.now())
    return Json(showing.history(slots, span))


def workers(call: Call) -> Response:
    """The fleet."""
    look = call.site.latest()
    if look.workers is None:
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "; ".join(look.outages))
    return Json([showing.worker(each) for each in look.workers])


def items(call: Call) -> Response:
    """A page of items; ``next`` holds the parameter of the next page."""
    query = call.query
    known_only(query, (*parsing.FILTER_NAMES, *parsing.PAGE_NAMES))
    found, wanted = call.site.box(call.path["box"]), page_of(query)
    which = filter_of(query, now=call.site.servers.clock.now())
    listed = call.site.find(found, which, start=wanted.start, towards=wanted.towards, limit=wanted.limit)
    side = "before" if wanted.towards == "older" else "after"
    return Json(
        {
            "items": [showing.item(row) for row in listed.rows],
            "next": None if listed.searched_to is None else {side: listed.searched_to},
        }
    )


def count(call: Call) -> Response:
    """How many items, up to 10,000."""
    known_only(call.query, parsing.FILTER_NAMES)
    found = call.site.box(call.path["box"])
    which = filter_of(call.query, now=call.site.servers.clock.now())
    return Json(showing.count(call.site.count(found, which)))


def count_exactly(call: Call) -> Response:
    """Begins to count all items of a filter."""
    known_only(call.sent, ("filter", "csrf"))
    found = call.site.box(call.path["box"])
    return begun(acting.count_exactly(call.site, found, _filter(call, call.sent.get("filter")), who=call.who.name))


def item(call: Call) -> Response:
    """One item, whole."""
    found, item_id = _one(call)
    known = call.site.item(found, item_id)
    if known is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"{found.name} has no item {item_id}.")
    row, why = known.row, call.site.why(found, known)
    try:
        attempts = call.site.servers.attempts.of(found.name, row.id, row.uuid)
    except QueueUnavailable:
        attempts = None
    shown = showing.whole_item(row, found.name, why, call.site.hiding, attempts)
    return Json({**shown, "in_log": known.in_log})


def log(call: Call) -> Response:
    """What waits in the log of a box, by bucket; of one bucket, its next items."""
    known_only(call.query, ("bucket", "limit"))
    found = call.site.box(call.path["box"])
    bucket = parsing.number_of("bucket", call.query.get("bucket"), least=0, most=found.bucket_size - 1)
    limit = parsing.number_of("limit", call.query.get("limit"), least=1, most=parsing.LARGEST_PAGE) or parsing.PAGE
    if bucket is None:
        waiting = waiting_in_log(call.site.servers.log, found)
        return Json({"buckets": [showing.bucket_in_log(each) for each in waiting]})
    rows = call.site.servers.log.next(found, bucket, limit=limit)
    return Json({"items": [showing.item(row) for row in rows]})


def act_on_one(call: Call) -> Response:
    """Retry, discard, delete or replay one item."""
    found, item_id = _one(call)
    action = acting.action_of(call.path["action"])
    known = call.site.item(found, item_id)
    if known is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"{found.name} has no item {item_id}.")
    known_only(call.sent, ("csrf", *_MEANT.get(action, ())))
    if known.in_log:
        raise Refused(
            HTTPStatus.CONFLICT,
            f"Item {item_id} of {found.name} stands in the log, where nobody can {action} single items.",
        )
    which = acting.suitable(action, acting.one(item_id), known.row.status)
    copying = replaying.from_object(call.site, found, call.sent.get("replay"))
    return begun(acting.begin(call.site, found, action, which, who=call.who.name, copying=copying))


def act(call: Call) -> Response:
    """Acts on all items of a filter; with ``dry_run`` only counts them."""
    sent = call.sent
    found, action = call.site.box(call.path["box"]), acting.action_of(sent.get("action"))
    known_only(sent, ("action", "filter", "dry_run", "csrf", *_MEANT.get(action, ())))
    which = _filter(call, sent.get("filter"))
    copying = replaying.from_object(call.site, found, sent.get("replay"))
    if parsing.flag_of("dry_run", sent.get("dry_run")):
        tally = call.site.count(found, acting.meant_by(action, which))
        return Json({"action": str(action), "dry_run": True, "items": showing.count(tally)})
    return begun(acting.begin(call.site, found, action, which, who=call.who.name, copying=copying))


def polling(call: Call, *, decision: Polling) -> Response:
    """Pause, resume or forget."""
    found = call.site.either(call.path["box"])
    known_only(call.sent, ("csrf",))
    acting.decide(call.site, found, decision, who=call.who.name)
    return _shown_box(call, found)


def errand(call: Call) -> Response:
    """The progress of an action."""
    return Json(_shown_errand(_errand(call)))


def cancel(call: Call) -> Response:
    """Ends an action after the batch that is under way."""
    found = _errand(call)
    known_only(call.sent, ("csrf",))
    call.cancel(found)
    return Json(_shown_errand(found))


def doctor(call: Call) -> Response:
    """The doctor's findings; ``advice`` is null where all is well."""
    return Json(
        [
            {"area": each.area, "box": each.box, "text": masked_text(each.text), "advice": each.advice}
            for each in call.site.doctor.now()
        ]
    )


def trail(call: Call) -> Response:
    """What people did, the latest first."""
    known_only(call.query, ("limit",))
    limit = parsing.number_of("limit", call.query.get("limit"), least=1, most=1_000)
    deeds = call.site.servers.trail.latest(limit or parsing.PAGE)
    return Json(
        [
            {
                "at": rfc3339(deed.at),
                "who": deed.who,
                "action": deed.action,
                "box": deed.box,
                "what": deed.what,
                "outcome": deed.outcome,
            }
            for deed in deeds
        ]
    )


def _shown_box(call: Call, found: Box | JobBox) -> Response:
    look = call.site.latest()
    if isinstance(found, JobBox):
        return Json(job_showing.box(look.job_box(found.name)))
    return Json(showing.box(look.box(found.name), look.taken_at))


def _one(call: Call) -> tuple[Box, int]:
    item_id = parsing.id_of("id", call.path["item"])
    return call.site.box(call.path["box"]), item_id or 0


def _filter(call: Call, given: Any) -> ItemFilter:
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise BadInput("filter: expected an object")
    known_only(given, parsing.FILTER_NAMES)
    return filter_of(given, now=call.site.servers.clock.now())


def _errand(call: Call) -> Errand:
    found = call.site.errands.get(call.path["job"])
    if found is None:
        raise Refused(HTTPStatus.NOT_FOUND, "This process knows no such job.")
    return found


def begun(found: Errand) -> Response:
    """An action, done or under way."""
    return Json(_shown_errand(found), status_code=HTTPStatus.OK if found.ended.is_set() else HTTPStatus.ACCEPTED)


def _shown_errand(found: Errand) -> dict[str, Any]:
    return {
        "id": found.id,
        "action": found.action,
        "box": found.box.name,
        "what": found.what,
        "who": found.who,
        "started_at": rfc3339(found.started_at),
        "state": str(found.state),
        "done": found.done,
        "outcome": found.outcome,
    }
