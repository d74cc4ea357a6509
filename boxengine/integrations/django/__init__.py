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

For whoever changes this package:

- **Items:** ``creating`` is what applications call, and ``rows`` inserts through Django's ORM. ``emitting`` creates items for
  changes of a model.
- **Tables:** ``models`` (abstract models), ``moments`` (between UTC and the zones of Django's settings), ``completing`` (adds
  indexes and settings after ``migrate``).
- **Configuration:** ``configuration`` (``settings.BOXENGINE``, completed with what Django knows), ``addresses`` (URLs of Django's
  databases), ``checks`` (when Django starts), ``apps`` (registers the checks and ``completing``).
- **Worker:** ``management`` (``manage.py boxengine``), ``setup`` (makes Django ready before the application's modules are
  imported), ``middleware`` (drops broken connections around each batch).
- **More of Django:** ``admin`` (items in Django's admin), ``tasks`` (a backend for Django's Tasks framework).
"""

from boxengine.integrations.django.creating import (
    create_inbox_batch,
    create_inbox_item,
    create_outbox_batch,
    create_outbox_item,
)

__all__ = ["create_inbox_batch", "create_inbox_item", "create_outbox_batch", "create_outbox_item"]
