"""Django's system checks: the configuration is read when Django starts, not at the first item."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.db import router

from boxengine.domain.names import box_name
from boxengine.errors import ConfigurationError
from boxengine.integrations.django import configuration
from boxengine.integrations.django.emitting import emissions_of
from boxengine.integrations.django.models import OutboxItem

_SECTIONS = ("outbox_items", "inbox_items")


def check_configuration(app_configs: Sequence[AppConfig] | None, **_options: Any) -> list[CheckMessage]:  # noqa: ARG001 - Django's call
    """Reports every mistake in ``settings.BOXENGINE``, with its key."""
    try:
        configuration.boxes()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="boxengine.E001")]
    except ConfigurationError as error:
        return [
            Error(f"BOXENGINE: {problem.path}: {problem.message}", id="boxengine.E002") for problem in error.problems
        ]
    if not configuration.models():
        hint = "Derive a model from boxengine.integrations.django.models.OutboxItem or InboxItem."
        return [CheckWarning("boxengine is installed, and no model is a box", hint=hint, id="boxengine.W001")]
    return [*_boxes_without_models(), *_boxes_written_elsewhere()]


def check_emissions(app_configs: Sequence[AppConfig] | None, **_options: Any) -> list[CheckMessage]:  # noqa: ARG001 - Django's call
    """Reports every ``@emits`` that does not name an outbox."""
    found: list[CheckMessage] = []
    for model in apps.get_models():
        for emission in emissions_of(model):
            told = _not_an_outbox(emission.model)
            if told:
                found.append(Error(f"@emits: {told}", obj=model, id="boxengine.E004"))
    return found


def _not_an_outbox(given: Any) -> str:
    """What is wrong with the given model; empty if it is the model of an outbox."""
    try:
        model = apps.get_model(given) if isinstance(given, str) else given
    except (LookupError, ValueError) as error:
        return str(error)
    is_outbox = isinstance(model, type) and issubclass(model, OutboxItem)
    return "" if is_outbox else f"{given!r} is no model of an outbox"


def _boxes_without_models() -> Iterator[CheckMessage]:
    """Warns of boxes without a model: a misspelt name configures an additional box, whose table does not exist."""
    known = {box_name(model): configuration.section(model) for model in configuration.models()}
    for section in _SECTIONS:
        for name, box in (configuration.given().get(section) or {}).items():
            if known.get(name) == section or {"table", "model"} & set(box or {}):
                continue
            close = get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]}?" if close else "Name its model, or the table that it has."
            yield CheckWarning(f"BOXENGINE: {section}.{name}: no model has this box", hint=hint, id="boxengine.W002")


def _boxes_written_elsewhere() -> Iterator[CheckMessage]:
    """Warns of boxes whose items the routers send to another database, while the main one has a table for them, too.

    A worker that looks there finds nothing, and all seems well.
    """
    main = configuration.main_alias()
    for model in configuration.models_in(main).values():
        alias = _written_to(model)
        if alias not in (main, None):
            told = f"its items are written to the database {alias!r}, and manage.py boxengine start delivers those in {main!r}"
            hint = f"Name {alias!r} in BOXENGINE_DATABASE, or run manage.py boxengine --database {alias} start, too."
            yield CheckWarning(told, hint=hint, obj=model, id="boxengine.W003")


def _written_to(model: type[Any]) -> str | None:
    """The alias of the database; None where the routers need a request to tell."""
    try:
        return str(router.db_for_write(model))
    except Exception:  # theirs
        return None
