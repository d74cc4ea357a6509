"""Which boxes a worker works on, and what the command line may override."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boxengine.engine.delivering.pipeline import Pipeline
from boxengine.engine.jobs.pipeline import JobPipeline
from boxengine.errors import UnknownBox
from boxengine.settings import Resolved


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the command line may override; None: as configured."""

    boxes: Sequence[str] = ()
    """Empty: all boxes."""
    processor_threads: int | None = None
    partitions: int | None = None
    poller_threads: int | None = None
    tactic: str | None = None


AS_CONFIGURED = Choices()


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
