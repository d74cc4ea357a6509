"""The pages."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from starlette.responses import PlainTextResponse, RedirectResponse, Response

from boxengine.app.overview import Reasons, waiting_in_log
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Status
from boxengine.errors import BoxError, QueueUnavailable
from boxengine.ports import ItemFilter
from boxengine.ports.people.history import Span
from boxengine.ports.people.inspection import Found, Towards
from boxengine.web.console import acting, job_pages, parsing, replaying, showing
from boxengine.web.console.access import printable
from boxengine.web.console.acting import Polling
from boxengine.web.console.calls import Call, Refused
from boxengine.web.console.errands import Errand
from boxengine.web.console.paging import links, typed
from boxengine.web.console.parsing import BadInput, filter_of, page_of
from boxengine.web.console.rendering import page
from boxengine.web.console.site import COUNTED_TO

NEIGHBOURS = 3
SHOWN_DEEDS = 200
PATIENCE = 0.05
"""Seconds for which the doctor's page waits for an examination that is under way."""
UNTOLD = Reasons(sentences=("The database did not tell in time. Load the page again to ask once more.",))
"""Why an item waits, where that takes too long: what else is known of it must not wait for that."""
_LOOKED_FOR = ("key", "id", "uuid")


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────


def overview(call: Call) -> Response:
    """All boxes."""
    return page(call, "overview.html", look=call.site.latest())


def box(call: Call) -> Response:
    """One box."""
    of_jobs = call.site.office.by_id.get(call.path["box"])
    if of_jobs is not None:
        return job_pages.box(call, of_jobs)
    found = call.site.box(call.path["box"])
    look = call.site.latest()
    # A box's name may need quotes in a path, and may be the beginning of another box's name.
    mine = re.compile(rf"{found.type}_items\.['\"\[]*{re.escape(found.name)}(?![\w/-])")
    own = [row for row in call.site.configuration if mine.match(row.path)]
    figures = call.site.figures(found).latest()
    return page(
        call,
        "box.html",
        look=look,
        view=look.box(found.name),
        box=found,
        configuration=own,
        table=figures.table,
        in_log=figures.in_log,
        transports=showing.transports(figures.lately, Span.HOUR.slots * Span.HOUR.step),
        sources=call.site.boxes.pipeline(found.name),
    )


def items(call: Call) -> Response:
    """Items of a box, page by page."""
    found, asked = call.site.box(call.path["box"]), typed(call, parsing.FILTER_NAMES, looked_for=_LOOKED_FOR)
    which, wanted = filter_of(asked, now=call.site.servers.clock.now()), page_of(call.query)
    listed = call.site.find(found, which, start=wanted.start, towards=wanted.towards, limit=wanted.limit)
    if not listed.rows and _is_in_log(call, found, which):
        return RedirectResponse(call.url(f"/boxes/{found.url_name}/items/{which.ids[0]}"), status_code=303)
    first = wanted.start is None and wanted.towards is Towards.OLDER
    count = _part(lambda: call.site.count_from(found, which, listed)) if first and which != ItemFilter() else None
    return page(
        call,
        "items.html",
        box=found,
        rows=listed.rows,
        listed=listed,
        wanted=wanted,
        count=count,
        asked=asked,
        links=links(
            call,
            partial(_items_path, found),
            asked,
            wanted,
            ids=[row.id for row in listed.rows],
            searched_to=listed.searched_to,
        ),
        searched_at=_searched_at(call, found, listed, wanted),
        actions=[action for action in acting.DONE if _suits(action, which)],
        statuses=[status.name.lower() for status in Status],
    )


