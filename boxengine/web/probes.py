"""``/readiness/outbox`` and ``/liveness/outbox``, as sbmt-outbox names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

from boxengine.engine.running.health import HealthVerdict
from boxengine.web.server import Request, Response, Route

READINESS = "/readiness/outbox"
LIVENESS = "/liveness/outbox"


def routes(*, ready: Callable[[], HealthVerdict], alive: Callable[[], HealthVerdict]) -> Mapping[str, Route]:
    """The two probes: 200 or 503, and the reasons as JSON."""
    return {READINESS: _probe(ready), LIVENESS: _probe(alive)}


def _probe(ask: Callable[[], HealthVerdict]) -> Route:
    def answer(request: Request) -> Response:  # noqa: ARG001 - the routes' common shape
        verdict = ask()
        status = HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE
        return Response.json({"ok": verdict.ok, "reasons": list(verdict.reasons)}, status=status)

    return answer
