"""A loaded configuration, as an application uses it: to write items."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxengine.adapters.builtin import BUILTIN_TRANSPORTS
from boxengine.adapters.redis.wakeups import RedisNotifier
from boxengine.adapters.sql.insert import SqlRows
from boxengine.adapters.sql.numbered import NumberedRows
from boxengine.adapters.system import SystemClock
from boxengine.adapters.telemetry.opentelemetry import OpenTelemetryTracer
from boxengine.app.servers import redis_client, wakeup_of
from boxengine.domain.box import Box, BoxType
from boxengine.engine.create import Creator
from boxengine.engine.observation import NullObserver
from boxengine.engine.pipeline import Pipeline
from boxengine.errors import InvalidItem, UnknownBox
from boxengine.ports import Observer, Signal, Tracer
from boxengine.settings import Resolved, load_and_resolve
from boxengine.settings.names import underscore

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

Model = type | str
"""A model class, or the name of a box."""


class Boxes:
    """The boxes of one configuration. Safe to share between threads; made once per process."""

    def __init__(self, resolved: Resolved, *, observer: Observer | None = None, tracer: Tracer | None = None) -> None:
        """Args:
        observer: told of created items; nobody if None.
        tracer: puts the current trace into items' headers; OpenTelemetry's if None, which costs nothing without an SDK.
        """
        self.resolved = resolved
        self._observer = observer or NullObserver()
        self._clock = SystemClock()
        self._tracer = tracer or OpenTelemetryTracer(clock=self._clock)
        self._creators: dict[tuple[str, type | None], Creator] = {}

    # ── writing items ────────────────────────────────────────────────────────────────────────────────

    def create_outbox_item(self, session: Any, model: Model, *, partition_by: Any = None, **attributes: Any) -> int:
        """Inserts one item through the caller's open transaction and returns its id.

        Args:
            session: a SQLAlchemy ``Session`` or ``Connection``; the row commits or rolls back with it.
            model: the box's model class, or its name.
            partition_by: what the bucket is computed from; ``event_key`` if None.
            attributes: columns of the row: ``event_key`` and ``payload`` (bytes or str) always; ``event_name``,
                ``options`` (a dict with ``key`` and ``headers``), ``uuid``, ``available_at``, ``dedup_key`` where wanted.

        Raises:
            InvalidItem: no event key, a payload of the wrong type, an unknown attribute.
            UnknownBox: the configuration has no such box.
        """
        return self.creator(model, BoxType.OUTBOX).create(session, attributes, partition_by=partition_by)

    def create_inbox_item(self, session: Any, model: Model, *, partition_by: Any = None, **attributes: Any) -> int:
        """As ``create_outbox_item``, for a received message."""
        return self.creator(model, BoxType.INBOX).create(session, attributes, partition_by=partition_by)

    def create_outbox_batch(
        self,
        session: Any,
        model: Model,
        items: Sequence[Mapping[str, Any]],
        *,
        partition_by: Callable[[dict[str, Any]], Any] | None = None,
    ) -> list[int]:
        """Inserts many items in one statement and returns their ids in the order given.

        Args:
            items: one mapping of attributes each, as for ``create_outbox_item``.
            partition_by: called with an item's attributes; what it returns is what the bucket is computed from.
        """
        return self.creator(model, BoxType.OUTBOX).create_batch(session, items, partition_by=partition_by)

    def create_inbox_batch(
        self,
        session: Any,
        model: Model,
        items: Sequence[Mapping[str, Any]],
        *,
        partition_by: Callable[[dict[str, Any]], Any] | None = None,
    ) -> list[int]:
        """As ``create_outbox_batch``, for received messages."""
        return self.creator(model, BoxType.INBOX).create_batch(session, items, partition_by=partition_by)

    async def acreate_outbox_item(self, session: AsyncSession, model: Model, **attributes: Any) -> int:
        """``create_outbox_item`` under an ``AsyncSession``."""
        return await session.run_sync(lambda sync: self.create_outbox_item(sync, model, **attributes))

    async def acreate_inbox_item(self, session: AsyncSession, model: Model, **attributes: Any) -> int:
        """``create_inbox_item`` under an ``AsyncSession``."""
        return await session.run_sync(lambda sync: self.create_inbox_item(sync, model, **attributes))

    async def acreate_outbox_batch(
        self, session: AsyncSession, model: Model, items: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[int]:
        """``create_outbox_batch`` under an ``AsyncSession``."""
        return await session.run_sync(lambda sync: self.create_outbox_batch(sync, model, items, **options))

    async def acreate_inbox_batch(
        self, session: AsyncSession, model: Model, items: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[int]:
        """``create_inbox_batch`` under an ``AsyncSession``."""
        return await session.run_sync(lambda sync: self.create_inbox_batch(sync, model, items, **options))

    # ── looking at the configuration ─────────────────────────────────────────────────────────────────

    def pipeline(self, name: str) -> Pipeline:
        """The box of that name with its transports and strategies.

        Raises:
            UnknownBox: the configuration has no such box.
        """
        try:
            return self.resolved.pipelines[name]
        except KeyError:
            raise UnknownBox(name, self.resolved.pipelines) from None

    def box(self, name: str) -> Box:
        """The box of that name."""
        return self.pipeline(name).box

    def creator(self, model: Model, side: BoxType) -> Creator:
        """What puts items into the box of this model or name.

        Raises:
            InvalidItem: the box is of the other side.
            UnknownBox: the configuration has no such box.
        """
        key = (model, None) if isinstance(model, str) else (_box_name(model), model)
        known = self._creators.get(key)
        if known is None:
            known = self._creators[key] = self._make_creator(*key)
        if known.box.type is not side:
            raise InvalidItem(f"box {known.box.name} is an {known.box.type}: use create_{known.box.type}_item for it")
        return known

    def _make_creator(self, name: str, model: type | None) -> Creator:
        pipeline = self.pipeline(name)
        settings = self.resolved.settings
        wakeup = wakeup_of(settings)
        model = model or pipeline.model
        numbered = pipeline.box.sequence or getattr(model, "__box_sequence__", False)
        rows = (NumberedRows if numbered else SqlRows)(
            pipeline.box,
            model,
            notify=wakeup == "notify",
            signal=self._redis_signal() if wakeup == "redis" else None,
        )
        return Creator(
            pipeline,
            rows,
            middlewares=self.resolved.middlewares,
            observer=self._observer,
            tracer=self._tracer,
            clock=self._clock,
            max_payload=settings.max_payload_of(settings.boxes[name]),
        )

    def _redis_signal(self) -> Callable[[list[Signal]], None]:
        return RedisNotifier(redis_client(self.resolved.settings)).notify


def load(path: str | Path | Sequence[str | Path] | None = None, env: str | None = None) -> Boxes:
    """Reads the configuration and everything it names.

    Args:
        path: one or more files, merged in order; None: where ``boxengine`` looks by itself.
        env: environment section; None: ``$BOXENGINE_ENV``, else ``development``.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    match path:
        case None:
            paths = None
        case str() | Path():
            paths = [Path(path)]
        case _:
            paths = [Path(each) for each in path]
    resolved = load_and_resolve(
        paths, env=env, environ=os.environ, cwd=Path.cwd(), builtin_transports=BUILTIN_TRANSPORTS
    )
    return Boxes(resolved)


def _box_name(model: type) -> str:
    name = getattr(model, "__box_name__", None)
    return str(name) if name else underscore(model.__name__)
