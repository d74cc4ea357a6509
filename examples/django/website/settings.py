"""A shop that announces its orders and sends receipts."""

import os
from importlib.util import find_spec
from typing import Any

SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["boxengine.integrations.django", "orders"]
if find_spec("django.tasks") is None:  # before Django 6.0
    INSTALLED_APPS.append("django_tasks")

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "postgres"),
        "USER": os.environ.get("PGUSER", "postgres"),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ.get("PGHOST", "127.0.0.1"),
        "PORT": os.environ.get("PGPORT", "5432"),
    }
}

BOXENGINE: dict[str, Any] = {
    "redis": {"url": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")},
    "probes": {"enabled": os.environ.get("PROBES", "on") == "on"},
    "outbox_items": {
        "order_outbox_item": {
            "strict_order": "key",
            "max_retries": 5,
            "transports": {"orders.transports.Announce": {}},
        },
        "task": {"max_retries": 5},
    },
}

TASKS = {
    "default": {
        "BACKEND": "boxengine.integrations.django.tasks.TaskBackend",
        "OPTIONS": {"model": "orders.Task"},
    }
}
