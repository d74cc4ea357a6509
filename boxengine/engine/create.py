"""Writing items: the bucket, the create middlewares, and the insertion through the caller's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from boxengine.domain.codec import Codec
from boxengine.domain.item_id import ItemId
from boxengine.engine.delivering.calls.middleware import NotCalledOn, PlainPassage, Refused, compose
from boxengine.engine.delivering.calls.pipeline import Middleware, Middlewares, Pipeline
from boxengine.engine.preparing import Preparation
from boxengine.errors import InvalidItem
from boxengine.ports import Attributes, Clock, NewRows, Observer, Tracer, events


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
        self._preparation = Preparation(box=self.box, model=self._model, codec=codec, max_payload=max_payload)
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
        """This creator without a limit of payloads, for what has to be kept: there is nobody left to refuse it to."""
        other = copy(self)
        other._preparation = replace(self._preparation, max_payload=None)  # noqa: SLF001 - a copy of this object
        return other

    def unguarded(self) -> Creator:
        """This creator without a limit of payloads, and without create middlewares."""
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
        if not isinstance(batch, Iterable):
            raise self._no_dicts(batch)
        rows = [self._merged(attributes) for attributes in batch]
        if not rows:
            return []

        def insert(_model: Any, attributes: list[Attributes]) -> list[ItemId]:
            return self._insert(session, attributes, partition_by, known)

        return list(self._through(self._middlewares.create_batch, insert, rows))

    def _merged(self, attributes: Mapping[str, Any]) -> Attributes:
        """A copy, in which ``own_columns`` stand beside the others, as if given one by one."""
        if not isinstance(attributes, Mapping):
            raise self._no_dicts(attributes)
        row = dict(attributes)
        own = row.pop("own_columns", None)
        if not own:
            return row
        if not isinstance(own, Mapping):
            raise InvalidItem(f"box {self.box.name}: own_columns: expected a dict, got {own!r:.80}")
        return {**own, **row}

    def _no_dicts(self, given: object) -> InvalidItem:
        expected = "expected a list of dicts, one with the attributes of each item"
        return InvalidItem(f"box {self.box.name}: {expected}; got {given!r:.80}")

    def _through(self, middlewares: Sequence[Middleware], insert: Callable[..., Any], attributes: Any) -> Any:
        """What ``insert`` returns, whatever the middlewares around it return.

        Raises:
            InvalidItem: one of them refused, or did not call ``call_next()``. What they raise comes through.
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
        columns = self._rows.columns
        for position, row in enumerate(rows):
            self._preparation.prepare(row, columns, partition_by, position)
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
                own = options.get("headers")
                row["options"] = {**options, "headers": self._tracer.inject(dict(own)) if own else context}
