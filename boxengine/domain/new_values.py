"""Values of new items that a database would refuse only after it has given up the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from boxengine.errors import InvalidItem


def check_values(box: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuses a text that is no UUID.

    Raises:
        InvalidItem: names the item and the attribute.

    Example::

        check_values("order_outbox_item", [{"uuid": "nonsense"}])
        # InvalidItem: box order_outbox_item, item 0: uuid 'nonsense' is not a UUID
    """
    for position, row in enumerate(rows):
        identity = row.get("uuid")
        if isinstance(identity, str) and not _is_uuid(identity):
            raise InvalidItem(f"box {box}, item {position}: uuid {identity!r:.80} is not a UUID")


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
