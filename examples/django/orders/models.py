"""Orders announce each change of themselves; ``Task`` is where tasks wait."""

import json

from django.db import models

from boxengine.integrations.django.emitting import emits
from boxengine.integrations.django.models import OutboxItem, TaskItem


class OrderOutboxItem(OutboxItem):
    """The box ``order_outbox_item``."""


class Task(TaskItem):
    """The box ``task``."""


@emits(OrderOutboxItem, payload=lambda order: json.dumps({"id": order.pk, "what": order.what, "paid": order.paid}))
class Order(models.Model):
    """What somebody wants."""

    what = models.CharField(max_length=100)
    paid = models.BooleanField(default=False)
