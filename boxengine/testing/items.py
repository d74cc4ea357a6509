"""Items for unit tests of transports, middlewares and retry strategies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from boxengine.domain.box import Box, BoxType
from boxengine.domain.item import Item, Status
from boxengine.domain.names import box_name, default_table
from boxengine.domain.new_values import same_key
from boxengine.domain.partitioning import number
from boxengine.errors import InvalidItem

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
"""The default creation and dispatch time of a made item; fixed, so that tests do not depend on the date."""


def make_item(
    *,
    payload: Any = b"{}",
    event_key: str | int = "1",
    event_name: str | None = None,
    options: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    box: Box | type | str = "outbox_item",
    box_type: BoxType | str = BoxType.OUTBOX,
    **columns: Any,
) -> Item:
    """An item as a transport gets it, with sensible values for whatever the test does not care about.

    Args:
        payload: bytes or str, or anything that the model's codec encodes; without a codec, a dict or a list becomes JSON.
        headers: the item's own, as if they stood in ``options["headers"]``.
        box: a ``Box``, a model class, or a name for one made here.
        box_type: ``"outbox"`` or ``"inbox"``, for a box made here.
        columns: other fields of ``Item``: ``id``, ``uuid``, ``bucket``, ``status``, ``errors_count``, ``created_at``,
            ``processed_at``, ``dispatched_at``, ``seq``. Moments take a datetime with a zone.

    Raises:
        InvalidItem: ``columns`` names an unknown field, or the payload has none of these types.

    Example::

        item = make_item(payload={"total": 12}, event_name="order_placed", headers={"Tenant": "acme"})
        assert Webhook(url)(item, item.payload) is None
    """
    if not isinstance(box, Box):
        name, codec = box_name(box), getattr(box, "__payload__", None)
        side = BoxType(getattr(box, "__box_type__", box_type))
        box = Box(name=name, type=side, table=default_table(name), codec=codec)
    created_at = columns.pop("created_at", MOMENT)
    own: dict[str, Any] = dict(options or {})
    if headers:
        own["headers"] = {**own.get("headers", {}), **headers}
    key = same_key(event_key)
    known: dict[str, Any] = {
        "id": 1,
        "uuid": str(UUID(int=1)),
        "bucket": number(key, box.bucket_size),
        "status": Status.PENDING,
        "errors_count": 0,
        "processed_at": None,
        "dispatched_at": MOMENT,
        "seq": None,
    }
    if unknown := columns.keys() - known:
        choices = ", ".join(sorted([*known, "created_at"]))
        raise InvalidItem(
            f"make_item: unknown field {', '.join(sorted(unknown))}; known besides its arguments: {choices}"
        )
    known |= columns
    return Item(
        event_name=event_name,
        event_key=str(key),
        raw_options=own or None,
        payload=_encoded(payload, box),
        raw_created_at=created_at,
        box=box,
        **known,
    )


def _encoded(payload: Any, box: Box) -> bytes:
    if box.codec is None or isinstance(payload, bytes | str):
        return encoded(payload)
    return box.codec.encode(payload)


def encoded(payload: Any) -> bytes:
    """The bytes that a row would hold for this payload."""
    match payload:
        case bytes():
            return payload
        case str():
            return payload.encode()
        case Mapping() | list():
            return json.dumps(payload).encode()
        case _:
            raise InvalidItem(f"make_item: payload must be bytes, str, a dict or a list, not {type(payload).__name__}")
