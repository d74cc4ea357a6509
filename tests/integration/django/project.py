"""A Django project in its own folder, run as its developer runs it."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import make_url

from tests import prepared

SETTINGS = """
    import os

    SECRET_KEY = "for tests"
    USE_TZ = True
    ROOT_URLCONF = "urls"
    INSTALLED_APPS = [
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "boxengine.integrations.django",
        "orders",
    ]
    # Made from its models, Django's own part takes a third of the time that its migrations take.
    MIGRATION_MODULES = dict.fromkeys(["admin", "auth", "contenttypes", "sessions"])
    MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
    TEMPLATES = [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ]
    DEBUG = True
    DATABASES = {DATABASES}
    if any(each["ENGINE"].endswith("mysql") for each in DATABASES.values()):
        import pymysql

        pymysql.install_as_MySQLdb()
    BOXENGINE = {
        "redis": {"url": os.environ["REDIS_URL"]},
        "probes": {"enabled": False},
        "outbox_items": {
            "order_outbox_item": {
                "strict_order": "key",
                "max_retries": 5,
                "transports": {"orders.transports.Announce": {"path": "announced.txt"}},
            },
        },
        "inbox_items": {"payment_inbox_item": {"transports": {"orders.transports.Pay": {}}}},
    }
    """
MODELS = """
    from django.db import models

    from boxengine.integrations.django.models import InboxItem, OutboxItem


    class Order(models.Model):
        what = models.CharField(max_length=100)
        paid = models.BooleanField(default=False)


    class OrderOutboxItem(OutboxItem):
        tenant = models.CharField(max_length=20, null=True)


    class PaymentInboxItem(InboxItem):
        pass
    """
ADMIN = """
    from django.contrib import admin

    from boxengine.integrations.django.admin import BoxItemAdmin
    from orders.models import OrderOutboxItem


    @admin.register(OrderOutboxItem)
    class OrderOutboxItemAdmin(BoxItemAdmin): ...
    """
URLS = """
    from django.contrib import admin
    from django.urls import path

    urlpatterns = [path("admin/", admin.site.urls)]
    """
TRANSPORTS = """
    from orders.models import Order


    class Announce:
        def __init__(self, *, path):
            self.path = path

        def __call__(self, item, payload):
            assert Order.objects.filter(pk=item.event_key).exists()   # Django's ORM works in a worker
            with open(self.path, "a") as file:
                file.write(f"{item.event_key} {payload.decode()}\\n")


    class Pay:
        def __call__(self, item, payload):
            Order.objects.filter(pk=item.event_key).update(paid=True)
    """


IMPORTS = """
    from django.db import transaction
    from boxengine.integrations.django import create_inbox_item, create_outbox_batch, create_outbox_item
    from orders.models import Order, OrderOutboxItem, PaymentInboxItem
    """


def _django_database(address: str) -> dict[str, str]:
    url = make_url(address)
    engine = "postgresql" if url.get_backend_name() == "postgresql" else "mysql"
    return {
        "ENGINE": f"django.db.backends.{engine}",
        "NAME": url.database or "",
        "USER": url.username or "",
        "PASSWORD": url.password or "",
        "HOST": url.host or "",
        "PORT": str(url.port or ""),
    }


class DjangoProject:
    """``manage.py`` and the files around it."""

    def __init__(self, folder: Path, *, database: str, redis: str, **others: str) -> None:
        """``others``: alias -> URL of further databases."""
        self.folder = folder
        self.migrated = ""
        databases = {alias: _django_database(url) for alias, url in {"default": database, **others}.items()}
        self._environ = {
            **os.environ,
            "REDIS_URL": redis,
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        self.write("settings.py", SETTINGS.replace("{DATABASES}", repr(databases)))
        self.write("orders/__init__.py", "")
        self.write("orders/models.py", MODELS)
        self.write("orders/transports.py", TRANSPORTS)
        self.write("orders/admin.py", ADMIN)
        self.write("urls.py", URLS)
        self.write(
            "manage.py",
            "from django.core.management import execute_from_command_line\nimport sys\n"
            "execute_from_command_line(sys.argv)\n",
        )

    def write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")

    def configure(self, boxes: str) -> None:
        """Replaces the boxes in the settings with these lines."""
        head = (self.folder / "settings.py").read_text().partition("BOXENGINE = {")[0].rstrip()
        self.write("settings.py", f"{head}\n{textwrap.dedent(boxes)}")

    def manage(self, *arguments: str, expect: int = 0) -> str:
        """Runs a command; returns what it printed on both outputs."""
        done = prepared.run(["manage.py", *arguments], cwd=self.folder, env=self._environ)
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == expect, said
        return said

    def set_up(self) -> None:
        """Makes migrations and runs them, in one process: each would set Django up anew."""
        self.migrated = self.manage(
            "shell",
            "--no-imports",
            "--command",
            "from django.core.management import call_command as call\n"
            "call('makemigrations', 'orders', verbosity=0)\n"
            "call('migrate', run_syncdb=True)",
        )

    def migrate(self, *arguments: str) -> str:
        """Runs ``manage.py migrate``; returns its output, which is also kept in ``migrated``."""
        self.migrated = self.manage("migrate", "--run-syncdb", *arguments)
        return self.migrated

    def python(self, code: str, *, head: str = IMPORTS) -> str:
        """Runs code after the head's imports; returns what it printed."""
        return self.manage("shell", "--no-imports", "--command", textwrap.dedent(head) + textwrap.dedent(code))

    @contextmanager
    def worker(self, *arguments: str) -> Iterator[None]:
        """Runs ``manage.py boxengine start``, and stops it with SIGTERM."""
        worker = self.start_worker(*arguments)
        try:
            yield
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(timeout=60) == 0, (self.folder / "worker.log").read_text()
        finally:
            worker.kill()
            worker.wait()

    def start_worker(self, *arguments: str) -> prepared.Process:
        """Starts ``manage.py boxengine start``; the caller stops or kills it."""
        return self.start("boxengine", *arguments, "start")

    def start(self, *arguments: str) -> prepared.Process:
        """Starts ``manage.py`` with these arguments and leaves it running; its output goes to ``worker.log``."""
        with (self.folder / "worker.log").open("a") as log:
            return prepared.start(["manage.py", *arguments], cwd=self.folder, env=self._environ, stderr=log.fileno())

    def announced(self) -> list[str]:
        """What the transport wrote."""
        file = self.folder / "announced.txt"
        return file.read_text().splitlines() if file.exists() else []
