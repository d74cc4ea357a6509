"""Writing items: the bucket, the create middlewares, and the insertion through the caller's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from boxengine.engine.middleware import compose
from boxengine.engine.pipeline import Middlewares, Pipeline
from boxengine.errors import InvalidItem
from boxengine.ports import Clock, Observer, Tracer

Attributes = dict[str, Any]


class Rows(Protocol):
    """Inserts rows of one box into the caller's open transaction (port of the create side)."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns a caller may set."""

    def insert(self, session: Any, rows: Sequence[Attributes]) -> list[int]:
        """Inserts the rows; their ids in the order given (of a row with a known ``dedup_key``: that of the first)."""


class Creator:
    """Puts items into one box."""

    def __init__(
        self,
        pipeline: Pipeline,
        rows: Rows,
        *,
        middlewares: Middlewares,
        observer: Observer,
        tracer: Tracer,
        clock: Clock,
        max_payload: int | None = None,
    ) -> None:
        """Args:
        max_payload: largest payload in bytes; None for no limit.
        """
        self.box = pipeline.box
        self._model = pipeline.model or pipeline.box.name
        self._rows = rows
        self._observer = observer
        self._tracer = tracer
        self._clock = clock
        self._max_payload = max_payload
        self._middlewares = middlewares

    def create(self, session: Any, attributes: Mapping[str, Any], *, partition_by: Any = None) -> int:
        """Inserts one item through ``session`` and returns its id.

        Raises:
            InvalidItem: no event key, a payload that is not bytes or text, an attribute the table does not have.
        """
        row = dict(attributes)

        def insert(_model: Any, attributes: Attributes) -> int:
            return self._insert(session, [attributes], partition_by)[0]

        return int(compose(self._middlewares.create_item, insert)(self._model, row))

    def create_batch(
        self,
        session: Any,
        batch: Sequence[Mapping[str, Any]],
        *,
        partition_by: Callable[[Attributes], Any] | None = None,
    ) -> list[int]:
        """Inserts many items and returns their ids in the order given.

        ``partition_by`` is called with each item's attributes and overrides its event key for the bucket.

        Raises:
            InvalidItem: as for one; nothing of the batch is inserted then.
        """
        rows = [dict(attributes) for attributes in batch]
        if not rows:
            return []

        def insert(_model: Any, attributes: list[Attributes]) -> list[int]:
            return self._insert(session, attributes, partition_by)

        return list(compose(self._middlewares.create_batch, insert)(self._model, rows))

    def _insert(self, session: Any, rows: list[Attributes], partition_by: Any) -> list[int]:
        prepared = [self._prepared(row, partition_by, position) for position, row in enumerate(rows)]
        started = self._clock.monotonic()
        with self._tracer.creating(self.box, len(prepared)):
            self._propagate(prepared)
            ids = self._rows.insert(session, prepared)
        seconds = self._clock.monotonic() - started
        self._observer.created(self.box, ids=ids, buckets=[row["bucket"] for row in prepared], seconds=seconds)
        return ids

    def _propagate(self, rows: list[Attributes]) -> None:
        """Puts the current trace, if there is one, into the items' headers, so that processing continues it."""
        context = self._tracer.inject({})
        if context and "options" in self._rows.columns:
            for row in rows:
                options = row.get("options") or {}
                row["options"] = {**options, "headers": {**context, **options.get("headers", {})}}

    def _prepared(self, row: Attributes, partition_by: Any, position: int) -> Attributes:
        box = self.box
        unknown = row.keys() - self._rows.columns
        if unknown:
            raise InvalidItem(
                f"box {box.name}, item {position}: unknown attribute {', '.join(sorted(unknown))}; "
                f"known: {', '.join(sorted(self._rows.columns))}"
            )
        key = row.get("event_key")
        if key is None or key == "":
            raise InvalidItem(f"box {box.name}, item {position}: event_key is missing")
        payload = self._payload(row.get("payload"), position)
        by = partition_by(row) if callable(partition_by) else partition_by
        bucket = row.get("bucket")
        if bucket is None:
            bucket = box.partition_strategy(key if by is None else by, box.bucket_size)
        return {**row, "event_key": str(key), "payload": payload, "bucket": bucket}

    def _payload(self, payload: Any, position: int) -> bytes:
        match payload:
            case bytes():
                pass
            case str():
                payload = payload.encode()
            case bytearray() | memoryview():
                payload = bytes(payload)
            case None:
                raise InvalidItem(f"box {self.box.name}, item {position}: payload is missing")
            case _:
                raise InvalidItem(
                    f"box {self.box.name}, item {position}: payload must be bytes or str, not {type(payload).__name__}"
                )
        if self._max_payload is not None and len(payload) > self._max_payload:
            raise InvalidItem(
                f"box {self.box.name}, item {position}: payload of {len(payload)} bytes is over the limit of "
                f"{self._max_payload} (max_payload_bytes)"
            )
        return bytes(payload)
