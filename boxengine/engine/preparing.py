"""New rows out of what callers give: texts and bytes for whatever names or holds something, and a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from boxengine.domain.box import Box
from boxengine.domain.codec import Codec
from boxengine.domain.new_values import MOMENTS, check_names, same_key
from boxengine.engine.answers import discard, refusal, unfinished
from boxengine.engine.attempt import reason_of
from boxengine.errors import InvalidItem, described
from boxengine.ports import Attributes

_NAMES = frozenset({str, int, UUID})
"""Types whose text always names something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Makes of what callers give what the table of one box takes. Whatever it refuses is an ``InvalidItem``."""

    box: Box
    model: type | str
    codec: Codec | None
    """Makes bytes of payloads that are none; None: such payloads are refused."""
    max_payload: int | None
    """Largest payload in bytes; None for no limit."""

    def prepare(self, row: Attributes, columns: frozenset[str], partition_by: Any, position: int) -> None:
        """Changes the row.

        Args:
            columns: those of the table that an item may set.
            partition_by: overrides the event key for the bucket, itself or, if it can be called, what it returns for the row.
            position: of the item among those that are created together.
        """
        by = None
        if not columns.issuperset(row):
            by = row.pop("partition_by", None)
            check_names(self.box, row, columns, position)
        key = self._key(row.get("event_key"), position)
        payload = self._payload(row.get("payload"), position)
        self._check_options(row.get("options"), position)
        if row.get("event_name") is not None:
            row["event_name"] = self._event_name(row["event_name"], position)
        if row.get("dedup_key") is not None:
            row["dedup_key"] = self._dedup_key(row["dedup_key"], position)
        for name in MOMENTS:
            if name in row and isinstance(row[name], str):
                row[name] = self._moment(name, row[name], position)
        if by is None:
            by = partition_by(row) if callable(partition_by) else partition_by
        bucket = self._bucket(row.get("bucket"), key, by, position)
        row["event_key"], row["payload"], row["bucket"] = str(key), payload, bucket

    # ── the bucket ───────────────────────────────────────────────────────────────────────────────────

    def _bucket(self, given: Any, key: Any, by: Any, position: int) -> int:
        if unfinished(by):
            # The default strategy would find digits even in the text of a coroutine.
            raise self._refused(position, f"partition_by {reason_of(refusal(by))}")
        bucket = self._computed(key if by is None else by, position) if given is None else given
        if isinstance(bucket, bool) or bucket not in self.box.buckets:
            discard(bucket)
            # No worker would ever look there.
            raise self._refused(position, f"bucket {bucket!r}, expected 0 to {self.box.bucket_size - 1}")
        return bucket

    def _computed(self, key: Any, position: int) -> int:
        try:
            return self.box.partition_strategy(key, self.box.bucket_size)
        except UnicodeError as error:
            raise self._refused(position, f"event_key cannot be encoded as UTF-8: {error}") from error
        except Exception as error:  # a strategy is users' code
            raise self._refused(
                position, f"the partition strategy raised {described(error)} for {key!r:.80}"
            ) from error

    # ── names, moments, options ──────────────────────────────────────────────────────────────────────

    def _key(self, key: Any, position: int) -> Any:
        """Refuses a value whose text is surely not what was meant. Other objects may well have a text that identifies them."""
        if key is None or key == "":
            raise self._refused(position, "event_key is missing")
        if _is_no_name(key):
            raise self._no_name("event_key", key, position)
        return same_key(key)

    def _event_name(self, name: Any, position: int) -> Any:
        """The name as text. A member of an enumeration is left to the table, whose column may be of that type."""
        if _is_no_name(name):
            raise self._no_name("event_name", name, position)
        return str(name) if isinstance(name, int | float | UUID) and not isinstance(name, Enum) else name

    def _dedup_key(self, key: Any, position: int) -> str:
        """The key as text: a database compares a text with a number wrongly, or not at all."""
        if not isinstance(key, str | int | UUID) or _is_no_name(key):
            raise self._no_name("dedup_key", key, position)
        if key == "":
            reason = "dedup_key is empty: of all items with it only the first would be kept; leave it out, or pass None"
            raise self._refused(position, reason)
        return key if isinstance(key, str) else str(key)

    def _no_name(self, name: str, given: Any, position: int) -> InvalidItem:
        discard(given)
        kind = type(given).__name__
        return self._refused(position, f"{name} must be a text, a whole number or a UUID, not {kind}")

    def _moment(self, name: str, text: str, position: int) -> datetime:
        """A moment from a text, as messages have it: each database would read the text in its own way."""
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            expected = "expected a datetime with a zone, or its text in ISO 8601, such as 2026-01-31T12:00Z"
            raise self._refused(position, f"{name}: {expected}; got {text!r:.80}") from None

    def _check_options(self, options: Any, position: int) -> None:
        if options is None:
            return
        what, given = (
            ("options['headers']", options.get("headers")) if isinstance(options, Mapping) else ("options", options)
        )
        if given is not None and not isinstance(given, Mapping):
            from boxengine.domain.json_advice import why_no_mapping  # noqa: PLC0415 - hardly a process needs it

            raise self._refused(position, f"{what}: {why_no_mapping(given)}")

    # ── the payload ──────────────────────────────────────────────────────────────────────────────────

    def _payload(self, payload: Any, position: int) -> bytes:
        match payload:
            case bytes():
                pass
            case str():
                payload = self._as_utf_8(payload, position)
            case bytearray() | memoryview():
                payload = bytes(payload)
            case None:
                raise self._refused(position, "payload is missing")
            case _:
                payload = self._encoded(payload, position)
        if self.max_payload is not None and len(payload) > self.max_payload:
            reason = f"payload of {len(payload)} bytes is over the limit of {self.max_payload} (max_payload_bytes)"
            raise self._refused(position, reason)
        return bytes(payload)

    def _as_utf_8(self, text: str, position: int) -> bytes:
        try:
            return text.encode()
        except UnicodeError as error:
            raise self._refused(position, f"payload cannot be encoded as UTF-8: {error}") from error

    def _encoded(self, payload: Any, position: int) -> bytes:
        kind = type(payload).__name__
        if self.codec is None:
            reason = (
                f"payload must be bytes or str, not {kind}; for others give the model a codec, such as "
                "__payload__ = Payload.json()"
            )
            raise self._refused(position, reason)
        try:
            encoded: object = self.codec.encode(payload)
        except Exception as error:  # a codec is a library's or a user's code
            reason = " ".join(str(error).split()) or type(error).__name__
            raise self._not_encoded(kind, position, reason) from error
        if isinstance(encoded, bytes):
            return encoded
        discard(encoded)
        raise self._not_encoded(kind, position, f"encode returned {type(encoded).__name__}, not bytes")

    def _not_encoded(self, kind: str, position: int, reason: str) -> InvalidItem:
        model = self.model if isinstance(self.model, str) else self.model.__name__
        codec = "" if self.codec is None else self.codec.name
        told = f"a payload of type {kind} cannot be encoded as {codec}, the codec of {model}: {reason:.500}"
        return self._refused(position, told)

    def _refused(self, position: int, reason: str) -> InvalidItem:
        return InvalidItem(f"box {self.box.name}, item {position}: {reason}")


_TEXTS_OF_OBJECTS = ("pydantic.main", "django.db.models.base")
"""Modules whose classes give every object a text that is no name. They need not be installed."""


def _is_no_name(given: object) -> bool:
    """Whether it is of a kind whose text names nothing: ``True``, ``b'42'``, ``Order(id=1)``, ``<Order object at 0x7f>``.

    What an object shows to programmers changes with its fields, so its items would not stay in order. Pydantic's models have no
    other text. Django's have ``Order object (1)``: not the key that its ``pk`` is, and the same for all unsaved.
    """
    kind = type(given)
    if kind in _NAMES:
        return False
    if isinstance(given, bool | bytes | bytearray | memoryview | Mapping | list | AbstractSet) or unfinished(given):
        return True
    if isinstance(given, int | float) or kind is tuple:
        return False  # their only text is the one for programmers, too
    return kind.__str__ is object.__str__ or getattr(kind.__str__, "__module__", None) in _TEXTS_OF_OBJECTS
