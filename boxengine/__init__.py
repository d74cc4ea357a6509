"""The transactional outbox and inbox.

A service commits business data and a row saying "this happened" in one transaction; boxengine sees to it that each
such row reaches Kafka, a webhook or any code: never lost, per key never out of order, soon, and fast.

::

    from boxengine import OutboxItem, create_outbox_item

    class OrderOutboxItem(OutboxItem, Base):
        __tablename__ = "order_outbox_items"

    with Session(engine) as session, session.begin():
        session.add(order)
        create_outbox_item(session, OrderOutboxItem, event_key=order.id, payload=b"...")
"""

from boxengine.adapters.sql.models import InboxItem, OutboxItem, SequencedItem
from boxengine.app.boxes import Boxes, load
from boxengine.app.default import (
    acreate_inbox_batch,
    acreate_inbox_item,
    acreate_outbox_batch,
    acreate_outbox_item,
    configure,
    create_inbox_batch,
    create_inbox_item,
    create_outbox_batch,
    create_outbox_item,
)
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import DISCARD, PROCESS, SKIP, Failure

__all__ = [
    "DISCARD",
    "PROCESS",
    "SKIP",
    "Boxes",
    "Failure",
    "InboxItem",
    "Item",
    "OutboxItem",
    "SequencedItem",
    "Status",
    "acreate_inbox_batch",
    "acreate_inbox_item",
    "acreate_outbox_batch",
    "acreate_outbox_item",
    "configure",
    "create_inbox_batch",
    "create_inbox_item",
    "create_outbox_batch",
    "create_outbox_item",
    "load",
]
__version__ = "0.1.0"
