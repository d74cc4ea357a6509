"""``settings.BOXENGINE`` as boxengine's configuration, completed with what Django already knows."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import yaml
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import router
from django.utils.functional import Promise

from boxengine.adapters.temporary import spared
from boxengine.domain.box import Box, BoxType, Storage
from boxengine.domain.names import box_name
from boxengine.integrations.django.addresses import database_url
from boxengine.integrations.django.models import InboxItem, OutboxItem, TaskItem

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes

DATABASE = "BOXENGINE_DJANGO_DATABASE_URL"
"""The environment variable that passes the database's URL to the worker: a password does not belong in a file."""
_SERVERS = ("url", "replica_url", "listen_url", "password_file", "password_from")
"""The keys of ``BOXENGINE["database"]`` that say where the database of ``BOXENGINE_DATABASE`` is, and how to log in there."""
SET_UP = "boxengine.integrations.django.setup"
AROUND = "boxengine.integrations.django.middleware.FreshConnections"
_QUOTED = re.compile(r""""?([^"]+)"\."([^"]+)"?""")
"""How Django's users name a table in a schema, for which Django has no word: its own quotes complete it."""
RUN_TASK = "boxengine.integrations.django.tasks.running.RunTask"


def boxes(alias: str | None = None) -> Boxes:
    """The configuration with which this process creates items.

    Args:
        alias: the database for the items; None: the one that ``BOXENGINE_DATABASE`` names, else ``default``.

    Raises:
        ConfigurationError: with every problem that was found.
        ImproperlyConfigured: no worker can use that database.
    """
    alias = alias or main_alias()
    return _boxes(alias, frozenset(environment(alias).items()))  # tests change the database's name while they run


@cache
def _boxes(alias: str, environment_of_alias: frozenset[tuple[str, str]]) -> Boxes:
    from boxengine.app.boxes import Boxes  # noqa: PLC0415 - slow, and every `manage.py` imports this module
    from boxengine.settings import load_for_creating  # noqa: PLC0415

    environ = {**os.environ, **dict(environment_of_alias)}
    with configuration_file(alias) as path:
        boxes = Boxes(load_for_creating([path], env=None, environ=environ, cwd=Path.cwd()))
    for name, model in models_in(alias).items():
        for key in _what_no_model_has(boxes.written(name)):
            message = f"is not for the model {model._meta.label}: a table of Django's cannot have it"
            raise ImproperlyConfigured(f"BOXENGINE: {section(model)}.{name}.{key}: {message}")
    return boxes


def forget() -> None:
    """Reads the settings again for the next item."""
    _boxes.cache_clear()


def _what_no_model_has(box: Box) -> Iterator[str]:
    """Keys that would have no effect, because Django's ORM writes neither numbers nor into a log."""
    if box.sequence:
        yield "sequence"
    if box.subscriptions:
        yield "subscriptions"
    elif box.storage is Storage.LOG:
        yield "storage"


def environment(alias: str) -> dict[str, str]:
    """What the configuration takes from the environment: nothing if ``BOXENGINE`` itself says where this database is.

    Raises:
        ImproperlyConfigured: no worker can use that database.
    """
    database = given().get("database")
    named = isinstance(database, Mapping) and database.get("url")
    return {} if named and alias == main_alias() else {DATABASE: database_url(alias)}


def main_alias() -> str:
    """The database that a worker uses if no other one is named."""
    return str(getattr(settings, "BOXENGINE_DATABASE", "default"))


def given() -> Mapping[str, Any]:
    """``settings.BOXENGINE`` as it is.

    Raises:
        ImproperlyConfigured: it is not a dict.
    """
    found = getattr(settings, "BOXENGINE", {})
    if not isinstance(found, Mapping):
        raise ImproperlyConfigured(
            f"BOXENGINE must be a dict with boxengine's configuration, not {type(found).__name__}"
        )
    return found


