"""Items as the engine hands them to transports."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from boxengine.domain.box import Box, BoxType
from boxengine.domain.item import Item

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items")
CREATED = datetime(2026, 1, 31, 12, 0, 0, 250, tzinfo=UTC)


def make_item(number: int = 1, /, **attributes: Any) -> Item:
    """An item like any other, but for the attributes given; ``options`` is short for ``raw_options``, and so on."""
    for name in ("options", "created_at"):
        if name in attributes:
            attributes[f"raw_{name}"] = attributes.pop(name)
    item = Item(
        id=number,
        uuid=str(UUID(int=number)),
        event_name="order_created",
        event_key=f"key-{number}",
        bucket=number % BOX.bucket_size,
        status=0,
        raw_options=None,
        payload=b'{"number":%d}' % number,
        errors_count=0,
        raw_created_at=CREATED,
        processed_at=None,
        box=BOX,
        dispatched_at=CREATED,
    )
    return item._replace(**attributes)
