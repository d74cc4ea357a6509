"""The transport that runs tasks in a worker."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from traceback import format_exception
from typing import Any

from django.utils import timezone
from sqlalchemy import JSON, DateTime, column, table, update
from sqlalchemy.orm import Session

from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.attempt import LONGEST_REASON, ends_the_worker, text_of
from boxengine.errors import Unavailable
from boxengine.integrations.django.moments import as_django_has_it
from boxengine.integrations.django.tasks.framework import (
    TaskContext,
    TaskError,
    TaskResultStatus,
    task_finished,
    task_started,
)
from boxengine.integrations.django.tasks.results import result_with, task_of

_LONGEST_MESSAGE = 1000
"""The most characters of an error's own text before its traceback."""


class RunTask:
    """Runs tasks: the transport of every ``TaskItem`` box that configures no other.

    A task that raises is retried up to its box's ``max_retries``.
    """

    def __call__(self, item: Item, payload: bytes, *, session: Session) -> Failure | None:
        """Runs the task, and stores its return value in the transaction that records the outcome.

        Raises:
            Unavailable: the task raised it; the task is postponed, and no attempt is counted.
            ImportError, TypeError: the item does not name a task.
        """
        given = json.loads(payload)
        task = task_of(item.event_name, given)
        started_at = datetime.now(UTC)
        result = result_with(
            task,
            str(item.id),
            args=given["args"],
            kwargs=given["kwargs"],
            backend=given["backend"],
            enqueued_at=as_django_has_it(item.created_at),
            status=TaskResultStatus.RUNNING,
            attempts=item.errors_count + 1,
            started_at=as_django_has_it(started_at),
            last_attempted_at=as_django_has_it(started_at),
        )
        backend = type(task.get_backend())
        # Robust: for what a receiver raises, which Django logs, the task neither fails nor runs once more.
        task_started.send_robust(backend, task_result=result)
        try:
            returned = _readable(_run(task, result))
        except Unavailable:
            raise
        except BaseException as error:
            if ends_the_worker(error):
                raise
            return _failed(error, item, result, backend)
        _store(session, item, returned, started_at)
        object.__setattr__(result, "_return_value", returned)
        _finish(backend, result, TaskResultStatus.SUCCESSFUL)
        return None


def _run(task: Any, result: Any) -> Any:
    context = (TaskContext(task_result=result),) if task.takes_context else ()
    return task.call(*context, *result.args, **result.kwargs)


def _readable(value: Any) -> Any:
    """The return value as it will be read back; it must be expressible in JSON."""
    return json.loads(json.dumps(value, allow_nan=False))


def _store(session: Session, item: Item, returned: Any, started_at: datetime) -> None:
    schema, _, name = item.box.table.rpartition(".")
    tasks = table(
        name,
        column("id"),
        column("return_value", JSON),
        column("started_at", DateTime(timezone=True)),
        schema=schema or None,
    )
    session.execute(update(tasks).where(tasks.c.id == item.id).values(return_value=returned, started_at=started_at))


def _failed(error: BaseException, item: Item, result: Any, backend: type[Any]) -> Failure:
    path = f"{type(error).__module__}.{type(error).__qualname__}"
    told = "".join(format_exception(error))
    if item.box.exhausted(item.errors_count + 1):
        result.errors.append(TaskError(exception_class_path=path, traceback=told))
        _finish(backend, result, TaskResultStatus.FAILED)
    message = " ".join(text_of(error).split())[:_LONGEST_MESSAGE]
    head = f"{path}: {message}\n"
    return Failure(head + told[-(LONGEST_REASON - len(head)) :])  # the end of a traceback is the most useful part


def _finish(backend: type[Any], result: Any, status: Any) -> None:
    """Sends ``task_finished``. Receivers run before the commit: one that must not see a task twice checks the result's id."""
    object.__setattr__(result, "finished_at", timezone.now())
    object.__setattr__(result, "status", status)
    task_finished.send_robust(backend, task_result=result)
