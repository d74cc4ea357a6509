"""The ways to create items and jobs: one or many, on either side, under a ``Session`` or an ``AsyncSession``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from typing_extensions import Unpack

from boxengine.domain.attributes import BatchAttributes, ItemAttributes, P
from boxengine.domain.box import BoxType
from boxengine.domain.job_attributes import JobAttributes, NewJobAttributes
from boxengine.errors import InvalidItem

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from boxengine.adapters.sql.jobs.models import JobItem
    from boxengine.adapters.sql.shape.models import InboxItem, OutboxItem
    from boxengine.engine.create import Creator
    from boxengine.engine.jobs.create import JobCreator

    AnySession = Session | Connection | scoped_session[Session]
    AnyAsyncSession = AsyncSession | AsyncConnection | async_scoped_session[AsyncSession]

T = TypeVar("T")
Model = type | str
"""A model class, or the name of a box."""


class Creating(ABC):
    """What applications call to write items and jobs; the creators come from the subclass."""

    @abstractmethod
    def creator(self, model: Model, side: BoxType) -> Creator:
        """The creator of items for the box of this model or name.

        Raises:
            InvalidItem: the box is on the other side: an inbox instead of an outbox, or the reverse.
            UnknownBox: the configuration has no such box.
        """

    @abstractmethod
    def job_creator(self, model: Model) -> JobCreator:
        """The creator of jobs for the box of this model or name.

        Raises:
            UnknownBox: the configuration has no such box of jobs.
        """

    # ── writing items ────────────────────────────────────────────────────────────────────────────────

    def create_outbox_item(
        self,
        session: AnySession,
        model: type[OutboxItem[P]] | str,
        *,
        partition_by: object = None,
        **attributes: Unpack[ItemAttributes[P]],
    ) -> int:
        """Inserts one item through the caller's open transaction and returns its id.

        Args:
            session: a SQLAlchemy ``Session`` or ``Connection``; the row commits or rolls back with it. A session that has
                several engines uses the model's.
            model: the box's model class, or its name.
            partition_by: what the bucket is computed from; ``event_key`` if None.
            attributes: columns of the row: ``event_key`` and ``payload`` (bytes, str, or what the model's codec encodes)
                are required; ``event_name``, ``options`` (a dict with ``key`` and ``headers``), ``uuid``, ``available_at``
                and ``dedup_key`` are optional. Pass the model's own columns directly, or in the dict ``own_columns`` to
                satisfy a type checker.

        Raises:
            InvalidItem: no event key, a key or name too long for its column, a payload of the wrong type or one that cannot
                be encoded, a moment without a zone, or an unknown attribute.
            UnknownBox: the configuration has no such box.
        """
        return int(self.creator(model, BoxType.OUTBOX).create(session, attributes, partition_by=partition_by))

    def create_inbox_item(
        self,
        session: AnySession,
        model: type[InboxItem[P]] | str,
        *,
        partition_by: object = None,
        **attributes: Unpack[ItemAttributes[P]],
    ) -> int:
        """As ``create_outbox_item``, for a received message."""
        return int(self.creator(model, BoxType.INBOX).create(session, attributes, partition_by=partition_by))

    def create_outbox_batch(
        self,
        session: AnySession,
        model: type[OutboxItem[P]] | str,
        items: Sequence[BatchAttributes[P]],
        *,
        partition_by: Callable[[dict[str, Any]], object] | None = None,
    ) -> list[int]:
        """Inserts many items in one statement and returns their ids in the order given.

        Args:
            items: one dict of attributes per item, as for ``create_outbox_item``; it may also hold that item's ``partition_by``.
            partition_by: called with an item's attributes; the bucket is computed from its return value.
        """
        return self.creator(model, BoxType.OUTBOX).create_batch(session, items, partition_by=partition_by)

    def create_inbox_batch(
        self,
        session: AnySession,
        model: type[InboxItem[P]] | str,
        items: Sequence[BatchAttributes[P]],
        *,
        partition_by: Callable[[dict[str, Any]], object] | None = None,
    ) -> list[int]:
        """As ``create_outbox_batch``, for received messages."""
        return self.creator(model, BoxType.INBOX).create_batch(session, items, partition_by=partition_by)

    async def acreate_outbox_item(
        self,
        session: AnyAsyncSession,
        model: type[OutboxItem[P]] | str,
        *,
        partition_by: object = None,
        **attributes: Unpack[ItemAttributes[P]],
    ) -> int:
        """``create_outbox_item`` under an ``AsyncSession``."""
        return await self._created(
            session, lambda sync: self.create_outbox_item(sync, model, partition_by=partition_by, **attributes)
        )

    async def acreate_inbox_item(
        self,
        session: AnyAsyncSession,
        model: type[InboxItem[P]] | str,
        *,
        partition_by: object = None,
        **attributes: Unpack[ItemAttributes[P]],
    ) -> int:
        """``create_inbox_item`` under an ``AsyncSession``."""
        return await self._created(
            session, lambda sync: self.create_inbox_item(sync, model, partition_by=partition_by, **attributes)
        )

    async def acreate_outbox_batch(
        self,
        session: AnyAsyncSession,
        model: type[OutboxItem[P]] | str,
        items: Sequence[BatchAttributes[P]],
        *,
        partition_by: Callable[[dict[str, Any]], object] | None = None,
    ) -> list[int]:
        """``create_outbox_batch`` under an ``AsyncSession``."""
        return await self._created(
            session, lambda sync: self.create_outbox_batch(sync, model, items, partition_by=partition_by)
        )

    async def acreate_inbox_batch(
        self,
        session: AnyAsyncSession,
        model: type[InboxItem[P]] | str,
        items: Sequence[BatchAttributes[P]],
        *,
        partition_by: Callable[[dict[str, Any]], object] | None = None,
    ) -> list[int]:
        """``create_inbox_batch`` under an ``AsyncSession``."""
        return await self._created(
            session, lambda sync: self.create_inbox_batch(sync, model, items, partition_by=partition_by)
        )

    # ── creating long jobs ───────────────────────────────────────────────────────────────────────────

    def create_job(
        self, session: AnySession, model: type[JobItem] | str, *, task: str, **attributes: Unpack[JobAttributes]
    ) -> int:
        """Inserts one long job through the caller's open transaction and returns its id.

        Args:
            session: a SQLAlchemy ``Session`` or ``Connection``; the job commits or rolls back with it. A session that has
                several engines uses the model's.
            model: the box's model class, or its name.
            task: which of the box's handlers runs it.
            attributes: ``args``, ``idempotency_key``, ``lock_key``, ``priority``, ``delay`` and others: see ``JobAttributes``.

        Raises:
            InvalidItem: the task does not exist, or an attribute is invalid.
            UnknownBox: the configuration has no such box of jobs.
        """
        return self.job_creator(model).create(session, [{"task": task, **attributes}])[0]

    def create_jobs(
        self, session: AnySession, model: type[JobItem] | str, jobs: Sequence[NewJobAttributes]
    ) -> list[int]:
        """Inserts many jobs and returns their ids in the order given. If one is refused, none is inserted."""
        return self.job_creator(model).create(session, cast("Sequence[dict[str, Any]]", jobs))

    async def acreate_job(
        self, session: AnyAsyncSession, model: type[JobItem] | str, *, task: str, **attributes: Unpack[JobAttributes]
    ) -> int:
        """``create_job`` under an ``AsyncSession``."""
        return await self._created(session, lambda sync: self.create_job(sync, model, task=task, **attributes))

    async def acreate_jobs(
        self, session: AnyAsyncSession, model: type[JobItem] | str, jobs: Sequence[NewJobAttributes]
    ) -> list[int]:
        """``create_jobs`` under an ``AsyncSession``."""
        return await self._created(session, lambda sync: self.create_jobs(sync, model, jobs))

    async def _created(self, session: AnyAsyncSession, create: Callable[[Any], T]) -> T:
        run_sync = getattr(running_plain(session), "run_sync", None)
        if run_sync is None:
            raise InvalidItem(
                f"an AsyncSession or AsyncConnection is needed, not {type(session).__name__}; {_advice(session)}"
            )
        return cast("T", await run_sync(create))


def _advice(given: Any) -> str:
    """What to give in place of something that runs no plain code."""
    if type(given).__module__.startswith("sqlalchemy.ext.asyncio."):  # an engine, or a maker of sessions
        return "open one: async with AsyncSession(engine) as session, session.begin()"
    return (
        "with a Session or a Connection leave out the a: create_outbox_item instead of acreate_outbox_item, and so on"
    )


def running_plain(session: Any) -> Any:
    """What runs plain code for this session: itself, or the present session of an ``async_scoped_session``, which cannot."""
    if hasattr(session, "run_sync"):
        return session
    from sqlalchemy.util import ScopedRegistry  # noqa: PLC0415 - whoever has such a session has imported it

    registry = getattr(session, "registry", None)  # a model has one, too, of another kind
    return registry() if isinstance(registry, ScopedRegistry) else session
