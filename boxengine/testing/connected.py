"""Boxes whose items are in the application's database, seen through the test's own connection.

The engine claims from a copy in memory, so the clock can be moved and nothing else is locked; outcomes are written back
through the connection. So a drain sees what the test's transaction has written, and a rollback removes everything. Of a log,
whose rows bear no outcomes, they are kept in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from sqlalchemy import Connection, Engine, MetaData, Table, select
from sqlalchemy.orm import Session, scoped_session

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.rows import Row
from boxengine.adapters.memory.store import MemoryStore
from boxengine.adapters.sql.log.tables import log_table
from boxengine.adapters.sql.sessions.callers_connection import bind_arguments, callers_connection
from boxengine.adapters.sql.sessions.handlers_session import HandlersSession
from boxengine.adapters.sql.shape.adapting import adapted, mapped
from boxengine.adapters.sql.shape.models import box_table
from boxengine.app.boxes.creating import Model, running_plain
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Item, Status
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import Settlement, Unrecorded
from boxengine.errors import BoxError
from boxengine.ports import Claim, Outlook, PendingRow, Store
from boxengine.settings import Resolved
from boxengine.testing.boxes import TestedBoxes
from boxengine.testing.clock import PresentClock
from boxengine.testing.draining import Drained
from boxengine.testing.emitted import Emitted
from boxengine.testing.outcomes import LogOutcomes, Outcomes, TableOutcomes

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import (
        AsyncSession,
        async_scoped_session,
    )  # cannot be imported without greenlet, which is optional

Bind: TypeAlias = (
    "Session | scoped_session[Session] | AsyncSession | async_scoped_session[AsyncSession] | Connection | Engine"
)


class DatabaseBoxes(TestedBoxes):
    """The boxes of a configuration, with their items in the database of ``bind``.

    Works with any database that SQLAlchemy and the application's models support, SQLite included; a box with ``storage: log``
    needs the tables that ``boxengine db create`` makes. Handlers that take ``session=`` get a session on the test's connection.

    Example::

        def test_an_invoice_is_written(session):                 # rolled back when the test ends
            boxes = DatabaseBoxes(boxengine.load("outbox.yml").resolved, session)
            boxes.create_inbox_item(session, PaymentInboxItem, event_key=1, payload=b'{"total": 12}')
            boxes.drain()
            assert session.scalars(select(Invoice)).one().total == 12
    """

    def __init__(self, resolved: Resolved, bind: Bind, *, clock: ManualClock | None = None) -> None:
        """Args:
        bind: a ``Session``, ``scoped_session`` or ``Connection``, whose open transaction is used and left open; an
            ``AsyncSession``, for ``aemitted`` and ``adrain``; or an ``Engine``, on which each look and each batch opens its
            own transaction.
        clock: None: one that starts at the present, and knows the real clock's reading; a ``ManualClock`` of your own does not.

        Raises:
            TypeError: ``bind`` is none of these.
        """
        super().__init__(resolved, clock=clock or PresentClock())
        self._bind: Session | AsyncSession | Connection | Engine = _usable(bind)
        self._tables: dict[str, Table] = {}
        self._settled: dict[str, dict[ItemId, Row]] = {}
        """By box with ``storage: log``: the rows that have an outcome, with it."""

    async def aemitted(self, model: Model, **which: Any) -> Emitted:
        """``emitted`` on an ``AsyncSession``."""
        return cast("Emitted", await self._run_sync(lambda: self.emitted(model, **which)))

    async def adrain(self, *models: Model, **options: Any) -> Drained:
        """``drain`` on an ``AsyncSession``."""
        return cast("Drained", await self._run_sync(lambda: self.drain(*models, **options)))

    async def _run_sync(self, work: Any) -> Any:
        asynchronous = self._bind
        if isinstance(asynchronous, Session | Connection | Engine):
            return work()

        def run(session: Session) -> Any:
            self._bind = session
            try:
                return work()
            finally:
                self._bind = asynchronous

        return await asynchronous.run_sync(run)

    # ── where the items are ──────────────────────────────────────────────────────────────────────────

    def _store_of(self, box: Box) -> Store:
        return _ConnectedStore(self, box)

    def _items(self, box: Box) -> Sequence[Item]:
        return [row.as_item(box, dispatched_at=self.clock.now()) for row in self._rows(box)]

    def _rows(self, box: Box) -> Sequence[Row]:
        with self.connection(box) as connection:
            return self.read(connection, box)

    @contextmanager
    def connection(self, box: Box) -> Iterator[Connection]:
        """The test's connection to the box's database, in its open transaction. From an engine: a new connection, committed at
        the end."""
        match self._bind:
            case Session() | Connection():
                yield callers_connection(self._bind, bind_arguments(*self._mapped(box)))
            case Engine():
                with self._bind.begin() as connection:
                    yield connection
            case _:
                raise BoxError("an AsyncSession goes with adrain and aemitted; drain and emitted take a Session")

    def table(self, connection: Connection, box: Box) -> Table:
        """The box's table, or its log: by the user's model class, or as the database has it."""
        known = self._tables.get(box.name)
        if known is None:
            known = self._tables[box.name] = self._find_table(connection, box)
        return known

    def _find_table(self, connection: Connection, box: Box) -> Table:
        model, table = self._mapped(box)
        if box.storage is Storage.LOG:
            return log_table(table, box.type)
        return adapted(table, box, connection) if model is None else mapped(table, connection)

    def _mapped(self, box: Box) -> tuple[type | None, Table]:
        """The user's model class and its table, or the table as boxengine makes it."""
        model = self.pipeline(box.name).model
        return model, box_table(box.source, MetaData()) if model is None else model.__table__  # type: ignore[attr-defined]

    def read(self, connection: Connection, box: Box) -> list[Row]:
        """All rows of the box in id order."""
        columns, settled = self.table(connection, box).c, self._settled.get(box.name, {})
        # By their keys: the column of the payload may have another name.
        named = [column.label(column.key) for column in columns]
        found = connection.execute(select(*named).order_by(columns.id)).mappings()
        # A column seq of a box without numbers is the application's own.
        hidden = {} if box.sequence else {"seq": None}
        return [settled.get(mapping["id"]) or _row({**mapping, **hidden}) for mapping in found]

    def outcomes(self, connection: Connection, box: Box) -> Outcomes:
        """Where the outcomes of the box's items are kept."""
        if box.storage is Storage.LOG:
            return LogOutcomes(self.read(connection, box), self._settled.setdefault(box.name, {}), self.clock)
        return TableOutcomes(connection, self.table(connection, box), box, self.clock)


