"""The backend for Django's Tasks framework: enqueued in the caller's transaction, run by a worker, and read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.integration.django.project import DjangoProject

MODELS = """
    from django.db import models

    from boxengine.integrations.django.models import TaskItem


    class Order(models.Model):
        what = models.CharField(max_length=100)
        receipts = models.IntegerField(default=0)


    class Task(TaskItem):
        pass
    """
TASKS = """
    try:
        from django.tasks import task
    except ModuleNotFoundError:
        from django_tasks import task

    from orders.models import Order


    class Refused(Exception):
        pass


    @task
    def send_receipt(order_id, *, copies=1):
        Order.objects.filter(pk=order_id).update(receipts=copies)
        return {"sent": order_id}


    @task
    async def wait_for(seconds):
        return "waited"


    @task(takes_context=True)
    def second_time_lucky(context):
        if context.attempt < 2:
            raise Refused("the printer is out of paper")
        return context.attempt


    @task
    def never(text):
        raise Refused(text)


    @task
    def unreadable():
        return object()
    """
SETTINGS = """
    from importlib.util import find_spec

    BOXENGINE = {
        "redis": {"url": os.environ["REDIS_URL"]},
        "probes": {"enabled": False},
        "outbox_items": {"task": {"max_retries": 1, "minimal_retry_interval": "PT0.1S"}},
    }
    if find_spec("django.tasks") is None:
        INSTALLED_APPS.append("django_tasks")
    TASKS = {
        "default": {
            "BACKEND": "boxengine.integrations.django.tasks.TaskBackend",
            "OPTIONS": {"model": "orders.Task"},
        }
    }
    """
HEAD = """
    from datetime import timedelta
    from django.db import transaction
    from django.utils import timezone
    from orders import tasks
    from orders.models import Order, Task
    from boxengine.integrations.django.tasks.framework import TaskResultDoesNotExist, TaskResultStatus
    """


def _written(project: DjangoProject) -> DjangoProject:
    project.configure(SETTINGS)
    project.write("orders/models.py", MODELS)
    project.write("orders/tasks.py", TASKS)
    project.write("orders/admin.py", "")
    return project


@pytest.fixture
def shop(blank: DjangoProject) -> DjangoProject:
    _written(blank).set_up()
    return blank


def test_tasks_run_once_their_transaction_has_committed_and_their_results_are_read_back(shop: DjangoProject) -> None:
    shop.python(
        """
    order = Order.objects.create(what="bicycle")
    with transaction.atomic():
        sent = tasks.send_receipt.enqueue(order.pk, copies=2)
        assert sent.status == TaskResultStatus.READY and sent.args == [order.pk] and sent.attempts == 0
    try:
        with transaction.atomic():
            gone = tasks.send_receipt.enqueue(order.pk, copies=99)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    try:
        tasks.send_receipt.get_result(gone.id)
    except TaskResultDoesNotExist:
        pass
    else:
        raise AssertionError("a task that was rolled back")
    for task, args in (
        (tasks.wait_for, [1]), (tasks.second_time_lucky, []), (tasks.never, ["no"]), (tasks.unreadable, []),
    ):
        task.enqueue(*args)
    tasks.wait_for.using(run_after=timezone.now() + timedelta(days=1)).enqueue(1)
    assert Task.objects.count() == 6
    """,
        head=HEAD,
    )
    with shop.worker():
        eventually(
            lambda: (
                "1 unfinished" in shop.python("print(Task.objects.filter(status=0).count(), 'unfinished')", head=HEAD)
            )
        )
    shop.python(
        """
    sent, waited, lucky, never, unreadable, later = (
        task.get_result(str(row.pk))
        for task, row in zip(
            (tasks.send_receipt, tasks.wait_for, tasks.second_time_lucky, tasks.never, tasks.unreadable, tasks.wait_for),
            Task.objects.order_by("pk"), strict=True,
        )
    )
    order = Order.objects.get()
    assert order.receipts == 2 and sent.return_value == {"sent": order.pk}
    assert sent.enqueued_at <= sent.started_at <= sent.finished_at and sent.attempts == 1 and not sent.errors
    assert sent.kwargs == {"copies": 2} and waited.return_value == "waited"
    assert lucky.return_value == 2 and lucky.attempts == 2 and lucky.status == TaskResultStatus.SUCCESSFUL
    assert never.status == TaskResultStatus.FAILED and never.attempts == 2 and never.is_finished
    assert [error.exception_class for error in never.errors] == [tasks.Refused]
    assert never.errors[0].traceback.startswith("Traceback") and never.errors[0].traceback.endswith("Refused: no\\n")
    assert unreadable.errors[0].exception_class is TypeError
    assert later.status == TaskResultStatus.READY and later.task.run_after > timezone.now() and later.finished_at is None
    never.refresh()
    """,
        head=HEAD,
    )
    log = (shop.folder / "worker.log").read_text()
    assert "orders.tasks.never state=FAILED" in log
    assert "orders.tasks.send_receipt state=SUCCESSFUL" in log


def test_what_the_backend_cannot_do_is_refused_when_it_is_asked_for(fresh: DjangoProject) -> None:
    _written(fresh)
    fresh.python(
        """
    for wrong in (
        lambda: tasks.never.using(priority=5),
        lambda: tasks.never.using(queue_name="mail"),
        lambda: tasks.never.enqueue(object()),
    ):
        try:
            wrong()
        except Exception as error:
            assert type(error).__name__ in ("InvalidTask", "InvalidTaskError", "TypeError"), error
        else:
            raise AssertionError
    """,
        head=HEAD,
    )


def test_a_backend_without_a_model_of_tasks_is_found_by_djangos_checks(fresh: DjangoProject) -> None:
    _written(fresh)
    fresh.configure(SETTINGS.replace('"orders.Task"', '"orders.Order"'))
    assert "Order is none" in fresh.manage("check", expect=1)
    fresh.configure(SETTINGS.replace('"OPTIONS": {"model": "orders.Task"},', ""))
    assert "boxengine.E003" in fresh.manage("check", expect=1)


def test_without_use_tz_a_task_and_those_who_read_its_result_have_moments_in_djangos_zone(
    tmp_path: Path, mysql_url: str, redis_url: str
) -> None:
    shop = _written(DjangoProject(tmp_path, database=mysql_url, redis=redis_url))
    settings = (shop.folder / "settings.py").read_text()
    shop.write("settings.py", settings.replace("USE_TZ = True", 'USE_TZ = False\nTIME_ZONE = "Asia/Tokyo"'))
    with (shop.folder / "orders/tasks.py").open("a") as file:
        file.write(
            "\n\n@task(takes_context=True)\ndef age(context):\n"
            "    from django.utils import timezone\n"
            "    return (timezone.now() - context.task_result.enqueued_at).total_seconds()\n"
        )
    shop.set_up()
    shop.python("tasks.age.using(run_after=timezone.now() - timedelta(hours=1)).enqueue()", head=HEAD)
    with shop.worker():
        eventually(lambda: "status 2" in shop.python("print('status', Task.objects.get().status)", head=HEAD))
    printed = shop.python(
        """
    read = tasks.age.get_result(str(Task.objects.get().pk))
    age = timezone.now() - read.enqueued_at
    print("order", read.enqueued_at <= read.started_at <= read.finished_at)
    print("ages", 0 <= read.return_value < 3600, timedelta(0) <= age < timedelta(hours=1))
    """,
        head=HEAD,
    )
    assert "order True" in printed
    assert "ages True True" in printed


def test_no_task_fails_or_runs_once_more_for_what_receivers_of_signals_raise(fresh: DjangoProject) -> None:
    _written(fresh)
    with (fresh.folder / "orders/tasks.py").open("a") as file:
        file.write(
            "\n\nfrom boxengine.integrations.django.tasks.framework import task_finished, task_started\n\n\n"
            'def measure(**sent):\n    raise Refused("nobody answers")\n\n\n'
            "task_started.connect(measure)\ntask_finished.connect(measure)\n"
        )
    fresh.set_up()
    fresh.python(
        """
    tasks.send_receipt.enqueue(Order.objects.create(what="bicycle").pk)
    tasks.never.enqueue("no")
    """,
        head=HEAD,
    )
    with fresh.worker():
        eventually(lambda: "0 left" in fresh.python("print(Task.objects.filter(status=0).count(), 'left')", head=HEAD))
    fresh.python(
        """
    sent, never = (task.get_result(str(row.pk)) for task, row in zip(
        (tasks.send_receipt, tasks.never), Task.objects.order_by("pk"), strict=True
    ))
    assert sent.status == TaskResultStatus.SUCCESSFUL and sent.attempts == 1
    assert never.attempts == 2 and never.errors[0].traceback.endswith("Refused: no\\n")
    """,
        head=HEAD,
    )
    assert "nobody answers" in (fresh.folder / "worker.log").read_text()
