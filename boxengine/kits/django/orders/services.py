import json

from boxengine.integrations.django import create_outbox_item
from django.db import transaction

from orders.models import Order, OrderOutboxItem


def place_order(title: str) -> Order:
    """The order and its event commit together, or neither does."""
    with transaction.atomic():
        order = Order.objects.create(title=title)
        event = json.dumps({"id": order.pk, "title": order.title})
        create_outbox_item(OrderOutboxItem, event_key=order.pk, event_name="order_placed", payload=event)
    return order
