"""The boxes of one configuration, and the creators of their items and jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, assert_never
from weakref import finalize

from boxengine.adapters.system import SystemClock
from boxengine.app.boxes.creating import Creating, Model
from boxengine.domain.box import Box, BoxType
from boxengine.domain.names import box_name
from boxengine.engine.delivering.calls.pipeline import Pipeline
from boxengine.engine.jobs.bells import Bells
from boxengine.engine.observation import NullObserver
from boxengine.errors import InvalidItem, UnknownBox
from boxengine.ports import Signal
from boxengine.settings import Resolved

if TYPE_CHECKING:
    from sqlalchemy import Table

    from boxengine.adapters.sql.jobs.wakeup import JobWakeup
    from boxengine.adapters.sql.waking.eased_notify import EasedNotify
    from boxengine.engine.create import Creator
    from boxengine.engine.jobs.create import JobCreator
    from boxengine.engine.jobs.pipeline import JobPipeline
    from boxengine.ports import Observer, Tracer


class Boxes(Creating):
    """The boxes of one configuration. Safe to share between threads; create one per process."""

    stand_in: ClassVar[bool] = False
    """Whether they are a test's, which the application is to use in place of its own."""

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
        self._job_creators: dict[tuple[str, type | None], JobCreator] = {}

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
        if self._given_tracer is not None:
            return self._given_tracer
        from boxengine.adapters.telemetry.combined import CombinedTracer  # noqa: PLC0415
        from boxengine.adapters.telemetry.opentelemetry import OpenTelemetryTracer  # noqa: PLC0415

        # Combined, although it is the only one: what an application's sampler or propagator raises must not fail its creation.
        return CombinedTracer([OpenTelemetryTracer(clock=self._clock)])

    @cached_property
    def _eased(self) -> EasedNotify:
        from boxengine.adapters.sql.waking.eased_notify import EasedNotify  # noqa: PLC0415

        return EasedNotify(clock=self._clock)

    def job_creator(self, model: Model) -> JobCreator:
        """The creator of jobs for the box of this model or name.

        Raises:
            InvalidItem: the model has another table than the box.
            UnknownBox: the configuration has no such box of jobs.
        """
        name, own = _name_and_class(model)
        known = self._job_creators.get((name, own))
        if known is None:
            pipeline = self._creating.jobs.get(name)
            if pipeline is None:
                raise no_job_box(name, self._creating)
            _refuse_namesake(pipeline, model)
            known = self._job_creators[name, own] = self._make_job_creator(pipeline, own)
        return known

    def _make_job_creator(self, pipeline: JobPipeline, model: type | None) -> JobCreator:
        from boxengine.adapters.sql.jobs.insert import SqlNewJobs  # noqa: PLC0415 - see above
        from boxengine.app.jobs.contracts import codecs_of  # noqa: PLC0415
        from boxengine.engine.jobs.create import JobCreator  # noqa: PLC0415

        rows = SqlNewJobs(pipeline.box, pipeline.model or model, wakeup=self.job_wakeup(pipeline.box.name))
        return JobCreator(pipeline.box, rows, tasks=pipeline.tasks, codecs=codecs_of(pipeline), tracer=self._tracer)

    def job_wakeup(self, box_name: str) -> JobWakeup:
        """What tells the workers of this box of long jobs, as configured."""
        from boxengine.adapters.sql.jobs.wakeup import JobWakeup  # noqa: PLC0415 - see above

        how = self._creating.settings.job_wakeup_in_force
        return JobWakeup(
            box_name,
            notify=how == "notify",
            signal=self._redis_signal if how == "redis" else None,
            eased=self._eased,
            ring=self.bells.ring,
            rings=self.bells.has,
        )

    # ── looking at the configuration ─────────────────────────────────────────────────────────────────

    def pipeline(self, name: str) -> Pipeline:
        """The box with this name, with its transports and strategies; of a box with subscriptions, one of them.

        Raises:
            UnknownBox: the configuration has no such box.
        """
        return named(name, self.resolved.pipelines)

    def box(self, name: str) -> Box:
        """The box with this name: one that is delivered from, such as a subscription."""
        known = self._creating.pipelines
        if name in self._creating.jobs:
            raise UnknownBox(name, known, instead="holds long jobs, not items: use boxengine jobs")
        return named(name, known if name in known else self.resolved.pipelines).box

    def whole(self, name: str) -> Box:
        """The box with this name, also one that only its subscriptions deliver: for what treats a log as one, or refuses it.

        Raises:
            UnknownBox: as ``box``.
        """
        logs = self.resolved.logs
        return logs[name].box if name in logs else self.box(name)

    def written(self, name: str) -> Box:
        """The box that items are created in under this name, whether or not subscriptions deliver them."""
        return named(name, self._creating.written).box

    def creator(self, model: Model, side: BoxType) -> Creator:
        """The creator of items for the box of this model or name.

        Raises:
            InvalidItem: the box is on the other side: an inbox instead of an outbox, or the reverse; or the model has another
                table than the box.
            UnknownBox: the configuration has no such box.
        """
        name, own = _name_and_class(model)
        known = self._creators.get((name, own))
        if known is None:
            if name in self._creating.jobs:
                raise UnknownBox(
                    name, self._creating.written, instead="holds long jobs, not items: use create_job for it"
                )
            _refuse_namesake(named(name, self._creating.written), model)
            known = self._creators[name, own] = self._make_creator(name, own)
        if known.box.type is not side:
            raise InvalidItem(f"box {known.box.name} is an {known.box.type}: use create_{known.box.type}_item for it")
        return known

    def _make_creator(self, name: str, model: type | None) -> Creator:
        from boxengine.adapters.sql.creating.insert import SqlRows  # noqa: PLC0415
        from boxengine.adapters.sql.creating.numbered import NumberedRows  # noqa: PLC0415
        from boxengine.engine.create import Creator  # noqa: PLC0415

        pipeline = named(name, self._creating.written)
        settings = self._creating.settings
        wakeup = settings.wakeup_in_force
        model = model or pipeline.model
        rows = (NumberedRows if is_numbered(pipeline.box, model) else SqlRows)(
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
        notify_in_turn: Callable[[str], bool],
        notify: Callable[[str], object],
        after_commit: Callable[[Callable[[], object]], object],
    ) -> None:
        """Wakes the workers as configured, for code that inserts rows without SQLAlchemy.

        Args:
            notify_in_turn: sends a text through the database's own notifications, within the transaction of the rows, unless
                that would have to wait for another transaction; whether it does.
            notify: sends a text in the same way, outside any transaction.
            after_commit: registers a function to be called after that transaction commits, and never after a rollback.
        """
        match self._creating.settings.wakeup_in_force:
            case "notify":
                texts = Signal.encode_all(signals)
                if not all(map(notify_in_turn, texts)):
                    after_commit(lambda: [notify(text) for text in texts])
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
        from boxengine.app.servers.redis import redis_client  # noqa: PLC0415

        settings = self._creating.settings
        channel, client = (settings.redis.prefix or "") + CHANNEL, redis_client(settings)
        # Nobody closes a configuration: its connections close when it is collected. The client closes one that still sends.
        finalize(self, client.connection_pool.disconnect, inuse_connections=False)
        notifier = RedisNotifier(client, channel=channel)
        return Announcer(lambda: nullcontext(notifier.notify)).tell


