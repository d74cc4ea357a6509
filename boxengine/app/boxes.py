"""A loaded configuration, as applications use it to write items."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, assert_never, cast
from weakref import finalize

from typing_extensions import Unpack

from boxengine.adapters.builtin import BUILTIN_TRANSPORTS
from boxengine.adapters.system import SystemClock
from boxengine.domain.attributes import BatchAttributes, ItemAttributes, P
from boxengine.domain.box import Box, BoxType
from boxengine.domain.job_attributes import JobAttributes, NewJobAttributes
from boxengine.engine.delivering.pipeline import Pipeline
from boxengine.engine.jobs.bells import Bells
from boxengine.engine.observation import NullObserver
from boxengine.errors import InvalidItem, UnknownBox
from boxengine.settings import Resolved, check_for_worker, load_and_resolve, load_for_creating
from boxengine.settings.names import box_name

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from boxengine.adapters.sql.jobs.models import JobItem
    from boxengine.adapters.sql.shape.models import InboxItem, OutboxItem
    from boxengine.adapters.sql.waking.eased_notify import EasedNotify
    from boxengine.engine.create import Creator
    from boxengine.engine.jobs.create import JobCreator
    from boxengine.ports import Observer, Signal, Tracer

    AnySession = Session | Connection | scoped_session[Session]
    AnyAsyncSession = AsyncSession | AsyncConnection | async_scoped_session[AsyncSession]

T = TypeVar("T")
Paths = str | Path | Sequence[str | Path] | None
Model = type | str
"""A model class, or the name of a box."""


class Boxes:
    """The boxes of one configuration. Safe to share between threads; create one per process."""

    def __init__(
        self,
        resolved: Resolved,
        *,
        observer: Observer | None = None,
        tracer: Tracer | None = None,
        complete: Callable[[], Resolved] | None = None,
        bells: Bells | None = None,
    ) -> None:
        """Args:
        resolved: at least what creating items needs.
        observer: is notified of created items; None: nobody is.
        tracer: puts the current trace into items' headers; None: OpenTelemetry's, which costs nothing without an SDK.
        complete: reads the rest, for a worker; None: ``resolved`` is already complete.
        bells: wake this process's worker for the jobs created here; None: new ones.
        """
        self._creating = resolved
        self._complete = complete
        self.bells = Bells() if bells is None else bells
        self._observer = NullObserver() if observer is None else observer
        self._clock = SystemClock()
        self._given_tracer = tracer
        self._creators: dict[tuple[str, type | None], Creator] = {}
        self._job_creators: dict[str, JobCreator] = {}

    @cached_property
    def resolved(self) -> Resolved:
        """The settings and everything they name, including the worker's transports and strategies.

        Raises:
            ConfigurationError: something that only a worker needs is wrong.
        """
        return self._creating if self._complete is None else self._complete()

    # The methods below import what they make: a command that only looks must not wait for SQLAlchemy's ORM.

    @cached_property
    def _tracer(self) -> Tracer:
        from boxengine.adapters.telemetry.opentelemetry import OpenTelemetryTracer  # noqa: PLC0415

        return OpenTelemetryTracer(clock=self._clock) if self._given_tracer is None else self._given_tracer

    @cached_property
    def _eased(self) -> EasedNotify:
        from boxengine.adapters.sql.waking.eased_notify import EasedNotify  # noqa: PLC0415

        return EasedNotify(clock=self._clock)

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
            session: a SQLAlchemy ``Session`` or ``Connection``; the row commits or rolls back with it.
            model: the box's model class, or its name.
            partition_by: what the bucket is computed from; ``event_key`` if None.
            attributes: columns of the row: ``event_key`` and ``payload`` (bytes, str, or what the model's codec encodes)
                are required; ``event_name``, ``options`` (a dict with ``key`` and ``headers``), ``uuid``, ``available_at``
                and ``dedup_key`` are optional. Pass the model's own columns directly, or in the dict ``own_columns`` to
                satisfy a type checker.

        Raises:
            InvalidItem: no event key, a payload of the wrong type or one that cannot be encoded, or an unknown attribute.
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
        return await _run_sync(
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
        return await _run_sync(
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
        return await _run_sync(
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
        return await _run_sync(
            session, lambda sync: self.create_inbox_batch(sync, model, items, partition_by=partition_by)
        )

    # ── creating long jobs ───────────────────────────────────────────────────────────────────────────

    def create_job(
        self, session: AnySession, model: type[JobItem] | str, *, task: str, **attributes: Unpack[JobAttributes]
    ) -> int:
        """Inserts one long job through the caller's open transaction and returns its id.

        Args:
            session: a SQLAlchemy ``Session`` or ``Connection``; the job commits or rolls back with it.
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
        return await _run_sync(session, lambda sync: self.create_job(sync, model, task=task, **attributes))

    async def acreate_jobs(
        self, session: AnyAsyncSession, model: type[JobItem] | str, jobs: Sequence[NewJobAttributes]
    ) -> list[int]:
        """``create_jobs`` under an ``AsyncSession``."""
        return await _run_sync(session, lambda sync: self.create_jobs(sync, model, jobs))

    def job_creator(self, model: Model) -> JobCreator:
        """The creator of jobs for the box of this model or name.

        Raises:
            UnknownBox: the configuration has no such box of jobs.
        """
        from boxengine.adapters.sql.jobs.insert import SqlNewJobs  # noqa: PLC0415 - see above
        from boxengine.adapters.sql.jobs.wakeup import JobWakeup  # noqa: PLC0415
        from boxengine.app.contracts import codecs_of  # noqa: PLC0415
        from boxengine.engine.jobs.create import JobCreator  # noqa: PLC0415

        name = box_name(model)
        known = self._job_creators.get(name)
        if known is None:
            pipeline = self._creating.jobs.get(name)
            if pipeline is None:
                raise UnknownBox(name, self._creating.jobs)
            own = pipeline.model or (None if isinstance(model, str) else model)
            how = self._creating.settings.job_wakeup_in_force
            wakeup = JobWakeup(
                name,
                notify=how == "notify",
                signal=self._redis_signal if how == "redis" else None,
                eased=self._eased,
                ring=self.bells.ring,
                rings=self.bells.has,
            )
            rows = SqlNewJobs(pipeline.box, own, wakeup=wakeup)
            known = JobCreator(pipeline.box, rows, tasks=pipeline.tasks, codecs=codecs_of(pipeline))
            self._job_creators[name] = known
        return known

    # ── looking at the configuration ─────────────────────────────────────────────────────────────────

    def pipeline(self, name: str) -> Pipeline:
        """The box with this name, with its transports and strategies; of a box with subscriptions, one of them.

        Raises:
            UnknownBox: the configuration has no such box.
        """
        return _named(name, self.resolved.pipelines)

    def box(self, name: str) -> Box:
        """The box with this name: one that is delivered from, such as a subscription."""
        known = self._creating.pipelines
        return _named(name, known if name in known else self.resolved.pipelines).box

    def written(self, name: str) -> Box:
        """The box that items are created in under this name, whether or not subscriptions deliver them."""
        return _named(name, self._creating.written).box

    def creator(self, model: Model, side: BoxType) -> Creator:
        """The creator of items for the box of this model or name.

        Raises:
            InvalidItem: the box is on the other side: an inbox instead of an outbox, or the reverse.
            UnknownBox: the configuration has no such box.
        """
        key = (box_name(model), None if isinstance(model, str) else model)
        known = self._creators.get(key)
        if known is None:
            known = self._creators[key] = self._make_creator(*key)
        if known.box.type is not side:
            raise InvalidItem(f"box {known.box.name} is an {known.box.type}: use create_{known.box.type}_item for it")
        return known

    def _make_creator(self, name: str, model: type | None) -> Creator:
        from boxengine.adapters.sql.creating.insert import SqlRows  # noqa: PLC0415
        from boxengine.adapters.sql.creating.numbered import NumberedRows  # noqa: PLC0415
        from boxengine.engine.create import Creator  # noqa: PLC0415

        pipeline = _named(name, self._creating.written)
        settings = self._creating.settings
        wakeup = settings.wakeup_in_force
        model = model or pipeline.model
        numbered = pipeline.box.sequence or getattr(model, "__box_sequence__", False)
        rows = (NumberedRows if numbered else SqlRows)(
            pipeline.box,
            model,
            notify=wakeup == "notify",
            signal=self._redis_signal if wakeup == "redis" else None,
            eased=self._eased,
        )
        return Creator(
            pipeline,
            rows,
            middlewares=self._creating.middlewares,
            observer=self._observer,
            tracer=self._tracer,
            clock=self._clock,
            codec=getattr(model, "__payload__", None),
            max_payload=settings.max_payload_of(settings.boxes[name]),
        )

    def wake(
        self,
        signals: list[Signal],
        *,
        notify: Callable[[str], object],
        after_commit: Callable[[Callable[[], None]], object],
    ) -> None:
        """Wakes the workers as configured, for code that inserts rows without SQLAlchemy.

        Args:
            notify: sends a text through the database's own notifications, within the transaction of the rows.
            after_commit: registers a function to be called after that transaction commits, and never after a rollback.
        """
        match self._creating.settings.wakeup_in_force:
            case "notify":
                for signal in signals:
                    notify(signal.encode())
            case "redis":
                after_commit(lambda: self._redis_signal(signals))
            case "none":
                pass
            case never:
                assert_never(never)

    @cached_property
    def _redis_signal(self) -> Callable[[list[Signal]], None]:
        """Shared by the creators of all boxes, so that the signals of many commits go out together."""
        from boxengine.adapters.announcer import Announcer  # noqa: PLC0415
        from boxengine.adapters.redis.wakeups import CHANNEL, RedisNotifier  # noqa: PLC0415
        from boxengine.app.redis_server import redis_client  # noqa: PLC0415

        settings = self._creating.settings
        channel, client = (settings.redis.prefix or "") + CHANNEL, redis_client(settings)
        # Nobody closes a configuration: its connections close when it is collected. The client closes one that still sends.
        finalize(self, client.connection_pool.disconnect, inuse_connections=False)
        return Announcer(RedisNotifier(client, channel=channel).notify).tell


