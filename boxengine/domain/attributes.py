"""The attributes that a caller passes to create an item, typed for type checkers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, Required, TypedDict
from uuid import UUID

from typing_extensions import TypeVar

P = TypeVar("P", default=bytes)
"""The type of a model's payloads: the ``Order`` of ``class OrderOutboxItem(OutboxItem[Order], Base)``."""


class ItemAttributes(TypedDict, Generic[P], total=False):
    """The keyword arguments of ``create_outbox_item`` and its relatives."""

    event_key: Required[str | int | UUID]
    """What the item is about: items of one key stay in order. Stored as text, of at most as many characters as
    the column takes (255 in tables that boxengine makes), none of them NUL. Other objects with a text of their own may
    be given, too; booleans, bytes, mappings, lists and sets are refused."""
    payload: Required[P | bytes | str | bytearray | memoryview]
    """A value that the model's codec encodes; bytes and text are stored as they are."""
    event_name: str | None
    """What happened. As long as the column allows, like the key."""
    options: Mapping[str, Any] | None
    """``key`` and ``headers`` for the transport, and any other options that it reads."""
    uuid: UUID | str
    available_at: datetime | None
    """The item is not delivered before this moment, which has a time zone. From messages, a text in ISO 8601 may come."""
    dedup_key: str | int | UUID | None
    """A second item with the same key is not stored: the call returns the id of the first. Stored as text; never empty,
    and as long as the column allows."""
    bucket: int | None
    """Replaces the bucket computed from the key."""
    created_at: datetime
    """By default the present. With a time zone, too."""
    seq: int | None
    """The item's number within its key, if the caller does the numbering."""
    own_columns: Mapping[str, Any]
    """Columns that your model adds, by name. At run time they may also be passed as separate arguments."""


class BatchAttributes(ItemAttributes[P], total=False):
    """One item of ``create_outbox_batch`` and its relatives.

    ::

        rows: list[BatchAttributes] = [{"event_key": order.id, "payload": b"..."} for order in orders]
        create_outbox_batch(session, OrderOutboxItem, rows)
    """

    partition_by: object
    """What this item's bucket is computed from, instead of its key."""
