"""``/metrics``: a registry in Prometheus' text format, or OpenMetrics where the client asks for it."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from boxengine.web.server import Request, Response, Route

METRICS = "/metrics"


def routes(registry: CollectorRegistry) -> Mapping[str, Route]:
    """The single route, for scrapers."""

    def answer(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return Response(200, content_type, encode(registry))

    return {METRICS: answer}
