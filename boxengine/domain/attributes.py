"""What a caller says of an item that is to be created, as type checkers see it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, Required, TypedDict
from uuid import UUID

from typing_extensions import TypeVar

P = TypeVar("P", default=bytes)
"""What a model's payloads are made of: the ``Order`` of ``class OrderOutboxItem(OutboxItem[Order], Base)``."""


class ItemAttributes(TypedDict, Generic[P], total=False):
    """The keyword arguments of ``create_outbox_item`` and its relatives."""

    event_key: Required[str | int | UUID]
    """What the item is about: items of one key stay in order. Stored as text."""
    payload: Required[P | bytes | str | bytearray | memoryview]
    """What the model's codec encodes; bytes and text are stored as they are."""
    event_name: str | None
    options: Mapping[str, Any] | None
    """``key`` and ``headers`` for the transport, and whatever else it looks for."""
    uuid: UUID | str
    available_at: datetime | None
    """Not delivered before; with a zone."""
    dedup_key: str | None
    """A second item with the same one is not stored: the id of the first comes back."""
    bucket: int | None
    """In place of the one that follows from the key."""
    created_at: datetime
    seq: int | None
    """The item's number within its key, where the caller counts."""
    own_columns: Mapping[str, Any]
    """Columns that your model adds, by name. At run time they may also be given as arguments of their own."""


class BatchAttributes(ItemAttributes[P], total=False):
    """One item of ``create_outbox_batch`` and its relatives.

    ::

        rows: list[BatchAttributes] = [{"event_key": order.id, "payload": b"..."} for order in orders]
        create_outbox_batch(session, OrderOutboxItem, rows)
    """

    partition_by: object
    """What this item's bucket is computed from, in place of its key."""
