"""Moments between boxengine, whose moments are in UTC, and Django, whose settings choose a zone, or none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions.datetime import TruncBase
from django.utils.timezone import get_default_timezone, is_aware, make_aware, make_naive


class MomentField(models.DateTimeField):
    """A ``DateTimeField`` that is in UTC on MySQL, too, where the worker looks for nothing else.

    Django would store it in the zone of its connection: the ``TIME_ZONE`` of the settings without ``USE_TZ``, and with it that of
    ``DATABASES``. PostgreSQL stores moments with their zones.
    """

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        """For migrations it is Django's own field: their column is the same."""
        name, _path, arguments, options = super().deconstruct()
        return name, "django.db.models.DateTimeField", arguments, options

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:  # noqa: FBT001, FBT002 - Django's
        """What the driver gets: on MySQL, UTC as text, as Django passes it."""
        if not prepared:
            value = self.get_prep_value(value)
        if connection.vendor != "mysql" or not isinstance(value, datetime):
            return super().get_db_prep_value(value, connection, prepared=True)
        moment = value if is_aware(value) else make_aware(value, get_default_timezone())
        return str(make_naive(moment, UTC))

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """What Django gets. It has read it as a moment in its connection's zone; what it has truncated is in another one."""
        if connection.vendor != "mysql" or not isinstance(value, datetime) or isinstance(expression, TruncBase):
            return value
        return as_django_has_it(value.replace(tzinfo=UTC))


def as_django_has_it(moment: datetime) -> datetime:
    """A moment with a zone, in the form in which Django has moments: without ``USE_TZ``, a time in ``TIME_ZONE``."""
    return moment if settings.USE_TZ else make_naive(moment, get_default_timezone())
