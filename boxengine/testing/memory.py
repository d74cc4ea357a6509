"""Boxes whose items stay in memory: for tests without a database."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar
from uuid import UUID

from sqlalchemy import Column, Connection, MetaData, Table
from sqlalchemy.orm import Session, scoped_session

from boxengine.adapters.memory.claims import MemoryClaim, MemoryClaims
from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.rows import Row
from boxengine.adapters.memory.store import MemoryStore
from boxengine.adapters.sql.log.tables import is_logged
from boxengine.adapters.sql.shape.columns import length_of, names_events_by_texts, takes_one_value
from boxengine.adapters.sql.shape.models import box_table
from boxengine.app.boxes.boxes import is_numbered, named, no_job_box
from boxengine.app.boxes.creating import Model, running_plain
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.domain.json_values import json_text
from boxengine.domain.names import box_name
from boxengine.domain.new_values import ENGINE_OWNED, TEXTS, check_single_values, check_values, name_events, not_json
from boxengine.engine.create import Creator
from boxengine.engine.observation import NullTracer
from boxengine.errors import BoxError, InvalidItem
from boxengine.ports import Attributes, Inserted, Store
from boxengine.settings import Resolved
from boxengine.testing.boxes import TestedBoxes
from boxengine.testing.clock import PresentClock
from boxengine.testing.sessions import CreatingSession, demand_plain, flush, is_asynchronous
from boxengine.testing.undoing import on_rollback

T = TypeVar("T")
COLUMNS = frozenset(
    {"uuid", "event_name", "event_key", "bucket", "options", "payload", "available_at", "dedup_key", "created_at"}
)
"""What a caller may set, as in a table made by boxengine. In a log, some have no place."""


class MemoryBoxes(TestedBoxes):
    """The boxes of a configuration, with everything that is created kept in memory.

    ``create_outbox_item`` and the other create functions take a ``Session`` or a ``Connection``, and ``acreate_outbox_item`` and
    the other asynchronous ones their asynchronous forms; all take a mock, a fake of the test's own, or ``None``.
    What a session of a real database has pending is flushed first, as in production.
    Items created through a SQLAlchemy ``Session`` or ``Connection`` disappear when it rolls back, also to a savepoint, or is
    closed without a commit, and when the transaction that a session has joined on its connection rolls back. No item is ever
    written to its database.
    A handler may create items through its ``session=``. To write anything else it needs a database, as ``create_job`` does: see
    ``DatabaseBoxes``.

    Example::

        boxes = MemoryBoxes(boxengine.load("outbox.yml").resolved)
        boxes.create_outbox_item(None, OrderOutboxItem, event_key=1, payload=b"a bicycle")
        assert boxes.drain().delivered[0].event_key == "1"
    """

    def __init__(self, resolved: Resolved, *, clock: ManualClock | None = None) -> None:
        """Args:
        clock: None: one that starts at the present, and knows the real clock's reading; a ``ManualClock`` of your own does not.
        """
        super().__init__(resolved, clock=clock or PresentClock())
        self._store = _Store(self.clock)
        self._last: dict[str, Counter[str]] = {}
        """By box with ``sequence``: the last number of each key."""

    def job_creator(self, model: Model) -> NoReturn:
        """Refuses: nobody could look at a job in memory or run it, and none may reach the session's database.

        Raises:
            UnknownBox: the configuration has no such box of jobs.
            BoxError: it has; says what to use instead.
        """
        name = box_name(model)
        if name not in self.resolved.jobs:
            raise no_job_box(name, self.resolved)
        raise BoxError(
            f"box {name} holds long jobs, which the boxes in memory do not take: use the fixture database_boxes, whose "
            "create_job writes into your test database"
        )

    def _make_creator(self, name: str, model: type | None) -> Creator:
        settings = self.resolved.settings
        pipeline = named(name, self.resolved.written)
        model = model or pipeline.model
        table: Table = box_table(pipeline.box, MetaData()) if model is None else model.__table__  # type: ignore[attr-defined]
        return Creator(
            pipeline,
            _MemoryRows(
                [self.box(reader) for reader in self.resolved.readers(name)],
                self._store,
                last=self._last.setdefault(name, Counter()) if is_numbered(pipeline.box, model) else None,
                table=table,
            ),
            middlewares=self.resolved.middlewares,
            observer=self._observer,
            tracer=NullTracer(),
            clock=self.clock,
            codec=getattr(model, "__payload__", None),
            max_payload=settings.max_payload_of(settings.boxes[name]),
        )

    async def _created(self, session: Any, create: Callable[[Any], T]) -> T:
        """A plain session is refused as in production; ``None`` and a test's own fake have nothing to run it in."""
        if is_asynchronous(running_plain(session)) or isinstance(session, Session | Connection | scoped_session):
            return await super()._created(session, create)
        return create(session)

    def _store_of(self, box: Box) -> Store:  # noqa: ARG002 - one store holds all boxes
        return self._store

    def _rows(self, box: Box) -> Sequence[Row]:
        return self._store.rows(box)

    def _items(self, box: Box) -> Sequence[Item]:
        return [row.as_item(box, dispatched_at=self.clock.now()) for row in self._store.rows(box)]


