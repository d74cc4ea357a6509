"""Values of new items that a database would misread, or refuse only after it has given up the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from boxengine.errors import InvalidItem

MOMENTS = ("available_at", "created_at")


def check_values(box: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuses a moment without a zone, and a text that is no UUID.

    The database would take such a moment for local time of its own, so the item would go out hours early or late.

    Raises:
        InvalidItem: names the item and the attribute.

    Example::

        check_values("order_outbox_item", [{"available_at": datetime(2026, 1, 31)}])
        # InvalidItem: box order_outbox_item, item 0: available_at has no time zone; ...
    """
    for position, row in enumerate(rows):
        for name in MOMENTS:
            moment = row.get(name)
            if isinstance(moment, datetime) and moment.tzinfo is None:
                raise InvalidItem(
                    f"box {box}, item {position}: {name} has no time zone; give it one, as datetime.now(UTC) has"
                )
        identity = row.get("uuid")
        if isinstance(identity, str) and not _is_uuid(identity):
            raise InvalidItem(f"box {box}, item {position}: uuid {identity!r:.80} is not a UUID")


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
