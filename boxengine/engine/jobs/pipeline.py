"""A box of jobs and the code that runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from boxengine.domain.contracts import Contract
from boxengine.domain.jobs import JobBox
from boxengine.domain.schedules import Schedule
from boxengine.engine.jobs.batch_handler import BatchHandler

if TYPE_CHECKING:
    from boxengine.engine.jobs.handle import Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPipeline:
    """One box as the configuration describes it."""

    box: JobBox
    model: type | None
    """The user's class; None: the engine makes one."""
    tasks: frozenset[str]
    handlers: Mapping[str, Handler | BatchHandler] = field(default_factory=dict)
    """The handlers by task; empty in a process that only creates jobs."""
    schedules: Sequence[Schedule] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    """The handlers' dotted paths by task, from which child processes load them."""
    contract_paths: Mapping[str, str] = field(default_factory=dict)
    contracts: Mapping[str, type[Contract]] = field(default_factory=dict)
    """The codecs of arguments by task; tasks without one take JSON."""

    @property
    def each(self) -> int:
        """How many jobs a thread takes at once."""
        of_many = any(isinstance(handler, BatchHandler) for handler in self.handlers.values())
        return self.box.batch_size if of_many else 1
