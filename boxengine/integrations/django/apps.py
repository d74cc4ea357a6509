"""The Django application."""

from __future__ import annotations

from django.apps import AppConfig


class BoxengineConfig(AppConfig):
    """Registers the system checks, and the step after ``migrate``."""

    name = "boxengine.integrations.django"
    label = "boxengine"
    verbose_name = "boxengine"

    def ready(self) -> None:
        """Called by Django once all models are loaded."""
        from django.core.checks import Tags, register  # noqa: PLC0415 - not before models are loaded
        from django.db.models.signals import post_migrate  # noqa: PLC0415

        from boxengine.integrations.django.checks import check_configuration, check_emissions  # noqa: PLC0415
        from boxengine.integrations.django.completing import after_migrate  # noqa: PLC0415

        register(check_configuration, Tags.compatibility)
        register(check_emissions, Tags.models)
        post_migrate.connect(after_migrate, sender=self)