def item(call: Call) -> Response:
    """One item, whole."""
    found, item_id = call.site.box(call.path["box"]), parsing.id_of("id", call.path["item"])
    known = call.site.item(found, item_id or 0)
    if known is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"{found.name} has no item {item_id}. It may have been deleted.")
    row = known.row
    before, after = _part(lambda: call.site.servers.inspector.neighbours(found, row, limit=NEIGHBOURS)) or ([], [])
    return page(
        call,
        "item.html",
        box=found,
        row=row,
        in_log=known.in_log,
        why=_part(lambda: call.site.why(found, known)) or UNTOLD,
        neighbours=[*after, row, *before],
        payload=call.site.hiding.payload(found.name, row.payload or b""),
        options=call.site.hiding.value(found.name, showing.options_of(row)) if row.options else None,
        trace_id=showing.trace_of(row),
        attempts=_part(lambda: call.site.servers.attempts.of(found.name, row.id, row.uuid)) or [],
        actions=[action for action in acting.DONE if not known.in_log and acting.takes(action, row.status)],
    )


def log(call: Call) -> Response:
    """What waits in the log of a box; of one bucket, its next items."""
    found = call.site.box(call.path["box"])
    if found.storage is not Storage.LOG:
        raise Refused(HTTPStatus.NOT_FOUND, f"{found.name} has no log: its items stand in a table.")
    bucket = parsing.number_of("bucket", call.query.get("bucket"), least=0, most=found.bucket_size - 1)
    return page(
        call,
        "log.html",
        box=found,
        bucket=bucket,
        waiting=waiting_in_log(call.site.servers.log, found) if bucket is None else (),
        rows=() if bucket is None else call.site.servers.log.next(found, bucket, limit=parsing.PAGE),
    )


def workers(call: Call) -> Response:
    """The fleet."""
    return page(call, "workers.html", look=call.site.latest())


def doctor(call: Call) -> Response:
    """The doctor's findings, which a slow server must not keep anybody waiting for."""
    return page(call, "doctor.html", checked=call.site.doctor.recent(patience=PATIENCE))


def trail(call: Call) -> Response:
    """What people did, and the actions under way."""
    try:
        deeds, outage = call.site.servers.trail.latest(SHOWN_DEEDS), None
    except QueueUnavailable as error:
        deeds, outage = [], str(error)
    return page(call, "trail.html", deeds=deeds, outage=outage, errands=call.site.errands.latest())


# ── acting ───────────────────────────────────────────────────────────────────────────────────────────


def question(call: Call) -> Response:
    """Asks for confirmation of an action, with the number of items it would affect."""
    found, asked = call.site.box(call.path["box"]), typed(call, parsing.FILTER_NAMES, looked_for=_LOOKED_FOR)
    action = acting.action_of(call.query.get("action"))
    which = acting.meant_by(action, filter_of(asked, now=call.site.servers.clock.now()))
    return page(
        call,
        "question.html",
        box=found,
        action=action,
        asked=parsing.settled(asked, which.created_from, which.created_before),
        what=acting.in_words(which),
        count=call.site.count(found, which),
        back=call.url(_items_path(found, asked)),
        transports=replaying.targets(call.site, found),
        once=secrets.token_urlsafe(9),
    )


def act(call: Call) -> Response:
    """Performs the action."""
    found, sent = call.site.box(call.path["box"]), call.sent
    action = acting.action_of(sent.get("action"))
    which = filter_of(sent, now=call.site.servers.clock.now())
    copying = replaying.from_form(call.site, found, sent) if action == acting.REPLAY else replaying.AS_IT_WAS
    # What has come to match since the question was asked is not what was agreed to.
    most = parsing.number_of("most", sent.get("most"), least=1, most=COUNTED_TO)
    once = parsing.text_of("once", sent.get("once"))
    errand = acting.begin(call.site, found, action, which, who=call.who.name, copying=copying, most=most, once=once)
    return RedirectResponse(call.url(f"/jobs/{errand.id}"), status_code=303)


def count(call: Call) -> Response:
    """Counts the items of a filter exactly, in the background."""
    found = call.site.box(call.path["box"])
    which = filter_of(call.sent, now=call.site.servers.clock.now())
    errand = acting.count_exactly(call.site, found, which, who=call.who.name)
    return RedirectResponse(call.url(f"/jobs/{errand.id}"), status_code=303)


def errand(call: Call) -> Response:
    """The progress of an action."""
    return page(call, "errand.html", errand=_errand(call))