def completed(alias: str) -> dict[str, Any]:
    """``settings.BOXENGINE`` for the boxes in one database, plus its URL and what the worker needs to use Django."""
    found: dict[str, Any] = _plain(given(), "BOXENGINE: ")
    own = found.get("app", [])
    found["app"] = [SET_UP, *([own] if isinstance(own, str) else own)]
    database = _within(found, "database")
    if alias != main_alias():
        for key in _SERVERS:  # they lead to another database
            database.pop(key, None)
        # Without a prefix, boxes of the same name in two databases would take each other's jobs from one Redis.
        redis = _within(found, "redis")
        redis["prefix"] = f"{redis.get('prefix') or ''}{alias}:"
    database.setdefault("url", f"${{{DATABASE}}}")
    middlewares = _within(found, "middlewares")
    around = middlewares.get("batch_process") or []
    middlewares["batch_process"] = [AROUND, *([around] if isinstance(around, str) else around)]
    if polling := middlewares.get("poll"):  # these, too, may use Django's ORM
        middlewares["poll"] = [AROUND, *([polling] if isinstance(polling, str) else polling)]
    here = models_in(alias)
    for model in models():
        boxes = _within(found, section(model))
        if box_name(model) not in here:
            boxes.pop(box_name(model), None)
    for name, model in here.items():
        box = _within(_within(found, section(model)), name)
        box.setdefault("table", _QUOTED.sub(r"\1.\2", model._meta.db_table))
        if issubclass(model, TaskItem):
            box.setdefault("transports", {RUN_TASK: {}})
    return found


def _within(settings: dict[str, Any], key: str) -> dict[str, Any]:
    """The dict under a key, made where there is nothing. What is no dict stays, to be refused with its key."""
    inner = settings.get(key)
    if inner is None:
        inner = settings[key] = {}
    return inner if isinstance(inner, dict) else {}


def _plain(value: Any, place: str) -> Any:
    """A copy of which a file can be made: settings hold paths, too, and texts of classes of their own.

    Raises:
        ImproperlyConfigured: it holds something else.
    """
    match value:
        case None | bool() | int() | float() | date():
            return value
        case str():
            return str.__str__(value)  # of a member of an enumeration, its value
        case PurePath() | Promise():
            return str(value)
        case Mapping():
            inner = place if place.endswith(" ") else f"{place}."
            return {_plain(key, place): _plain(each, f"{inner}{key}") for key, each in value.items()}
        case list() | tuple():
            return [_plain(each, f"{place}.{position}") for position, each in enumerate(value)]
        case _:
            raise ImproperlyConfigured(f"{place}: cannot be {value!r}; give a text, a number, a list or a dict")


def models() -> list[type[OutboxItem | InboxItem]]:
    """All models of boxes that have a table, in Django's order: a proxy stands for the box of the model behind it."""
    return [model for model in apps.get_models() if issubclass(model, OutboxItem | InboxItem) and not model._meta.proxy]


def models_in(alias: str) -> dict[str, type[OutboxItem | InboxItem]]:
    """The models in one database, by the names of their boxes.

    Raises:
        ImproperlyConfigured: two of them have one name. A worker would deliver from the table of one alone.
    """
    found: dict[str, type[OutboxItem | InboxItem]] = {}
    for model in models():
        if router.allow_migrate_model(alias, model):
            other = found.setdefault(box_name(model), model)
            if other is not model:
                raise ImproperlyConfigured(
                    f"{other._meta.label} and {model._meta.label} are both the box {box_name(model)}; give one of them another "
                    'name, with a class attribute such as __box_name__ = "billing_outbox_item"'
                )
    return found


def section(model: type[OutboxItem | InboxItem]) -> str:
    """The key of ``BOXENGINE`` that holds a model's box."""
    return "outbox_items" if model.box_type is BoxType.OUTBOX else "inbox_items"


@contextmanager
def configuration_file(alias: str) -> Iterator[Path]:
    """The completed configuration as a file that only this account can read and that exists while the block runs: each process of
    `--processes` reads it when it starts.

    Messages quote its name, which therefore is that of the setting.
    """
    with tempfile.TemporaryDirectory(prefix="boxengine-") as folder, spared(folder):
        path = Path(folder) / "settings.BOXENGINE"
        path.write_text(yaml.safe_dump(completed(alias), sort_keys=False), encoding="utf-8")
        yield path
