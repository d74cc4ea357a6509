"""The Django application."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.apps import AppConfig

_COMMANDS = {"manage.py", "django-admin"}
"""Programs of which most runs create no item, and for which people wait: they import what writes items when it is needed."""


class BoxengineConfig(AppConfig):
    """Registers the system checks, and the step after ``migrate``."""

    name = "boxengine.integrations.django"
    label = "boxengine"
    verbose_name = "boxengine"

    def ready(self) -> None:
        """Called by Django once all models are loaded."""
        from django.core.checks import Tags, register  # noqa: PLC0415 - not before models are loaded
        from django.core.signals import setting_changed  # noqa: PLC0415
        from django.db.models.signals import post_migrate  # noqa: PLC0415

        from boxengine.integrations.django.checks import check_configuration, check_emissions  # noqa: PLC0415

        register(check_configuration, Tags.compatibility)
        register(check_emissions, Tags.models)
        post_migrate.connect(_after_migrate, sender=self)
        setting_changed.connect(_after_a_test_changed)
        if not _COMMANDS & {Path(program).name for program in sys.argv[:1]}:
            # Not at the first request, and once for all processes that a server forks.
            import boxengine.integrations.django.rows  # noqa: F401, PLC0415


def _after_migrate(**signal: Any) -> None:
    from boxengine.integrations.django.completing import after_migrate  # noqa: PLC0415 - it imports SQLAlchemy

    after_migrate(**signal)


def _after_a_test_changed(*, setting: str, **_signal: Any) -> None:
    """What ``override_settings`` changes applies to the next item."""
    if setting in ("BOXENGINE", "BOXENGINE_DATABASE", "DATABASES", "DATABASE_ROUTERS"):
        from boxengine.integrations.django import configuration, rows  # noqa: PLC0415

        configuration.forget()
        rows.creator.cache_clear()
