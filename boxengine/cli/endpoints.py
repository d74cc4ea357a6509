"""The HTTP servers of a worker process: probes and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from boxengine.app.boxes import Boxes
    from boxengine.engine.running.health import Health
    from boxengine.web.server import HttpService


def endpoints(boxes: Boxes, health: Health, registry: CollectorRegistry | None) -> list[HttpService]:
    """The servers that the configuration enables, not started yet.

    Args:
        registry: the registry of the metrics; None only if they are disabled.
    """
    from boxengine.web import probes  # noqa: PLC0415 - see Globals.boxes
    from boxengine.web.server import services  # noqa: PLC0415

    settings = boxes.resolved.settings
    wanted = []
    if settings.probes.enabled:
        wanted.append(("probes.port", settings.probes.port, probes.routes(ready=health.ready, alive=health.alive)))
    if settings.metrics.enabled and registry is not None:
        from boxengine.web import metrics  # noqa: PLC0415 - see watchers

        wanted.append(("metrics.port", settings.metrics.port, metrics.routes(registry)))
    return list(services(wanted))
