"""Abstract models: the tables of boxes, made and migrated by Django.

Indexes and storage settings do not come from Django: boxengine adds them after ``migrate`` (``completing``), so that on each
database, in each version, they are the ones that its queries need.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from boxengine.domain.box import BoxType
from boxengine.integrations.django.moments import MomentField


class _BoxItem(models.Model):
    """Columns common to both sides; the engine owns ``status`` and the columns that depend on it."""

    class Status(models.IntegerChoices):
        """As boxengine and sbmt-outbox number them."""

        PENDING = 0
        FAILED = 1
        DELIVERED = 2
        DISCARDED = 3

    id = models.BigAutoField(primary_key=True)
    uuid = models.UUIDField(default=uuid.uuid4, editable=False)
    event_name = models.CharField(max_length=255, null=True, blank=True)
    event_key = models.CharField(max_length=255)
    bucket = models.IntegerField()
    status = models.SmallIntegerField(choices=Status.choices, default=Status.PENDING, db_default=Status.PENDING)
    options = models.JSONField(null=True, blank=True)
    payload = models.BinaryField()
    errors_count = models.IntegerField(default=0, db_default=0)
    error_log = models.TextField(null=True, blank=True)
    processed_at = MomentField(null=True, blank=True)
    created_at = MomentField(db_default=Now())
    updated_at = MomentField(db_default=Now())
    available_at = MomentField(null=True, blank=True)
    dedup_key = models.CharField(max_length=255, null=True, blank=True)

    box_type: ClassVar[BoxType]

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self._meta.label} {self.pk} ({self.event_key})"


class OutboxItem(_BoxItem):
    """A row of an outbox. ``class OrderOutboxItem(OutboxItem): ...`` is the model of the box ``order_outbox_item``."""

    box_type = BoxType.OUTBOX

    class Meta:
        abstract = True


class InboxItem(_BoxItem):
    """A row of an inbox; ``uuid`` is unique, so that a message received twice is stored once."""

    box_type = BoxType.INBOX

    class Meta:
        abstract = True


class TaskItem(OutboxItem):
    """A row of an outbox whose items are tasks of Django's Tasks framework (``tasks.TaskBackend``)."""

    return_value = models.JSONField(null=True, blank=True)
    """What the task returned."""
    started_at = MomentField(null=True, blank=True)
    """When the attempt that succeeded started."""

    class Meta:
        abstract = True
