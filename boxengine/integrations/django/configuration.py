"""``settings.BOXENGINE`` as boxengine's configuration, completed from what Django knows already."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from boxengine.app.boxes import Boxes
from boxengine.domain.box import BoxType
from boxengine.integrations.django.models import InboxItem, OutboxItem
from boxengine.settings import load_for_creating
from boxengine.settings.names import box_name

DATABASE = "BOXENGINE_DJANGO_DATABASE_URL"
"""The environment variable by which the worker gets the database's URL: a password does not belong in a file."""
SET_UP = "boxengine.integrations.django.setup"
AROUND = "boxengine.integrations.django.middleware.FreshConnections"
_DIALECTS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}


@cache
def boxes() -> Boxes:
    """The configuration of this process, to create items with.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    environ = {**os.environ, DATABASE: database_url()}
    with configuration_file() as path:
        return Boxes(load_for_creating([path], env=None, environ=environ, cwd=Path.cwd()))


def completed() -> dict[str, Any]:
    """``settings.BOXENGINE`` with the boxes of all models, the database, and what the worker needs to use Django."""
    given = getattr(settings, "BOXENGINE", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(
            f"BOXENGINE must be a dict with boxengine's configuration, not {type(given).__name__}"
        )
    found: dict[str, Any] = deepcopy(dict(given))
    own = found.get("app", [])
    found["app"] = [SET_UP, *([own] if isinstance(own, str) else own)]
    found.setdefault("database", {}).setdefault("url", f"${{{DATABASE}}}")
    around = found.setdefault("middlewares", {}).setdefault("batch_process", [])
    around.insert(0, AROUND)
    for model in models():
        section = "outbox_items" if model.box_type is BoxType.OUTBOX else "inbox_items"
        box = found.setdefault(section, {}).setdefault(box_name(model), {})
        box.setdefault("table", model._meta.db_table)  # noqa: SLF001 - Django's public way to a model's table
    return found


def models() -> list[type[OutboxItem | InboxItem]]:
    """All concrete models of boxes, in the order in which Django knows them."""
    return [model for model in apps.get_models() if issubclass(model, OutboxItem | InboxItem)]


@contextmanager
def configuration_file() -> Iterator[Path]:
    """The completed configuration as a file that only this account can read, for as long as the block runs."""
    with tempfile.NamedTemporaryFile("w", prefix="boxengine-", suffix=".yml", encoding="utf-8") as file:
        yaml.safe_dump(completed(), file, sort_keys=False)
        file.flush()
        yield Path(file.name)


def database_url(alias: str | None = None) -> str:
    """SQLAlchemy's URL of one of Django's databases.

    Args:
        alias: None: the one that ``BOXENGINE_DATABASE`` names, else ``default``.

    Raises:
        ImproperlyConfigured: a worker cannot use that database.
    """
    alias = alias or getattr(settings, "BOXENGINE_DATABASE", "default")
    connection = connections[alias]
    dialect = _DIALECTS.get(connection.vendor)
    if dialect is None:
        known = "boxengine works with PostgreSQL, MySQL and MariaDB"
        raise ImproperlyConfigured(f"{known}; DATABASES[{alias!r}] is {connection.vendor}")
    found = connection.settings_dict
    user = quote(str(found.get("USER") or ""), safe="")
    password = quote(str(found.get("PASSWORD") or ""), safe="")
    host, port = str(found.get("HOST") or ""), str(found.get("PORT") or "")
    account = f"{user}:{password}@" if password else f"{user}@" if user else ""
    name = quote(str(found["NAME"]), safe="")
    if host.startswith("/"):
        return f"{dialect}://{account}/{name}?host={quote(host, safe='')}" + (f"&port={port}" if port else "")
    return f"{dialect}://{account}{host}{f':{port}' if port else ''}/{name}"
