"""What all pages and API routes share: authentication, reading the body, and turning errors into responses."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from boxengine.domain.masking import masked_text
from boxengine.errors import BoxError, Unavailable, UnknownBox
from boxengine.web.console.access import CSRF_FIELD, CSRF_HEADER, Role, Visit, Who
from boxengine.web.console.answers import Json
from boxengine.web.console.errands import Errand
from boxengine.web.console.parsing import BadInput
from boxengine.web.console.site import Site

logger = logging.getLogger(__name__)
ONLY_LOOKS = "You may look, but not change anything."
LARGEST_BODY = 64 << 10
MOST_FIELDS = 50


class Refused(Exception):
    """The request is refused; the text is for the person who sent it."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        self.status = status
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, with everything parsed that all requests have in common."""

    site: Site
    request: Request
    visit: Visit
    sent: Mapping[str, Any]
    """The fields of a form, or a JSON object."""

    @property
    def who(self) -> Who:
        """The authenticated sender.

        Raises:
            Refused: nobody has signed in.
        """
        if self.visit.who is None:
            raise Refused(HTTPStatus.UNAUTHORIZED, "Sign in first.")
        return self.visit.who

    @property
    def may_operate(self) -> bool:
        return self.visit.who is not None and self.visit.who.role >= Role.OPERATE

    def may_cancel(self, errand: Errand) -> bool:
        """Whether the sender may end this action: a count is for everybody to begin, and so to end."""
        return self.may_operate or not errand.changes

    def cancel(self, errand: Errand) -> None:
        """Has the action end after its batch.

        Raises:
            Refused: the sender may not end it.
        """
        if not self.may_cancel(errand):
            raise Refused(HTTPStatus.FORBIDDEN, ONLY_LOOKS)
        errand.cancel.set()

    @property
    def query(self) -> dict[str, Any]:
        """The query parameters; a name that occurs more than once has a list."""
        found: dict[str, Any] = {}
        for name, value in self.request.query_params.multi_items():
            if name in found:
                found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), value]
            else:
                found[name] = value
        return found

    @property
    def path(self) -> Mapping[str, str]:
        """The variable parts of the path."""
        return self.request.path_params

    def url(self, path: str) -> str:
        """The URL of a page, wherever the console is mounted."""
        return f"{self.request.scope.get('root_path', '')}{path}"


Handler = Callable[[Call], Response]
Failing = Callable[[Call | None, HTTPStatus, str], Response]


def endpoint(
    site: Site, handler: Handler, *, failing: Failing, role: Role | None, changes: bool = False, page: bool = False
) -> Callable[[Request], Any]:
    """A Starlette endpoint around a handler, which runs in a thread.

    Args:
        failing: makes the response when the request is refused.
        role: the role that the sender needs; None: anybody may send the request.
        changes: whether the call changes something, and so needs protection against forged requests.
        page: whether somebody who has not signed in is redirected to the login page.
    """

    async def answer(request: Request) -> Response:
        call = None
        try:
            visit = await site.access.visit(request)
            call = Call(site=site, request=request, visit=visit, sent={})
            _admit(call, role)
            if request.method not in ("GET", "HEAD"):
                call = Call(site=site, request=request, visit=visit, sent=await _sent(request))
            if changes:
                _check_meant(call)
            response = await run_in_threadpool(handler, call)
        except (Refused, BadInput, BoxError) as error:
            refusal = _refusal(error)
            if page and call is not None and _may_sign_in(call, refusal):
                return RedirectResponse(call.url("/login") + _back(request), status_code=303)
            response = failing(call, refusal.status, str(refusal))
            if refusal.status is HTTPStatus.UNAUTHORIZED:
                scheme = "Basic" if site.access.kind == "basic" else "Bearer"
                response.headers["WWW-Authenticate"] = f'{scheme} realm="boxengine"'
        if call is not None:
            site.access.remember(response, request, call.visit)
        return response

    return answer


def _refusal(error: Exception) -> Refused:
    """What the sender is told about an error."""
    match error:
        case Refused():
            return error
        case BadInput():
            return Refused(HTTPStatus.BAD_REQUEST, f"{error}.")
        case UnknownBox():
            return Refused(HTTPStatus.NOT_FOUND, f"{error}.")
        case Unavailable():
            return Refused(HTTPStatus.SERVICE_UNAVAILABLE, _outage(error))
        case _:
            return Refused(HTTPStatus.CONFLICT, masked_text(f"{error}."))


def _may_sign_in(call: Call, refusal: Refused) -> bool:
    return refusal.status is HTTPStatus.UNAUTHORIZED and call.site.access.kind == "token"


def api_failure(_call: Call | None, status: HTTPStatus, text: str) -> Response:
    """An error as JSON."""
    return Json({"error": text}, status_code=status)


def _admit(call: Call, role: Role | None) -> None:
    if role is None:
        return
    if call.who.role < role:
        raise Refused(HTTPStatus.FORBIDDEN, ONLY_LOOKS)


def _check_meant(call: Call) -> None:
    given = call.request.headers.get(CSRF_HEADER) or call.sent.get(CSRF_FIELD)
    if not call.site.access.is_meant(call.request, call.visit, given if isinstance(given, str) else ""):
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "This did not come from a page of this console, or from one that is too old. Go back and load that page again. "
            "If that does not help, a proxy does not pass on the name under which you reach the console (Host).",
        )


async def _sent(request: Request) -> Mapping[str, Any]:
    """The parsed body, which may have at most ``LARGEST_BODY`` bytes."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_BODY:
                raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {LARGEST_BODY >> 10} KiB are read.")
    except ClientDisconnect as error:
        raise BadInput("the body ended too early") from error
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body:
        return {}
    if kind == "application/x-www-form-urlencoded":
        return _form(body)
    if kind == "application/json":
        return _object(body)
    raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Expected application/json.")


def _form(body: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise BadInput("the form is not understood") from error
    found: dict[str, Any] = {}
    for name, value in pairs:
        found[name] = [*_listed(found[name]), value] if name in found else value
    return found


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput("the body is not JSON") from error
    if not isinstance(found, dict):
        raise BadInput("the body: expected a JSON object")
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _outage(error: Unavailable) -> str:
    text = masked_text(str(error))
    if "statement timeout" in text or "max_statement_time" in text or "maximum statement execution time" in text:
        return "The database broke the question off because it took too long. Narrow it: a status, a shorter time."
    return f"{text[0].upper()}{text[1:]}."


def _back(request: Request) -> str:
    """Where to go after signing in: to this page, or to the one whose form was sent, because a form's target is no page."""
    page = str(request.url) if request.method in ("GET", "HEAD") else request.headers.get("referer", "")
    try:
        url = urlsplit(page)
    except ValueError:
        return ""
    query = f"?{url.query}" if url.query else ""
    path = url.path.removeprefix(str(request.scope.get("root_path", ""))) or "/"
    return f"?next={quote(path + query, safe='')}" if path != "/" else ""
