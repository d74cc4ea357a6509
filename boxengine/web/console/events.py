"""Sends each new look to the open tabs, as server-sent events."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from boxengine.app.overview import Overview
from boxengine.errors import UnknownBox
from boxengine.web.console.access import Role
from boxengine.web.console.calls import Call, api_failure
from boxengine.web.console.rendering import fragment
from boxengine.web.console.site import Site

MOST_TABS = 200
QUIET = 15.0
"""Seconds without a look after which a tab is sent a sign of life."""
LASTS = 3600.0
"""Seconds until a stream ends; the tab then reconnects, and so authenticates again."""
PAGES = {"overview": "_overview.html", "box": "_box.html", "job-box": "_job_box.html", "workers": "_workers.html"}


class Events:
    """The streams of one console."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._tabs = 0
        self._lock = threading.Lock()
        self._look: Overview | None = None
        """The look that was drawn last."""
        self._drawn: dict[tuple[str, str | None, str, bool], str] = {}
        """Its pages. Those of earlier looks are dropped: each would keep its whole look, also after its last tab has closed."""

    async def answer(self, request: Request) -> Response:
        """A stream of looks, or the reason why there is none."""
        visit = await self._site.access.visit(request)
        if visit.who is None or visit.who.role < Role.READ:
            return api_failure(None, HTTPStatus.UNAUTHORIZED, "Sign in first.")
        if self._tabs >= MOST_TABS:
            return api_failure(None, HTTPStatus.SERVICE_UNAVAILABLE, "Too many tabs are open.")
        call = Call(site=self._site, request=request, visit=visit, sent={})
        kind, _, name = request.query_params.get("page", "overview").partition(":")
        if kind not in PAGES:
            return api_failure(call, HTTPStatus.NOT_FOUND, f"page: expected {', '.join(PAGES)}.")
        try:
            box = self._named(kind, name)
        except UnknownBox as error:
            return api_failure(call, HTTPStatus.NOT_FOUND, f"{error}.")
        stream = self._stream(call, kind, box)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _stream(self, call: Call, kind: str, box: str | None) -> AsyncIterator[str]:
        self._tabs += 1
        until = asyncio.get_running_loop().time() + LASTS
        try:
            async with self._site.live.watching() as next_look:
                yield "retry: 3000\n\n"
                while asyncio.get_running_loop().time() < until:
                    try:
                        look = await asyncio.wait_for(next_look(), QUIET)
                    except TimeoutError:
                        silence = self._site.told_in_silence()
                        if silence is None:
                            yield "event: alive\ndata: still here\n\n"
                            continue
                        look = silence
                    yield await run_in_threadpool(self._event, call, look, kind, box)
        finally:
            self._tabs -= 1

    def _named(self, kind: str, name: str) -> str | None:
        """The box that the page is about."""
        match kind:
            case "box":
                return self._site.box(name).name
            case "job-box":
                return self._site.office.box(name).name
            case _:
                return None

    def _event(self, call: Call, look: Overview, kind: str, box: str | None) -> str:
        """The event for a look, rendered once for all tabs that show the same page to people who may do the same."""
        shown = (kind, box, call.url("/"), call.may_operate)
        with self._lock:
            if look is not self._look:
                self._look, self._drawn = look, {}
            event = self._drawn.get(shown)
            if event is None:
                view = None if box is None else look.box(box) if kind == "box" else look.job_box(box)
                html = fragment(call, PAGES[kind], look=look, view=view)
                event = self._drawn[shown] = f"event: look\ndata: {json.dumps(html)}\n\n"
        return event