def _usable(bind: Bind) -> Session | AsyncSession | Connection | Engine:
    usable = running_plain(bind)
    if isinstance(usable, Session | Connection | Engine) or hasattr(usable, "run_sync"):
        return cast("Session | AsyncSession | Connection | Engine", usable)
    raise TypeError(f"database_boxes takes a Session, an AsyncSession, a Connection or an Engine, not {bind!r:.80}")


class _ConnectedClaims:
    """``Claims`` of one box over the test's connection. Each copies the table, which in a test is small."""

    def __init__(self, boxes: DatabaseBoxes, box: Box) -> None:
        self._boxes = boxes
        self._box = box

    @contextmanager
    def open(self, buckets: Mapping[int, ItemId | None], limit: int) -> Iterator[Claim]:
        """See ``Claims.open``. Without a commit, everything is rolled back to a savepoint."""
        box = self._box
        with self._boxes.connection(box) as connection:
            copy = MemoryStore(self._boxes.clock)
            for row in self._boxes.read(connection, box):
                copy.put(box, row)
            whole = connection.begin_nested()
            try:
                with copy.claims(box).open(buckets, limit) as inner:
                    claim = _ConnectedClaim(inner, connection, self._boxes.outcomes(connection, box))
                    yield claim
            finally:
                if whole.is_active:
                    whole.commit() if claim.committed else whole.rollback()


