from boxengine.integrations.django.models import OutboxItem
from django.db import models


class Order(models.Model):
    title = models.CharField(max_length=100)


class OrderOutboxItem(OutboxItem):
    """The box `order_outbox_item` of the settings."""
