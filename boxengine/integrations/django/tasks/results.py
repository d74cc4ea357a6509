"""Results of tasks, read from their items."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils.module_loading import import_string

from boxengine.domain.item import Status
from boxengine.integrations.django.tasks.framework import Task, TaskError, TaskResult, TaskResultStatus

_STATUSES = {
    Status.PENDING: TaskResultStatus.READY,
    Status.FAILED: TaskResultStatus.FAILED,
    Status.DELIVERED: TaskResultStatus.SUCCESSFUL,
    Status.DISCARDED: TaskResultStatus.FAILED,
}
_RAISED = re.compile(r"\S+ [^:\n]*: (?P<path>[\w.]+): [^\n]*\n(?P<traceback>.*)", re.DOTALL)
"""Parses the ``error_log`` of a task that raised: time, transport, class, message, traceback."""


def task_of(path: str | None, payload: Mapping[str, Any]) -> Any:
    """The task at that dotted path, as it was enqueued.

    Raises:
        ImportError: there is nothing at the path.
        TypeError: the path names something that is not a task.
    """
    found = import_string(path or "")
    if not isinstance(found, Task):
        raise TypeError(f"{path} is not a task; decorate the function with @task")
    return found.using(queue_name=payload["queue_name"], backend=payload["backend"])


def result_with(
    task: Any,
    result_id: str,
    *,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    backend: str,
    enqueued_at: datetime,
    status: Any = TaskResultStatus.READY,
    attempts: int = 0,
    started_at: datetime | None = None,
    last_attempted_at: datetime | None = None,
    finished_at: datetime | None = None,
    errors: Sequence[Any] = (),
) -> Any:
    """A result. The workers that made the attempts are not recorded: the framework only counts their ids, which are empty."""
    return TaskResult(
        task=task,
        id=result_id,
        status=status,
        enqueued_at=enqueued_at,
        started_at=started_at,
        last_attempted_at=last_attempted_at,
        finished_at=finished_at,
        args=list(args),
        kwargs=dict(kwargs),
        backend=backend,
        errors=list(errors),
        worker_ids=[""] * attempts,
    )


def result_of(row: Any) -> Any:
    """The result of a task, from its row as Django's ORM reads it.

    Raises:
        ImportError: the task's function no longer exists.
    """
    payload = json.loads(bytes(row.payload))
    status = _STATUSES[Status(row.status)]
    succeeded = status == TaskResultStatus.SUCCESSFUL
    finished = succeeded or status == TaskResultStatus.FAILED
    result = result_with(
        task_of(row.event_name, payload).using(run_after=row.available_at),
        str(row.pk),
        args=payload["args"],
        kwargs=payload["kwargs"],
        backend=payload["backend"],
        enqueued_at=row.created_at,
        status=status,
        attempts=row.errors_count + succeeded,
        started_at=row.started_at,
        last_attempted_at=row.processed_at,
        finished_at=row.processed_at if finished else None,
        errors=_errors(row.error_log),
    )
    if succeeded:
        object.__setattr__(result, "_return_value", row.return_value)
    return result


def _errors(error_log: str | None) -> list[Any]:
    """The error of the last attempt; earlier ones are not kept."""
    raised = _RAISED.match(error_log or "")
    return [TaskError(exception_class_path=raised["path"], traceback=raised["traceback"])] if raised else []
