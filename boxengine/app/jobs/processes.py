"""The child processes of job boxes with ``executor: process``, as the worker makes them."""

from __future__ import annotations

import logging
import sys

from boxengine.adapters.processes.child import Start
from boxengine.adapters.processes.pool import ProcessPool
from boxengine.adapters.telemetry import logs
from boxengine.app.jobs import process
from boxengine.domain.jobs import Executor
from boxengine.engine.jobs.pipeline import JobPipeline


def process_pool(pipeline: JobPipeline) -> ProcessPool | None:
    """The processes of this box, none of which has begun; None: its handlers run in threads."""
    if pipeline.box.executor is not Executor.PROCESS:
        return None
    shown = logs.in_force()
    setup = process.Setup(
        box=pipeline.box.name,
        handlers=pipeline.paths,
        contracts=pipeline.contract_paths,
        log_format=None if shown is None else shown[0],
        log_level=logging.getLogger("boxengine").getEffectiveLevel() if shown is None else shown[1],
    )
    start = Start(module=process.__name__, name=pipeline.box.label, path=sys.path.copy(), setup=setup)
    return ProcessPool(start)
