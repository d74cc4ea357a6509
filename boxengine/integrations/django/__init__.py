"""Django: boxes whose tables are Django models, written through Django's own connection.

In ``settings.py``::

    INSTALLED_APPS = [..., "boxengine.integrations.django"]
    BOXENGINE = {"outbox_items": {"order_outbox_item": {"transports": {"orders.transports.SendOrder": {}}}}}

In ``models.py`` and wherever an order is placed::

    from boxengine.integrations.django.models import OutboxItem
    from boxengine.integrations.django import create_outbox_item

    class OrderOutboxItem(OutboxItem): ...

    with transaction.atomic():
        order = Order.objects.create(...)
        create_outbox_item(OrderOutboxItem, event_key=order.pk, payload=b"...")

``manage.py boxengine start`` delivers.
"""

from boxengine.integrations.django.creating import (
    create_inbox_batch,
    create_inbox_item,
    create_outbox_batch,
    create_outbox_item,
)

__all__ = ["create_inbox_batch", "create_inbox_item", "create_outbox_batch", "create_outbox_item"]
