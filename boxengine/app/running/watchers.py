"""What watches a worker process: observer, tracer and metrics, and for a child process what it reports to its parent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from boxengine.adapters.telemetry.combined import CombinedObserver, CombinedTracer
from boxengine.adapters.telemetry.ledger import Ledger
from boxengine.adapters.telemetry.log_observer import LogObserver
from boxengine.adapters.telemetry.opentelemetry import OpenTelemetryTracer
from boxengine.adapters.telemetry.progress import missing_publisher, publisher
from boxengine.adapters.telemetry.tags import LogTracer
from boxengine.ports import Clock, Observer, Tracer
from boxengine.settings import Settings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchers:
    """What a worker is assembled with."""

    observer: Observer
    tracer: Tracer
    registry: CollectorRegistry | None
    """The metrics' registry; None without metrics, and in a child process, whose parent exposes them."""
    in_hand: Callable[[], Mapping[int, object]]
    """What each thread is working on, by thread identifier."""
    health: Mapping[str, Any] = field(default_factory=dict)
    """Options of ``Health``."""


def watchers(settings: Settings, *, clock: Clock, partitions: int, ledger: Ledger | None) -> Watchers:
    """Args:
    partitions: of the poller.
    ledger: where a child process keeps its numbers for its parent; None: there is no parent.
    """
    tracing = OpenTelemetryTracer(clock=clock, item_spans=settings.tracing.item_spans)
    noting = LogTracer()
    tracer = CombinedTracer([tracing, noting])
    health = {"publish": publisher(ledger), "publish_missing": missing_publisher(ledger)} if ledger else {}
    if not settings.metrics.enabled:
        return Watchers(observer=LogObserver(), tracer=tracer, registry=None, in_hand=noting.in_hand, health=health)

    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - only where somebody looks at metrics

    from boxengine.adapters.telemetry.prometheus import PrometheusObserver  # noqa: PLC0415

    registry = None if ledger else CollectorRegistry()
    counting = PrometheusObserver(clock=clock, partitions=partitions, ledger=ledger, registry=registry)
    observer = CombinedObserver([counting, LogObserver()])
    return Watchers(observer=observer, tracer=tracer, registry=registry, in_hand=noting.in_hand, health=health)