class _Claim(MemoryClaim):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.session = CreatingSession()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        with self.session.savepoint(), super().savepoint():
            yield


class _Claims(MemoryClaims):
    kind = _Claim


class _Store(MemoryStore):
    """Claims without a database to write to."""

    def claims(self, box: Box) -> MemoryClaims:
        return _Claims(self._database, box, fault=self._fault, bounds=self._bounds)


class _MemoryRows:
    """``Rows`` of one box in memory."""

    def __init__(
        self,
        readers: Sequence[Box],
        store: MemoryStore,
        *,
        last: Counter[str] | None,
        table: Table,
    ) -> None:
        """Args:
        readers: the box itself, or its subscriptions.
        last: the last number of each key, to be moved on; None: the items get no numbers.
        table: the model's, or as boxengine makes it. What is given for columns that the model adds is checked, but not kept.
        """
        self._last = last
        own = {name: column for name, column in table.columns.items() if name not in COLUMNS | ENGINE_OWNED}
        self._own = own.keys()
        self._single = [name for name, column in own.items() if takes_one_value(column.type)]
        numbered = {"seq"} if last is not None else set[str]()
        self._required = [name for name, column in own.items() if name not in numbered and _is_required(column)]
        self._longest = {name: length_of(table.columns[name].type) for name in TEXTS if name in table.columns}
        """How many characters the columns for texts take."""
        self._named = names_events_by_texts(table)
        self._box, *self._others = readers
        box = self._box.source
        logged = box.storage is Storage.LOG
        self._columns = frozenset(own) | {each for each in COLUMNS if not logged or is_logged(each, box.type)}
        if last is not None:
            self._columns -= {"seq"}
        self._store = store

    @property
    def columns(self) -> frozenset[str]:
        return self._columns

    def insert(self, session: Any, rows: Sequence[Attributes]) -> Inserted:
        demand_plain(session)
        flush(session)
        if self._named:
            name_events(self._box.name, rows)
        check_values(self._box.name, rows, longest=self._longest)
        check_single_values(self._box.name, rows, self._single)
        self._demand_required(rows)
        before = {row.id for row in self._store.rows(self._box)}
        kept = [self._as_stored(row, position) for position, row in enumerate(rows)]
        formerly = {} if self._last is None else {row["event_key"]: self._last[row["event_key"]] for row in kept}
        seen = set(before)
        ids = [self._insert(row, seen) for row in kept]
        new = [row_id for row_id in dict.fromkeys(ids) if row_id not in before]
        for row in self._store.rows(self._box):
            if row.id in new:
                for other in self._others:
                    self._store.put(other, row)
        on_rollback(session, lambda: self._undo(new, formerly))
        return Inserted(ids, frozenset(ids) & before)

    def _insert(self, row: Attributes, seen: set[ItemId]) -> ItemId:
        """The row's id. If it is not among those seen, the row is new, and has taken its key's next number."""
        if self._last is None:
            return self._store.insert(self._box, **row)
        number = self._last[row["event_key"]] + 1
        row_id = self._store.insert(self._box, **row, seq=number)
        if row_id not in seen:
            seen.add(row_id)
            self._last[row["event_key"]] = number
        return row_id

    def _demand_required(self, rows: Sequence[Attributes]) -> None:
        for position, row in enumerate(rows):
            for name in self._required:
                if row.get(name) is None:
                    raise InvalidItem(
                        f"box {self._box.name}, item {position}: {name} is missing: the model's column has no default, and "
                        "takes no NULL"
                    )

    def _as_stored(self, row: Attributes, position: int) -> Attributes:
        """The row as a database would give it back: a copy, whose options went through JSON."""
        kept = {name: value for name, value in row.items() if name not in self._own}
        if kept.get("options") is not None:
            kept["options"] = self._through_json(kept["options"], position)
        if kept.get("uuid") is not None:
            kept["uuid"] = UUID(str(kept["uuid"]))
        return kept

    def _through_json(self, options: Any, position: int) -> Any:
        try:
            return json.loads(json_text(options))
        except ValueError as error:
            raise not_json(self._box.source.name, position, str(error)) from None

    def _undo(self, ids: Sequence[ItemId], formerly: Mapping[str, int]) -> None:
        """Removes rows and takes their numbers back. It may be called again when the enclosing transaction ends."""
        for row_id in ids:
            for box in (self._box, *self._others):
                self._store.remove(box, row_id)
        if self._last is not None:
            for key, number in formerly.items():
                self._last[key] = min(self._last[key], number)


def _is_required(column: Column[Any]) -> bool:
    """Whether a database refuses a row that does not give the column a value."""
    return not column.nullable and column.default is None and column.server_default is None