def load(path: Paths = None, env: str | None = None) -> Boxes:
    """Reads the configuration, for an application that creates items.

    What only a worker needs is read on first access to ``resolved``: until then transports are not imported, and the
    environment variables in their arguments need not be set.

    Args:
        path: one or more files, merged in order; None: where ``boxengine`` looks by itself.
        env: environment section; None: ``$BOXENGINE_ENV``, else ``development``.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    found, cwd = _paths(path), Path.cwd()
    complete = partial(
        load_and_resolve, found, env=env, environ=os.environ, cwd=cwd, builtin_transports=BUILTIN_TRANSPORTS
    )
    return Boxes(load_for_creating(found, env=env, environ=os.environ, cwd=cwd), complete=complete)


def load_for_worker(path: Paths = None, env: str | None = None) -> Boxes:
    """Reads the configuration and everything it names.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    return Boxes(
        load_and_resolve(
            _paths(path),
            env=env,
            environ=os.environ,
            cwd=Path.cwd(),
            builtin_transports=BUILTIN_TRANSPORTS,
            rules=check_for_worker,
        )
    )


def _named(name: str, pipelines: Mapping[str, Pipeline]) -> Pipeline:
    try:
        return pipelines[name]
    except KeyError:
        raise UnknownBox(name, pipelines) from None


def _paths(path: Paths) -> list[Path] | None:
    match path:
        case None:
            return None
        case str() | Path():
            return [Path(path)]
        case _:
            return [Path(each) for each in path]


async def _run_sync(session: AnyAsyncSession, create: Callable[[Any], T]) -> T:
    run_sync = getattr(session, "run_sync", None)
    if run_sync is None:
        raise InvalidItem(
            f"an AsyncSession is needed, not {type(session).__name__}; with a Session or a Connection leave out the a: "
            "create_outbox_item instead of acreate_outbox_item"
        )
    return cast("T", await run_sync(create))
