"""An item: one row of a box, as transports, strategies and middlewares see it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

from boxengine.domain.box import Box, BoxType
from boxengine.errors import Unavailable, Undecodable

ONLY_TO = "replay_to"
"""The option that names the one transport that a replay is for."""
REPLAY_OF = "Replay-Of"
"""The header with which a replayed item goes out: the uuid of the item that it repeats."""


class Status(IntEnum):
    """The numbers in the ``status`` column, the same as in sbmt-outbox."""

    PENDING = 0
    FAILED = 1
    DELIVERED = 2
    DISCARDED = 3


class Item(NamedTuple):
    """An item as transports, strategies and middlewares get it: one row of a box, read-only.

    It is a tuple because one is built per delivered row, and Python builds nothing faster. What is
    costly and seldom needed (``options``, ``headers``, zones) is computed on access.
    """

    id: int
    """An integer in every SQL table."""
    uuid: str
    """Canonical text."""
    event_name: str | None
    event_key: str
    bucket: int
    status: int
    raw_options: Mapping[str, Any] | str | None
    payload: Any
    """The stored bytes, or what the model's ``build_payload`` made of the item."""
    errors_count: int
    raw_created_at: datetime
    """In the form that the driver gives fastest: UTC, with or without a time zone."""
    processed_at: datetime | None
    box: Box
    dispatched_at: datetime
    seq: int | None = None
    """Gapless number within its event key, if the box has them."""

    @property
    def created_at(self) -> datetime:
        """When the row was written; zone UTC."""
        raw = self.raw_created_at
        return raw.replace(tzinfo=UTC) if raw.tzinfo is None else raw

    @property
    def box_name(self) -> str:
        return self.box.name

    @property
    def box_type(self) -> BoxType:
        return self.box.type

    @property
    def options(self) -> dict[str, Any]:
        """The row's options; an empty dict if it has none.

        Raises:
            TypeError, ValueError: the stored options, written by somebody else, are not a JSON object.
        """
        raw = self.raw_options
        if isinstance(raw, str | bytes):
            try:
                raw = json.loads(raw)
            except RecursionError:
                raise ValueError("options: nested too deeply") from None
        return {} if raw is None else dict(_mapping(raw, "options"))

    @property
    def only_to(self) -> str | None:
        """The one transport that a replay is for; None: all of them. It is read for every item, so it must be cheap."""
        raw = self.raw_options
        if raw is None or (isinstance(raw, str | dict) and ONLY_TO not in raw):
            return None
        try:
            found = self.options.get(ONLY_TO)
        except (TypeError, ValueError):
            return None  # unreadable options; reported where they are needed
        return found if isinstance(found, str) else None

    @property
    def headers(self) -> dict[str, str]:
        """The engine's headers, overridden by the item's own ``options.headers``.

        The engine's are ``Outbox-Name``, ``Idempotency-Key`` (uuid), ``Sequence-ID`` (id), ``Created-At`` and
        ``Dispatched-At`` (RFC 3339, microseconds). An item with an event name also has ``Event-Name``; in a box with
        ``sequence`` it also has ``Sequence-Number`` (seq). A header set to null in the options removes the engine's.
        """
        headers = {
            "Outbox-Name": self.box.name,
            "Idempotency-Key": self.uuid,
            "Sequence-ID": str(self.id),
            "Created-At": rfc3339(self.raw_created_at),
            "Dispatched-At": rfc3339(self.dispatched_at),
        }
        if self.event_name:
            headers["Event-Name"] = self.event_name
        if self.seq is not None:
            headers["Sequence-Number"] = str(self.seq)
        own = self.options.get("headers")
        if own:
            for name, value in _mapping(own, "options.headers").items():
                if value is None:
                    headers.pop(str(name), None)
                else:
                    headers[str(name)] = str(value)
        return headers

    @property
    def decoded(self) -> Any:
        """The payload as the model's codec decodes it on each access: an ``Order`` for ``__payload__ = Payload.pydantic(Order)``.

        None for a tombstone that an inbox received from Kafka: it has no bytes that a codec could read.

        Raises:
            Undecodable: the codec cannot read the payload, or the box has no codec. If nobody catches it, the item fails.
            Unavailable: the codec says so of something that it needs. If nobody catches it, the item waits.
        """
        codec = self.box.codec
        if codec is None:
            raise Undecodable(
                f"box {self.box.name} has no codec to decode a payload with: give its model __payload__ and name "
                "the model in the configuration (model: package.module.Class)"
            )
        if not self.payload and self._is_tombstone():
            return None
        try:
            return codec.decode(self.payload)
        except Unavailable:
            raise  # such as of a schema registry: no item is to blame
        except Exception as error:  # a codec is library or user code
            reason = " ".join(str(error).split()) or type(error).__name__
            raise Undecodable(f"the payload cannot be decoded as {codec.name}: {reason:.500}") from error

    def _is_tombstone(self) -> bool:
        try:
            kafka = self.options.get("kafka")
        except (TypeError, ValueError):
            return False  # unreadable options; reported where they are needed
        return isinstance(kafka, Mapping) and kafka.get("tombstone") is True

    @property
    def null_headers(self) -> list[str]:
        """Names in ``options.headers`` whose value is null, for receivers that distinguish null from absent."""
        own = self.options.get("headers")
        return [str(name) for name, value in _mapping(own, "options.headers").items() if value is None] if own else []

    @property
    def log_details(self) -> dict[str, Any]:
        """What the model's ``extra_log_details`` returns for the item. Never raises: a log line must not fail a delivery."""
        hook = self.box.extra_log_details
        if hook is None:
            return {}
        try:
            details = hook(self.with_extra_options())
            return {str(name): value for name, value in _mapping(details, "extra_log_details").items()}
        except Exception as error:  # the hook is user code
            return {"extra_log_details": f"{type(error).__name__}: {error}"}

    def with_extra_options(self) -> Item:
        """The same item with the options that the model's ``extra_options`` adds; the item's own take precedence.

        Raises:
            Exception: whatever the model's method raises; ``TypeError`` if it does not return a mapping.
        """
        hook = self.box.extra_options
        if hook is None:
            return self
        return self._replace(raw_options=_merged(_mapping(hook(self), "extra_options"), self.options))


def _mapping(found: object, what: str) -> Mapping[Any, Any]:
    """Checks that what a row holds or a model's hook returned is a mapping."""
    if isinstance(found, Mapping):
        return found
    raise TypeError(f"{what}: expected a mapping, got {type(found).__name__}")


def _merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Merges both, key by key; two mappings under the same key are merged in turn, otherwise ``upper`` wins."""
    result = dict(lower)
    for key, value in upper.items():
        below = result.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[key] = _merged(below, value) if both else value  # type: ignore[arg-type] # ``both`` ensures it
    return result


@lru_cache(maxsize=64)  # all items of a batch share one moment of dispatch, and often one of creation
def rfc3339(moment: datetime) -> str:
    """``2026-01-31T12:00:00.000000Z``; a moment without a zone counts as UTC, as the reference stores it."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds") + "Z"