def _name_and_class(model: Model) -> tuple[str, type | None]:
    """The name of the model's box, and the class if it is one and not a name."""
    return box_name(model), None if isinstance(model, str) else model


def _refuse_namesake(pipeline: Pipeline | JobPipeline, model: Model) -> None:
    """Of classes with one name, a worker delivers from the table of one: rows in another one would wait for ever."""
    mapped: Table | None = getattr(model, "__table__", None)
    table = pipeline.box.table
    if isinstance(model, str) or mapped is None or mapped.fullname == table:
        return
    schema, _, name = table.rpartition(".")
    # Of a box without a model, the schema may be the connection's.
    if pipeline.model is None and mapped.name == name and not (schema and mapped.schema):
        return
    raise InvalidItem(
        f"{model.__name__} of {model.__module__} has the table {mapped.fullname}, but box {pipeline.box.name}, which its name "
        f"stands for, has the table {table}: give the class another name, or __box_name__, and a box of its own"
    )


def is_numbered(box: Box, model: type | None) -> bool:
    """Whether items made by this model get gapless numbers within their keys. The configuration need not name the model."""
    return box.sequence or getattr(model, "__box_sequence__", False)


def no_job_box(name: str, resolved: Resolved) -> UnknownBox:
    """The error for the name of a box that is none of long jobs."""
    ways = "create_outbox_item or create_inbox_item"
    instead = f"holds items, not long jobs: use {ways} for it" if name in resolved.written else None
    return UnknownBox(name, resolved.jobs, instead=instead)


def named(name: str, pipelines: Mapping[str, Pipeline]) -> Pipeline:
    """The one with this name.

    Raises:
        UnknownBox: there is none.
    """
    try:
        return pipelines[name]
    except KeyError:
        raise UnknownBox(name, pipelines) from None
