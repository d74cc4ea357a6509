"""What resolution comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from boxengine.engine.delivering.calls.pipeline import Middlewares, Pipeline
from boxengine.engine.jobs.pipeline import JobPipeline
from boxengine.settings.schema import Settings

if TYPE_CHECKING:
    from boxengine.ports import ErrorTracker


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings and the objects they name."""

    settings: Settings
    pipelines: Mapping[str, Pipeline]
    """By box name, outbox first, in the order of the file."""
    middlewares: Middlewares
    error_tracker: ErrorTracker | None
    """None: errors go to the log."""
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By the name of an inbox box: the arguments of its Kafka consumers (``topics``, ``group``, ``concurrency``,
    ``bootstrap_servers``, ``config``), the top level's ``kafka`` worked in, and ``attributes``: callables of a message
    by the item's attribute. Boxes without a source are left out."""
    jobs: Mapping[str, JobPipeline] = field(default_factory=dict)
    """Boxes of long jobs, by name."""
    logs: Mapping[str, Pipeline] = field(default_factory=dict)
    """By name, boxes that are only written to: their subscriptions, which are among the pipelines, deliver from them."""

    @property
    def written(self) -> Mapping[str, Pipeline]:
        """By box name, the pipelines that items are created with."""
        own = {name: pipeline for name, pipeline in self.pipelines.items() if pipeline.box.subscription is None}
        return {**own, **self.logs}

    def readers(self, name: str) -> list[str]:
        """Names of the boxes that deliver what is created under this name: itself, or its subscriptions."""
        return [each for each, pipeline in self.pipelines.items() if name in (each, pipeline.box.source.name)]
