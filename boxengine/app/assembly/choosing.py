"""Which boxes a worker works on, and what the command line may override."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boxengine.engine.delivering.calls.pipeline import Pipeline
from boxengine.engine.jobs.pipeline import JobPipeline
from boxengine.errors import ConfigurationError, UnknownBox
from boxengine.settings import Resolved, Settings
from boxengine.settings.diagnosis import Finding
from boxengine.settings.loading import problems_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the command line may override; None: as configured."""

    boxes: Sequence[str] = ()
    """Empty: all boxes."""
    processor_threads: int | None = None
    partitions: int | None = None
    poller_threads: int | None = None
    tactic: str | None = None

    def applied_to(self, settings: Settings) -> Settings:
        """The settings with the threads of these choices: the database's connections are as many as the threads need."""
        processor, poller = settings.processor, settings.poller
        processors = {"threads_count": self.processor_threads or processor.threads_count}
        pollers = {"threads_count": self.poller_threads or poller.threads_count}
        changes = {"processor": processor.model_copy(update=processors), "poller": poller.model_copy(update=pollers)}
        return settings.model_copy(update=changes)


AS_CONFIGURED = Choices()


def refuse_no_boxes(resolved: Resolved) -> None:
    """A worker without a box would run, deliver nothing, and say nothing.

    Raises:
        ConfigurationError: the configuration has no box of any kind.
    """
    if not (resolved.pipelines or resolved.jobs):
        nothing = Finding((), "there is no box to work on; add one under outbox_items, inbox_items or job_items")
        raise ConfigurationError(problems_of([nothing], resolved.settings.origin))


def choose(resolved: Resolved, names: Sequence[str]) -> dict[str, Pipeline]:
    """The pipelines of the named outboxes and inboxes, or of all if none is named. A log's name stands for its subscriptions.

    Raises:
        UnknownBox: a name is unknown; the error lists the known ones.
    """
    for name in names:
        if name not in resolved.jobs and not resolved.readers(name):
            raise UnknownBox(name, [*resolved.pipelines, *resolved.jobs])
    wanted = [reader for name in names for reader in resolved.readers(name)]
    return {name: pipeline for name, pipeline in resolved.pipelines.items() if not names or name in wanted}


def chosen_jobs(resolved: Resolved, names: Sequence[str]) -> dict[str, JobPipeline]:
    """The job boxes among the named boxes, or all if none is named."""
    return {name: pipeline for name, pipeline in resolved.jobs.items() if not names or name in names}


def is_coordinated(resolved: Resolved, names: Sequence[str]) -> bool:
    """Whether the worker needs Redis: it does unless it runs only long jobs."""
    return bool(choose(resolved, names)) or not chosen_jobs(resolved, names)
