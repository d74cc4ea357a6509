"""Django's system checks: the configuration is read when Django starts, not at the first item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured

from boxengine.errors import ConfigurationError
from boxengine.integrations.django import configuration


def check_configuration(app_configs: Sequence[AppConfig] | None, **_options: Any) -> list[CheckMessage]:  # noqa: ARG001 - Django's call
    """Every mistake in ``settings.BOXENGINE``, with its key."""
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
    return []
