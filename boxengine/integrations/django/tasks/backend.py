"""The backend behind ``task.enqueue()`` and ``task.get_result()``."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.utils import timezone

from boxengine.integrations.django.creating import create_outbox_item
from boxengine.integrations.django.models import TaskItem
from boxengine.integrations.django.tasks.framework import BaseTaskBackend, TaskResultDoesNotExist, task_enqueued
from boxengine.integrations.django.tasks.results import result_of, result_with


class TaskBackend(BaseTaskBackend):
    """Writes tasks as items of the outbox that ``OPTIONS["model"]`` names.

    ``OPTIONS["using"]`` names a database; without it, Django's routers choose. Workers take tasks in the order in which they
    were enqueued, without priorities.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = False

    @property
    def model(self) -> Any:
        """The outbox's model.

        Raises:
            LookupError, ValueError: there is no such model.
        """
        return apps.get_model(self.options.get("model", ""))

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Writes the task in the caller's transaction; the result's ``id`` is the item's.

        Raises:
            InvalidTask: this backend cannot run such a task (``InvalidTaskError`` of ``django-tasks``).
            TypeError: an argument cannot be expressed in JSON.
        """
        self.validate_task(task)
        enqueued = result_with(task, "", args=args, kwargs=kwargs, backend=self.alias, enqueued_at=timezone.now())
        item_id = create_outbox_item(
            self.model,
            using=self.options.get("using"),
            event_key=str(uuid.uuid4()),  # a key of its own, so that no task waits for another
            event_name=task.module_path,
            payload=json.dumps(
                {
                    "args": enqueued.args,
                    "kwargs": enqueued.kwargs,
                    "queue_name": task.queue_name,
                    "backend": self.alias,
                }
            ),
            available_at=task.run_after,
        )
        object.__setattr__(enqueued, "id", str(item_id))
        task_enqueued.send(type(self), task_result=enqueued)
        return enqueued

    def get_result(self, result_id: str) -> Any:
        """The result of a task; its status is READY until the outcome is recorded, even while the task runs.

        Raises:
            TaskResultDoesNotExist: there is no such task, or retention has deleted it.
        """
        rows = self.model._base_manager
        if using := self.options.get("using"):
            rows = rows.using(using)
        try:
            row = rows.get(pk=int(result_id))
        except (ValueError, self.model.DoesNotExist):
            raise TaskResultDoesNotExist(result_id) from None
        return result_of(row)

    def check(self, **_options: Any) -> Iterable[CheckMessage]:
        """Checks the backend's options, for Django's system checks."""
        try:
            found = self.model
        except (LookupError, ValueError) as error:
            told = str(error)
        else:
            if issubclass(found, TaskItem):
                return
            told = f"{found.__name__} is none"
        name = f'TASKS[{self.alias!r}]["OPTIONS"]["model"]'
        hint = 'Derive a model from boxengine.integrations.django.models.TaskItem and name it, as in "shop.Task".'
        yield Error(f"{name} must name a model of tasks: {told}", hint=hint, id="boxengine.E003")
