"""An item: one row of a box, as transports, strategies and middlewares see it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from boxengine.domain.box import Box, BoxType


class Status(IntEnum):
    """The numbers in the ``status`` column, those of sbmt-outbox."""

    PENDING = 0
    FAILED = 1
    DELIVERED = 2
    DISCARDED = 3


class Item(NamedTuple):
    """One row, read-only.

    A tuple, because one is built per delivered row and nothing in Python is built faster; what
    costs time and is seldom asked for (``options``, ``headers``) is worked out when it is asked for.
    """

    id: int
    uuid: UUID | str
    event_name: str | None
    event_key: str
    bucket: int
    status: int
    raw_options: Mapping[str, Any] | str | None
    payload: Any
    """The stored bytes, or what the model's ``build_payload`` made of the item."""
    errors_count: int
    created_at: datetime
    processed_at: datetime | None
    box: Box
    dispatched_at: datetime

    @property
    def box_name(self) -> str:
        return self.box.name

    @property
    def box_type(self) -> BoxType:
        return self.box.type

    @property
    def options(self) -> dict[str, Any]:
        """The row's options; an empty dict where it has none."""
        raw = self.raw_options
        if raw is None:
            return {}
        return dict(json.loads(raw) if isinstance(raw, str | bytes) else raw)

    @property
    def headers(self) -> dict[str, str]:
        """The engine's headers, over them the item's own ``options.headers``.

        The engine's are ``Outbox-Name``, ``Idempotency-Key`` (uuid), ``Sequence-ID`` (id), ``Created-At`` and
        ``Dispatched-At`` (RFC 3339, microseconds).
        """
        headers = {
            "Outbox-Name": self.box.name,
            "Idempotency-Key": str(self.uuid),
            "Sequence-ID": str(self.id),
            "Created-At": rfc3339(self.created_at),
            "Dispatched-At": rfc3339(self.dispatched_at),
        }
        own = self.options.get("headers")
        if own:
            headers.update({str(name): str(value) for name, value in own.items()})
        return headers


def rfc3339(moment: datetime) -> str:
    """``2026-01-31T12:00:00.000000Z``; a moment without a zone is taken as UTC, as the reference stores it."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