class _ConnectedStore:
    """``Store`` of one box over the test's connection."""

    def __init__(self, boxes: DatabaseBoxes, box: Box) -> None:
        self._boxes = boxes
        self._box = box

    def claims(self, box: Box) -> _ConnectedClaims:
        """See ``Store.claims``."""
        return _ConnectedClaims(self._boxes, box)

    def plain_claims(self, box: Box) -> _ConnectedClaims:
        """See ``Store.plain_claims``."""
        return self.claims(box)

    def poll(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        """A drain polls nothing."""
        raise NotImplementedError

    def poll_regular(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        """A drain polls nothing."""
        raise NotImplementedError

    def outlook(self, box: Box, buckets: Sequence[int]) -> Outlook:
        """A drain polls nothing."""
        raise NotImplementedError

    def pending(self, boxes: Sequence[Box]) -> frozenset[str]:
        """A drain polls nothing."""
        raise NotImplementedError

    def locks_decide(self, box: Box) -> bool:
        """A drain takes no leases."""
        raise NotImplementedError

    def ping(self) -> None:
        """See ``Store.ping``."""


class _ConnectedClaim:
    """A claim on the copy, whose outcomes are kept."""

    def __init__(self, inner: Claim, connection: Connection, outcomes: Outcomes) -> None:
        self._inner = inner
        self._connection = connection
        self._outcomes = outcomes
        # The test rolls back, so nobody else would check what is deferred until the commit.
        self._handlers = HandlersSession(connection, checks=connection.dialect.name == "postgresql")
        self.items: Sequence[Item] = inner.items
        self.refused = inner.refused
        self.exhausted = inner.exhausted
        self.locked = inner.locked
        self.unreadable = inner.unreadable
        self.now = inner.now
        self.committed = False

    @property
    def session(self) -> Session:
        """See ``Claim.session``."""
        return self._handlers.get()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """See ``Claim.savepoint``."""
        # Otherwise a block around this one would make its savepoint inside this one's, and lose it with this one.
        self._handlers.begin_parts()
        # The test's transaction must stay usable, so what the handler wrote through its connection is rolled back too.
        with self._connection.begin_nested(), self._handlers.savepoint():
            yield

    def waiting_keys(self, items: Sequence[Item], upto: Mapping[int, int]) -> Collection[str]:
        """See ``PlainClaim.waiting_keys``."""
        return self._inner.waiting_keys(items, upto)

    def later_delivered(self, items: Sequence[Item]) -> Mapping[int, int]:
        """See ``Claim.later_delivered``."""
        return self._inner.later_delivered(items)

    def commit(self, settlement: Settlement) -> Unrecorded | None:
        """See ``Claim.commit``."""
        self._handlers.finish()
        self._inner.commit(settlement)
        self._outcomes.keep(settlement)
        self.committed = True
        return None


_STATUSES = {int(each): each for each in Status}


def _row(found: dict[str, Any]) -> Row:
    """A row of the table. Moments without a zone are in UTC."""
    in_log = {"status": Status.PENDING, "errors_count": 0, "updated_at": found["created_at"]}
    fields: dict[str, Any] = {name: found.get(name, in_log.get(name)) for name in Row.__dataclass_fields__}
    for name, value in fields.items():
        if isinstance(value, datetime) and value.tzinfo is None:
            fields[name] = value.replace(tzinfo=UTC)
    # A number that is no status stays: the table may hold anything.
    fields["status"] = _STATUSES.get(fields["status"], fields["status"])
    # Tables of sbmt-outbox may have numeric keys.
    return Row(**{**fields, "event_key": str(fields["event_key"]), "payload": bytes(fields["payload"] or b"")})