def cancel(call: Call) -> Response:
    """Ends an action after the batch that is under way."""
    found = _errand(call)
    call.cancel(found)
    return RedirectResponse(call.url(f"/jobs/{found.id}"), status_code=303)


def ask_polling(call: Call) -> Response:
    """Asks for confirmation before pausing or resuming a box."""
    found = call.site.either(call.path["box"])
    return page(call, "polling.html", box=found, polling=_polling(call.query.get("decide")))


def polling(call: Call) -> Response:
    """Pauses or resumes a box."""
    found = call.site.either(call.path["box"])
    acting.decide(call.site, found, _polling(call.sent.get("decide")), who=call.who.name)
    return RedirectResponse(call.url(f"/boxes/{call.path['box']}"), status_code=303)


# ── signing in and out ───────────────────────────────────────────────────────────────────────────────


def login(call: Call) -> Response:
    """Asks for a token."""
    return page(call, "login.html", wrong=False, next=_next(call.query.get("next")))


def sign_in(call: Call) -> Response:
    """Signs in somebody who has a token."""
    target = _next(call.sent.get("next"))
    token, name = call.sent.get("token"), call.sent.get("name")
    response = RedirectResponse(call.url(target), status_code=303)
    given = token if isinstance(token, str) else ""
    if call.site.access.sign_in(response, call.request, token=given.strip(), name=printable(str(name or ""))):
        return response
    return page(call, "login.html", HTTPStatus.UNAUTHORIZED, wrong=True, next=target)


def sign_out(call: Call) -> Response:
    """Ends the session."""
    response = RedirectResponse(call.url("/login"), status_code=303)
    call.site.access.sign_out(response, call.request)
    return response


def failure(call: Call | None, status: HTTPStatus, text: str) -> Response:
    """An error as a page."""
    if call is None:
        return PlainTextResponse(f"{text}\n", status_code=status)
    return page(call, "failure.html", status, text=text, title=status.phrase)


# ── the parts ────────────────────────────────────────────────────────────────────────────────────────


def _is_in_log(call: Call, found: Box, which: ItemFilter) -> bool:
    """Whether the filter names one item, and that one stands in the log alone, which has no list."""
    if found.storage is not Storage.LOG or len(which.ids) != 1 or which != ItemFilter(ids=which.ids):
        return False
    known = call.site.item(found, which.ids[0])
    return known is not None and known.in_log


def _searched_at(call: Call, found: Box, listed: Found, wanted: parsing.Page) -> datetime | str | None:
    """When the row was created at which a search ended before its page was full."""
    if listed.searched_to is None or len(listed.rows) >= wanted.limit:
        return None
    row = call.site.servers.items.get(found, listed.searched_to)
    return None if row is None else row.created_at


def _items_path(found: Box, asked: Mapping[str, Any]) -> str:
    query = urlencode(asked, doseq=True)
    return f"/boxes/{found.url_name}/items" + (f"?{query}" if query else "")


def _suits(action: str, which: ItemFilter) -> bool:
    """Whether to show a button for the action beside this list: the filter names statuses, and the action suits them all."""
    if not which.statuses or not all(acting.takes(action, status) for status in which.statuses):
        return False
    try:
        acting.meant_by(action, which)
    except BoxError:
        return False
    return True


def _errand(call: Call) -> Errand:
    found = call.site.errands.get(call.path["job"])
    if found is None:
        raise Refused(HTTPStatus.NOT_FOUND, "This process knows no such action. What was done is in the trail.")
    return found


def _polling(given: Any) -> Polling:
    if given not in list(Polling):
        raise BadInput(f"decide: expected {', '.join(Polling)}")
    return Polling(given)


def _next(given: Any) -> str:
    """A path within the console to return to; ``/`` if the given one could lead elsewhere."""
    text = given if isinstance(given, str) else ""
    ours = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if ours and not text.startswith("/login") else "/"


def _part(ask: Any) -> Any:
    """An optional part of a page: None if it cannot be had."""
    try:
        return ask()
    except BoxError:
        return None
