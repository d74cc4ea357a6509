"""A backend for Django's Tasks framework: a task is enqueued in the caller's transaction, and boxengine's worker runs it.

In ``settings.py``::

    TASKS = {"default": {"BACKEND": "boxengine.integrations.django.tasks.TaskBackend", "OPTIONS": {"model": "shop.Task"}}}

In ``shop/models.py``::

    from boxengine.integrations.django.models import TaskItem

    class Task(TaskItem): ...

Then ``send_receipt.enqueue(order.pk)`` commits or rolls back with the rest of the transaction, and
``manage.py boxengine start`` runs the task.
"""

from boxengine.integrations.django.tasks.backend import TaskBackend

__all__ = ["TaskBackend"]
