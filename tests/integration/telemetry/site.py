"""One configuration and a worker put together as ``boxengine start`` does, with its probes and metrics on free ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

import boxengine
from boxengine.adapters.telemetry.combined import CombinedObserver
from boxengine.app import assembly
from boxengine.app.running.watchers import watchers
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.cli.endpoints import endpoints
from boxengine.web.server import HttpService
from tests.integration.engine.rig import Rig
from tests.integration.engine.watcher import Watcher
from tests.web.test_server import body, get

Samples = dict[str, list[tuple[Mapping[str, str], float]]]


def total(samples: Samples, metric: str, labels: Mapping[str, str]) -> float:
    """The sum over all samples that have these labels; 0 where there is none."""
    return sum(value for have, value in samples.get(metric, []) if have.items() >= labels.items())


@dataclass(frozen=True)
class Running:
    """A worker at work."""

    watcher: Watcher
    boxes: boxengine.Boxes
    """Watched by the worker's own observer: what an item's handler creates items with."""
    service: HttpService

    def scrape(self) -> Samples:
        """All samples by name, as a scraper sees them."""
        status, _, text = get(self.service.port, "/metrics")
        assert status == 200
        found: Samples = {}
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found

    def total(self, metric: str, /, **labels: str) -> float:
        """The sum over all samples that have these labels; 0 where there is none."""
        return total(self.scrape(), metric, labels)

    def ask(self, path: str) -> tuple[int, list[str]]:
        """A probe's status and reasons."""
        status, answer = body(get(self.service.port, path))
        return status, answer["reasons"]


class Site(Rig):
    """A ``Rig`` whose workers are watched as real ones are. Both ports are one free port."""

    def __init__(self, folder: Path, *, database: str, redis: str, **config: Any) -> None:
        shown = {"metrics": {"enabled": True, "port": 0}, "probes": {"enabled": True, "port": 0}}
        super().__init__(folder, database=database, redis=redis, **{**shown, **config})

    @contextmanager
    def running(self, *, patience: float = 30, stuck: bool = False) -> Iterator[Running]:
        """Args:
        patience: seconds that the worker has to stop.
        stuck: whether threads are expected that do not.
        """
        resolved, watcher = self.boxes.resolved, Watcher()
        connected = connect_servers(resolved.settings)
        partitions = resolved.settings.poller.concurrency
        watching = watchers(resolved.settings, clock=connected.clock, partitions=partitions, ledger=None)
        observer = CombinedObserver([watching.observer, watcher])
        health = assembly.health(connected, check_lifetime=timedelta(0))
        (service,) = endpoints(self.boxes, health, watching.registry)
        worker = assembly.assemble(
            resolved, connected, observer=observer, tracer=watching.tracer, health=health, services=[service]
        )
        worker.start()
        try:
            yield Running(watcher, boxengine.Boxes(resolved, observer=observer, tracer=watching.tracer), service)
        finally:
            left = worker.stop(within=timedelta(seconds=patience))
        assert bool(left) is stuck, left

    def trace(self, **options: Any) -> None:
        """Changes the box's own description, as a model's methods would."""
        pipelines = {
            name: replace(pipeline, box=replace(pipeline.box, **options))
            for name, pipeline in self.boxes.resolved.pipelines.items()
        }
        self._change(pipelines=pipelines)
