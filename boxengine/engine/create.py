"""Writing items: the bucket, the create middlewares, and the insertion through the caller's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import is_dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from boxengine.domain.codec import Codec
from boxengine.domain.item_id import ItemId
from boxengine.domain.new_values import MOMENTS, check_names
from boxengine.engine.answers import discard, refusal, unfinished
from boxengine.engine.attempt import reason_of
from boxengine.engine.delivering.middleware import NotCalledOn, PlainPassage, Refused, compose
from boxengine.engine.delivering.pipeline import Middleware, Middlewares, Pipeline
from boxengine.errors import InvalidItem
from boxengine.ports import Attributes, Clock, NewRows, Observer, Tracer, events

_NAMES = frozenset({str, int, UUID})
"""Types whose text always names something."""


class Creator:
    """Puts items into one box."""

    def __init__(
        self,
        pipeline: Pipeline,
        rows: NewRows,
        *,
        middlewares: Middlewares,
        observer: Observer,
        tracer: Tracer,
        clock: Clock,
        codec: Codec | None = None,
        max_payload: int | None = None,
    ) -> None:
        """Args:
        codec: makes bytes of payloads that are none; None: such payloads are refused.
        max_payload: largest payload in bytes; None for no limit.
        """
        self.box = pipeline.box
        self._model = pipeline.model or pipeline.box.name
        self._rows = rows
        self._observer = observer
        self._tracer = tracer
        self._clock = clock
        self._codec = codec
        self._max_payload = max_payload
        self._middlewares = middlewares

    @property
    def columns(self) -> frozenset[str]:
        """The columns that an item's attributes may set."""
        return self._rows.columns

    @property
    def rewrites(self) -> bool:
        """Whether a create middleware may write something else than it is given."""
        return bool(self._middlewares.create_batch)

    def unlimited(self) -> Creator:
        """The same without a limit of payloads, for what has to be kept: there is nobody left to refuse it to."""
        other = copy(self)
        other._max_payload = None  # noqa: SLF001 - a copy of this object
        return other

    def unguarded(self) -> Creator:
        """The same without a limit of payloads, and without create middlewares."""
        other = self.unlimited()
        other._middlewares = replace(self._middlewares, create_item=(), create_batch=())  # noqa: SLF001 - likewise
        return other

    def create(self, session: Any, attributes: Mapping[str, Any], *, partition_by: Any = None) -> ItemId:
        """Inserts one item through ``session`` and returns its id.

        Raises:
            InvalidItem: no event key, a payload that is not bytes or text, an attribute the table does not have.
        """
        row = self._merged(attributes)

        def insert(_model: Any, attributes: Attributes) -> ItemId:
            return self._insert(session, [attributes], partition_by)[0]

        return self._through(self._middlewares.create_item, insert, row)

    def create_batch(
        self,
        session: Any,
        batch: Sequence[Mapping[str, Any]],
        *,
        partition_by: Callable[[Attributes], Any] | None = None,
        known: set[ItemId] | None = None,
    ) -> list[ItemId]:
        """Inserts many items and returns their ids in the order given.

        Args:
            partition_by: called with each item's attributes; overrides its event key for the bucket. An item may also
                have a ``partition_by`` among its attributes, which goes first.
            known: takes in the ids of rows that were there already.

        Raises:
            InvalidItem: as for one; nothing of the batch is inserted then.
        """
        rows = [self._merged(attributes) for attributes in batch]
        if not rows:
            return []

        def insert(_model: Any, attributes: list[Attributes]) -> list[ItemId]:
            return self._insert(session, attributes, partition_by, known)

        return list(self._through(self._middlewares.create_batch, insert, rows))

    def _merged(self, attributes: Mapping[str, Any]) -> Attributes:
        """A copy, in which ``own_columns`` stand beside the others, as if given one by one."""
        if not isinstance(attributes, Mapping):
            raise InvalidItem(
                f"box {self.box.name}: expected a list of dicts with the attributes of an item each; got {attributes!r:.80}"
            )
        row = dict(attributes)
        own = row.pop("own_columns", None)
        return {**own, **row} if own else row

    def _through(self, middlewares: Sequence[Middleware], insert: Callable[..., Any], attributes: Any) -> Any:
        """What ``insert`` returns, whatever the middlewares around it return.

        Raises:
            InvalidItem: one of them refused, or did not call on. What they raise comes through.
        """
        try:
            return compose(middlewares, insert, kind=PlainPassage)(self._model, attributes)
        except NotCalledOn as error:
            raise InvalidItem(f"box {self.box.name}: {error}, so nothing was written") from error
        except Refused as error:
            raise InvalidItem(f"box {self.box.name}: {error}") from error

    def _insert(
        self, session: Any, rows: list[Attributes], partition_by: Any, known: set[ItemId] | None = None
    ) -> list[ItemId]:
        for position, row in enumerate(rows):
            self._prepare(row, partition_by, position)
        started = self._clock.monotonic()
        with self._tracer.creating(self.box, len(rows)):
            self._propagate(rows)
            inserted = self._rows.insert(session, rows)
        if known is not None:
            known |= inserted.known
        # An id that stands twice is one row.
        new = {id_: row["bucket"] for id_, row in zip(inserted.ids, rows, strict=True) if id_ not in inserted.known}
        if new:
            seconds = self._clock.monotonic() - started
            self._observer.see(events.Created(self.box, ids=list(new), buckets=list(new.values()), seconds=seconds))
        return inserted.ids

    def _propagate(self, rows: list[Attributes]) -> None:
        """Puts the current trace, if there is one, into the items' headers, so that processing continues it."""
        context = self._tracer.inject({})
        if context and "options" in self._rows.columns:
            for row in rows:
                options = row.get("options") or {}
                row["options"] = {**options, "headers": {**context, **(options.get("headers") or {})}}

    def _prepare(self, row: Attributes, partition_by: Any, position: int) -> None:
        """Makes of what the caller gave what the table takes."""
        box, columns = self.box, self._rows.columns
        own = None
        if not columns.issuperset(row):
            own = row.pop("partition_by", None)
            check_names(box, row, columns, position)
        key = row.get("event_key")
        self._demand_key(key, position)
        payload = self._payload(row.get("payload"), position)
        self._check_options(row.get("options"), position)
        if row.get("event_name") is not None:
            row["event_name"] = self._event_name(row["event_name"], position)
        if row.get("dedup_key") is not None:
            row["dedup_key"] = self._dedup_key(row["dedup_key"], position)
        for name in MOMENTS:
            if name in row and isinstance(row[name], str):
                row[name] = self._moment(name, row[name], position)
        by = own
        if by is None:
            by = partition_by(row) if callable(partition_by) else partition_by
        if unfinished(by):
            # The default strategy would find digits even in the text of a coroutine.
            raise InvalidItem(f"box {box.name}, item {position}: partition_by {reason_of(refusal(by))}")
        bucket = row.get("bucket")
        if bucket is None:
            bucket = self._bucket(key if by is None else by, position)
        if isinstance(bucket, bool) or bucket not in box.buckets:
            discard(bucket)
            # No worker would ever look there.
            raise InvalidItem(
                f"box {box.name}, item {position}: bucket {bucket!r}, expected 0 to {box.bucket_size - 1}"
            )
        row["event_key"], row["payload"], row["bucket"] = str(key), payload, bucket

    def _demand_key(self, key: Any, position: int) -> None:
        """Refuses a value whose text is surely not what was meant. Other objects may well have a text that identifies them."""
        if key is None or key == "":
            raise InvalidItem(f"box {self.box.name}, item {position}: event_key is missing")
        if _is_no_name(key):
            raise self._no_name("event_key", key, position)

    def _event_name(self, name: Any, position: int) -> Any:
        """The name as text. A member of an enumeration is left to a column of that type."""
        if _is_no_name(name):
            raise self._no_name("event_name", name, position)
        return str(name) if isinstance(name, int | float | UUID) and not isinstance(name, Enum) else name

    def _dedup_key(self, key: Any, position: int) -> str:
        """The key as text: a database compares a text with a number wrongly, or not at all."""
        if not isinstance(key, str | int | UUID) or _is_no_name(key):
            raise self._no_name("dedup_key", key, position)
        if key == "":
            raise InvalidItem(
                f"box {self.box.name}, item {position}: dedup_key is empty: of all items with it only the first would be kept; "
                "leave it out, or pass None"
            )
        return key if isinstance(key, str) else str(key)

    def _no_name(self, name: str, given: Any, position: int) -> InvalidItem:
        discard(given)
        kind = type(given).__name__
        return InvalidItem(
            f"box {self.box.name}, item {position}: {name} must be a text, a whole number or a UUID, not {kind}"
        )

    def _moment(self, name: str, text: str, position: int) -> datetime:
        """A moment from a text, as messages have it: each database would read the text in its own way."""
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise InvalidItem(
                f"box {self.box.name}, item {position}: {name}: expected a datetime with a zone, or its text in ISO 8601, "
                f"such as 2026-01-31T12:00Z; got {text!r:.80}"
            ) from None

    def _bucket(self, key: Any, position: int) -> int:
        try:
            return self.box.partition_strategy(key, self.box.bucket_size)
        except UnicodeError as error:
            raise InvalidItem(
                f"box {self.box.name}, item {position}: event_key cannot be encoded as UTF-8: {error}"
            ) from error

    def _check_options(self, options: Any, position: int) -> None:
        if options is None:
            return
        what, given = (
            ("options['headers']", options.get("headers")) if isinstance(options, Mapping) else ("options", options)
        )
        if given is not None and not isinstance(given, Mapping):
            from boxengine.domain.json_advice import why_no_mapping  # noqa: PLC0415 - hardly a process needs it

            raise InvalidItem(f"box {self.box.name}, item {position}: {what}: {why_no_mapping(given)}")

    def _payload(self, payload: Any, position: int) -> bytes:
        match payload:
            case bytes():
                pass
            case str():
                payload = self._as_utf_8(payload, position)
            case bytearray() | memoryview():
                payload = bytes(payload)
            case None:
                raise InvalidItem(f"box {self.box.name}, item {position}: payload is missing")
            case _:
                payload = self._encoded(payload, position)
        if self._max_payload is not None and len(payload) > self._max_payload:
            raise InvalidItem(
                f"box {self.box.name}, item {position}: payload of {len(payload)} bytes is over the limit of "
                f"{self._max_payload} (max_payload_bytes)"
            )
        return bytes(payload)

    def _encoded(self, payload: Any, position: int) -> bytes:
        kind = type(payload).__name__
        if self._codec is None:
            raise InvalidItem(
                f"box {self.box.name}, item {position}: payload must be bytes or str, not {kind}; for others give the "
                "model a codec, such as __payload__ = Payload.json()"
            )
        try:
            encoded: object = self._codec.encode(payload)
        except Exception as error:  # a codec is a library's or a user's code
            reason = " ".join(str(error).split()) or type(error).__name__
            raise self._not_encoded(kind, position, reason) from error
        if isinstance(encoded, bytes):
            return encoded
        discard(encoded)
        raise self._not_encoded(kind, position, f"encode returned {type(encoded).__name__}, not bytes")

    def _not_encoded(self, kind: str, position: int, reason: str) -> InvalidItem:
        model = self._model if isinstance(self._model, str) else self._model.__name__
        codec = "" if self._codec is None else self._codec.name
        return InvalidItem(
            f"box {self.box.name}, item {position}: a payload of type {kind} cannot be encoded as {codec}, the codec of "
            f"{model}: {reason:.500}"
        )

    def _as_utf_8(self, text: str, position: int) -> bytes:
        try:
            return text.encode()
        except UnicodeError as error:
            raise InvalidItem(
                f"box {self.box.name}, item {position}: payload cannot be encoded as UTF-8: {error}"
            ) from error


def _is_no_name(given: object) -> bool:
    """Whether it is of a kind whose text names nothing: ``True``, ``b'42'``, ``Order(id=1)``, ``<Order object at 0x7f>``.

    What a dataclass says of itself changes with its fields, so its items would not stay in order.
    """
    if type(given) in _NAMES:
        return False
    if isinstance(given, bool | bytes | bytearray | memoryview | Mapping | list | AbstractSet) or unfinished(given):
        return True
    kind = type(given)
    return kind.__str__ is object.__str__ and (kind.__repr__ is object.__repr__ or is_dataclass(kind))
