"""How the arguments of a box's tasks are stored."""

from __future__ import annotations

from boxengine.adapters.contracts import MsgpackArgs
from boxengine.engine.jobs.pipeline import JobPipeline
from boxengine.ports.contracts import ArgsCodec


def codecs_of(pipeline: JobPipeline) -> dict[str, ArgsCodec]:
    """The codecs by task, for tasks that have a contract.

    Raises:
        BoxError: a package that contracts need is not installed.
    """
    return {task: MsgpackArgs(contract) for task, contract in pipeline.contracts.items()}
