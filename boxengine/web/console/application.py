"""The console as an ASGI application: every page, every route of the API, and what holds for all of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from boxengine.app.boxes import Boxes
from boxengine.app.servers.connected import Patience, Servers, connect
from boxengine.domain.box import BoxType
from boxengine.web.console import api, job_api, job_pages, job_routes, openapi, pages, reference
from boxengine.web.console.access import Access, Authenticate, Authentication, Role
from boxengine.web.console.acting import Polling
from boxengine.web.console.answers import Json
from boxengine.web.console.calls import Handler, api_failure, endpoint
from boxengine.web.console.errands import Errands
from boxengine.web.console.events import Events
from boxengine.web.console.guard import Guard
from boxengine.web.console.hiding import Hiding
from boxengine.web.console.rendering import STATIC
from boxengine.web.console.site import Site

logger = logging.getLogger(__name__)


def build(
    boxes: Boxes,
    *,
    authenticate: Authenticate | None = None,
    authentication: Authentication | None = None,
    token: str | None = None,
    read_only: bool = False,
    hosts: Sequence[str] = (),
    servers: Servers | None = None,
) -> Starlette:
    """The application; no connection is made yet.

    Args:
        authenticate: the application's own authentication.
        authentication: token, basic or none; None: as configured.
        token: lets its holder operate, if the configuration has no token.
        read_only: nobody may change anything.
        hosts: host names to answer to, in addition to the configured ones; with neither, any name works.
        servers: the servers to use; None: those of the configuration.

    Raises:
        BoxError: a token is needed and there is none, or the settings of a server make no sense.
    """
    chosen = boxes.resolved.settings.console
    configured = chosen.operate_token or chosen.read_token
    servers = servers or connect(boxes.resolved.settings, patience=Patience())
    access = Access(
        authentication=authentication or chosen.authentication,
        operate_token=chosen.operate_token if configured else token,
        read_token=chosen.read_token,
        secret=chosen.secret,
        authenticate=authenticate,
        read_only=read_only,
    )
    site = Site(
        boxes=boxes,
        servers=servers,
        access=access,
        hiding=Hiding(chosen.hide),
        read_only=read_only,
        trace_url=chosen.trace_url,
        errands=Errands(servers.trail, servers.clock),
    )
    application = Starlette(
        routes=routes(site),
        middleware=[Middleware(Guard, hosts=[*chosen.allowed_hosts, *hosts])],
        exception_handlers={HTTPException: _http_error, Exception: _broken},
    )
    application.state.site = site
    return application


def routes(site: Site) -> list[BaseRoute]:
    """All routes of the console."""
    view = partial(_page, site, role=Role.READ)
    change = partial(_page, site, role=Role.OPERATE, changes=True, methods=["POST"])
    ask = partial(_page, site, role=Role.OPERATE)
    read = partial(_api, site, role=Role.READ)
    write = partial(_api, site, role=Role.OPERATE, changes=True, methods=["POST"])
    return [
        view("/", pages.overview),
        view("/boxes/{box}", pages.box),
        view("/boxes/{box}/items", pages.items),
        view("/boxes/{box}/log", pages.log),
        view("/boxes/{box}/items/{item}", pages.item),
        ask("/boxes/{box}/act", pages.question),
        change("/boxes/{box}/act", pages.act),
        ask("/boxes/{box}/polling", pages.ask_polling),
        change("/boxes/{box}/polling", pages.polling),
        view("/boxes/{box}/jobs", job_pages.jobs),
        ask("/boxes/{box}/jobs/act", job_pages.question),
        change("/boxes/{box}/jobs/act", job_pages.act),
        view("/boxes/{box}/jobs/count", job_pages.count, changes=True, methods=["POST"]),
        view("/boxes/{box}/jobs/{job}", job_pages.job),
        view("/boxes/{box}/count", pages.count, changes=True, methods=["POST"]),
        view("/jobs/{job}", pages.errand),
        view("/jobs/{job}/cancel", pages.cancel, changes=True, methods=["POST"]),
        view("/workers", pages.workers),
        view("/doctor", pages.doctor),
        view("/trail", pages.trail),
        _page(site, "/login", pages.login, role=None),
        _page(site, "/login", pages.sign_in, role=None, changes=True, methods=["POST"]),
        _page(site, "/logout", pages.sign_out, role=None, changes=True, methods=["POST"]),
        read("/api/overview", api.overview),
        read("/api/boxes", api.boxes),
        read("/api/boxes/{box}", api.box),
        *(write(f"/api/boxes/{{box}}/{each}", partial(api.polling, decision=each)) for each in Polling),
        read("/api/boxes/{box}/history", api.history),
        read("/api/boxes/{box}/log", api.log),
        read("/api/boxes/{box}/items", api.items),
        read("/api/boxes/{box}/items/count", api.count),
        read("/api/boxes/{box}/items/count", api.count_exactly, changes=True, methods=["POST"]),
        read("/api/boxes/{box}/items/{item}", api.item),
        write("/api/boxes/{box}/items/{item}/{action}", api.act_on_one),
        write("/api/boxes/{box}/actions", api.act),
        read("/api/boxes/{box}/jobs", job_api.jobs),
        read("/api/boxes/{box}/jobs/count", job_api.count),
        read("/api/boxes/{box}/jobs/count", job_api.count_exactly, changes=True, methods=["POST"]),
        write("/api/boxes/{box}/jobs/actions", job_api.act),
        read("/api/boxes/{box}/jobs/{job}", job_api.job),
        write("/api/boxes/{box}/jobs/{job}/{action}", job_api.act_on_one),
        read("/api/jobs/{job}", api.errand),
        read("/api/jobs/{job}/cancel", api.cancel, changes=True, methods=["POST"]),
        read("/api/workers", api.workers),
        read("/api/doctor", api.doctor),
        read("/api/trail", api.trail),
        write("/api/v1/jobs/trigger", job_routes.trigger),
        read("/api/v1/jobs/{job_id}/status", job_routes.status),
        write("/api/v1/jobs/{job_id}/cancel", job_routes.cancel),
        read("/status", job_routes.service_status),
        # Needs no thread and no sign-in, unlike the others: it answers a monitor even while those are stuck.
        Route("/health", job_routes.health, methods=["GET"]),
        read("/api/openapi.json", openapi.document),
        *(route for side in BoxType for route in _of_reference(site, side)),
        Route("/events", Events(site).answer, methods=["GET"]),
        Mount("/static", _Static(directory=STATIC)),
    ]


def _of_reference(site: Site, side: BoxType) -> list[Route]:
    """The routes of sbmt-outbox."""
    all_of_them, one = f"/api/{side}_classes", f"/api/{side}_classes/{{box}}"
    change = partial(_api, site, one, role=Role.OPERATE, changes=True)
    return [
        _api(site, all_of_them, partial(reference.index, side=side), role=Role.READ),
        _api(site, one, partial(reference.show, side=side), role=Role.READ),
        change(partial(reference.update, side=side), methods=["PUT"]),
        change(partial(reference.destroy, side=side), methods=["DELETE"]),
    ]


def _route(
    site: Site,
    path: str,
    handler: Handler,
    *,
    page: bool,
    role: Role | None,
    changes: bool = False,
    methods: Sequence[str] = ("GET",),
) -> Route:
    failing = pages.failure if page else api_failure
    answer = endpoint(site, handler, failing=failing, role=role, changes=changes, page=page)
    return Route(path, answer, methods=list(methods))


_page = partial(_route, page=True)
_api = partial(_route, page=False)


class _Static(StaticFiles):
    """Files that change only with a release."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "public, max-age=3600"
        return response


def _http_error(request: Request, error: Exception) -> Response:
    """Answers requests that no route matches, and exceptions of the application's own authentication."""
    found = error if isinstance(error, HTTPException) else HTTPException(HTTPStatus.INTERNAL_SERVER_ERROR)
    text = "There is no such page." if found.status_code == HTTPStatus.NOT_FOUND else str(found.detail)
    if "/api/" in request.url.path:
        return Json({"error": text}, status_code=found.status_code, headers=found.headers)
    return PlainTextResponse(f"{text}\n", status_code=found.status_code, headers=found.headers)


def _broken(request: Request, error: Exception) -> Response:
    """Answers an unexpected error; Starlette raises it again, so that it is logged."""
    logger.error("%s could not be answered: %s", request.url.path, type(error).__name__)
    text = "Something went wrong; the log of the console says what."
    if "/api/" in request.url.path:
        return Json({"error": text}, status_code=500)
    return PlainTextResponse(f"{text}\n", status_code=500)
