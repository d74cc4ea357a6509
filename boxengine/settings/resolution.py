"""From settings to live objects: imports all that is named by dotted path, and checks that it can serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, cast

from boxengine.domain import partitioning, retry
from boxengine.domain.box import Backoff, Box, BoxType, Retention, Storage, StrictOrder, Subscription
from boxengine.domain.codec import Codec
from boxengine.domain.message_template import MessageTemplate
from boxengine.domain.partitioning import PartitionStrategy
from boxengine.domain.retry import RetryStrategy
from boxengine.engine.answers import ASYNC, never_runs
from boxengine.engine.delivering.pipeline import Middleware, Middlewares, Pipeline, TransportSpec
from boxengine.engine.jobs.pipeline import JobPipeline
from boxengine.errors import ConfigurationError, Problem, described
from boxengine.settings import loading, rules, transports
from boxengine.settings.boxes import BoxSettings
from boxengine.settings.call_shapes import misfit
from boxengine.settings.diagnosis import Finding
from boxengine.settings.job_resolution import JobResolver
from boxengine.settings.names import CannotImport, box_name, import_module, load_object
from boxengine.settings.origin import Path
from boxengine.settings.rules import Rules, boxes_with_paths, declared, table_taken
from boxengine.settings.schema import MiddlewaresSettings, Settings

if TYPE_CHECKING:
    from boxengine.ports import ErrorTracker

OURS = frozenset(
    {
        "bucket",
        "created_at",
        "dedup_key",
        "error_log",
        "errors_count",
        "id",
        "options",
        "payload",
        "processed_at",
        "proto_payload",
        "seq",
        "status",
        "updated_at",
        "uuid",
    }
)
"""Columns that no source's ``attributes`` may set."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings and the objects they name."""

    settings: Settings
    pipelines: Mapping[str, Pipeline]
    """By box name, outbox first, in the order of the file."""
    middlewares: Middlewares
    error_tracker: ErrorTracker | None
    """None: errors go to the log."""
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By the name of an inbox box: the arguments of its Kafka consumers (``topics``, ``group``, ``concurrency``,
    ``bootstrap_servers``, ``config``), the top level's ``kafka`` worked in, and ``attributes``: callables of a message
    by the item's attribute. Boxes without a source are left out."""
    jobs: Mapping[str, JobPipeline] = field(default_factory=dict)
    """Boxes of long jobs, by name."""
    logs: Mapping[str, Pipeline] = field(default_factory=dict)
    """By name, boxes that are only written to: their subscriptions, which are among the pipelines, deliver from them."""

    @property
    def written(self) -> Mapping[str, Pipeline]:
        """By box name, the pipelines that items are created with."""
        own = {name: pipeline for name, pipeline in self.pipelines.items() if pipeline.box.subscription is None}
        return {**own, **self.logs}

    def readers(self, name: str) -> list[str]:
        """Names of the boxes that deliver what is created under this name: itself, or its subscriptions."""
        return [each for each, pipeline in self.pipelines.items() if name in (each, pipeline.box.source.name)]


def resolve(settings: Settings, *, builtin_transports: Mapping[str, str]) -> Resolved:
    """Imports everything the settings name by dotted path, the modules of ``app`` first.

    Strategies, middlewares and the error tracker are made here; transports only when the worker needs them.

    Args:
        settings: what ``load`` returned.
        builtin_transports: short name -> dotted path.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    resolver = _Resolver(settings, builtin_transports)
    resolved = resolver.run()
    if resolver.found:
        raise ConfigurationError(loading.problems_of(resolver.found, settings.origin))
    return resolved


def load_and_resolve(
    paths: Sequence[FilePath] | None,
    *,
    env: str | None,
    environ: Mapping[str, str],
    cwd: FilePath,
    builtin_transports: Mapping[str, str],
    rules: Rules = rules.check,
) -> Resolved:
    """``load`` and ``resolve`` in one, so that wrong keys and unimportable classes are reported together.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    examination = loading.examine(paths, env=env, environ=environ, cwd=cwd, rules=rules)
    resolver = _Resolver(examination.settings, builtin_transports)
    return _without_problems(resolver, resolver.run(), examination)


def load_for_creating(
    paths: Sequence[FilePath] | None, *, env: str | None, environ: Mapping[str, str], cwd: FilePath
) -> Resolved:
    """What a process needs that creates items and delivers none.

    The pipelines have no transports and no strategies: nothing of the worker's is imported or made, and environment variables
    that only the worker reads need not be set. All else is checked as for a worker.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    examination = loading.examine(paths, env=env, environ=environ, cwd=cwd, needed=_read_by_creators)
    resolver = _Resolver(examination.settings, {})
    return _without_problems(resolver, resolver.run_for_creating(), examination)


def _without_problems(resolver: _Resolver, resolved: Resolved, examination: loading.Examination) -> Resolved:
    new = [finding for finding in resolver.found if not loading.depends_on(finding, examination.broken)]
    problems: list[Problem] = [*examination.problems, *loading.problems_of(new, examination.settings.origin)]
    if problems:
        raise ConfigurationError(tuple(dict.fromkeys(problems)))
    return resolved


def _read_by_creators(path: Path, settings: Settings) -> bool:
    """Whether a process that only creates items reads the value there."""
    match path:
        case ("redis", *_):
            return settings.wakes_by_redis
        case ("middlewares", kind, *_):
            return str(kind).startswith("create")
        case (("outbox_items" | "inbox_items" | "job_items"), _, key, *_):
            return key not in _OF_THE_WORKER
        case (section, *_):
            return section in _OF_ALL
        case _:
            return True


_OF_ALL = frozenset({"app", "owner", "bucket_size", "max_payload_bytes", "wakeup"})
"""Keys of the top level that creators read, besides boxes, middlewares and perhaps Redis."""
_OF_THE_WORKER = frozenset({"transports", "subscriptions", "retry_strategies", "source"})
"""Keys of a box that they do not read."""


class _Resolver:
    def __init__(self, settings: Settings, builtin_transports: Mapping[str, str]) -> None:
        self._settings = settings
        self._builtin_transports = builtin_transports
        self._tables: dict[str, tuple[Path, bool]] = {}
        self.found: list[Finding] = []

    def run(self) -> Resolved:
        self._import_app()
        logs = self._logs()
        return Resolved(
            self._settings,
            self._delivered(logs),
            self._middlewares(),
            self._error_tracker(),
            self._sources(),
            self._jobs(handlers=True),
            logs,
        )

    def run_for_creating(self) -> Resolved:
        """Without what only a worker calls."""
        self._import_app()
        logs = self._logs()
        others = [each for each in declared(self._settings) if each[1] not in logs]
        pipelines = {name: self._written(path, name, box) for path, name, box in others}
        creating = {kind: self._middleware(kind) for kind in ("create_item", "create_batch")}
        jobs = self._jobs(handlers=False)
        return Resolved(self._settings, pipelines, Middlewares(**creating), None, jobs=jobs, logs=logs)

    def _logs(self) -> dict[str, Pipeline]:
        return {
            name: self._written(path, name, box) for path, name, box in declared(self._settings) if box.subscriptions
        }

    def _written(self, path: Path, name: str, box: BoxSettings) -> Pipeline:
        """A pipeline to create items with."""
        model = self._model((*path, "model"), box.model, name)
        return Pipeline(box=self._box(path, name, box, model), transports=(), retry_strategies=(), model=model)

    def _delivered(self, logs: Mapping[str, Pipeline]) -> dict[str, Pipeline]:
        found: dict[str, Pipeline] = {}
        for path, name, box in boxes_with_paths(self._settings):
            log = logs.get(name.partition(".")[0])
            found[name] = self._pipeline(path, name, box) if log is None else self._reader(path, name, box, log)
        return found

    def _reader(self, path: Path, name: str, settings: BoxSettings, log: Pipeline) -> Pipeline:
        """A subscription: the log's box with what is its own."""
        own = str(path[-1])
        given = self._settings.boxes[log.box.name].subscriptions[own]
        box = replace(
            log.box,
            name=name,
            table=self._taken(path, f"{log.box.table}_{own}", has_model=log.model is not None),
            owner=self._settings.owner_of(settings),
            strict_order=settings.strict_order,
            max_retries=settings.retries,
            backoff=_backoff(settings),
            circuit_breaker=settings.circuit_breaker.policy(),
            key_index=_key_index(settings, log.model),
            subscription=Subscription(of=log.box, name=own, begins=given.begins),
        )
        return Pipeline(
            box=box,
            transports=self._transports((*path, "transports"), settings),
            retry_strategies=self._retry_strategies((*path, "retry_strategies"), settings),
            model=log.model,
        )

    def _jobs(self, *, handlers: bool) -> dict[str, JobPipeline]:
        return JobResolver(self._settings, load=self._load, found=self.found).run(handlers=handlers)

    def _import_app(self) -> None:
        for position, name in enumerate(self._settings.app):
            try:
                import_module(name)
            except CannotImport as error:
                self.found.append(Finding(("app", position), str(error)))

    def _pipeline(self, path: Path, name: str, settings: BoxSettings) -> Pipeline:
        model = self._model((*path, "model"), settings.model, name)
        return Pipeline(
            box=self._box(path, name, settings, model),
            transports=self._transports((*path, "transports"), settings),
            retry_strategies=self._retry_strategies((*path, "retry_strategies"), settings),
            model=model,
        )

    def _box(self, path: Path, name: str, settings: BoxSettings, model: type | None) -> Box:
        return Box(
            name=name,
            type=BoxType.OUTBOX if path[0] == "outbox_items" else BoxType.INBOX,
            table=self._table(path, name, settings, model),
            namespace=self._settings.redis.prefix or "",
            owner=self._settings.owner_of(settings),
            bucket_size=self._settings.bucket_size_of(settings),
            partition_strategy=self._partition_strategy((*path, "partition_strategy"), settings.partition_strategy),
            strict_order=settings.strict_order,
            max_retries=settings.retries,
            backoff=_backoff(settings),
            retention=_retention(settings),
            circuit_breaker=settings.circuit_breaker.policy(),
            storage=settings.storage,
            log_partitions=settings.log_partitions,
            subscriptions=tuple(settings.subscriptions),
            sequence=self._sequence((*path, "sequence"), settings, model),
            key_index=_key_index(settings, model),
            payload_builder=self._payload_builder((*path, "model"), model),
            codec=self._codec((*path, "model"), model),
            extra_options=self._hook((*path, "model"), model, "extra_options"),
            extra_log_details=self._hook((*path, "model"), model, "extra_log_details"),
        )

    def _payload_builder(self, path: Path, model: type | None) -> Any:
        found = getattr(model, "build_payload", None)
        return found if self._runs(path, "its build_payload", found) else None

    def _codec(self, path: Path, model: type | None) -> Codec | None:
        found = getattr(model, "__payload__", None)
        if found is None or isinstance(found, Codec):
            return found
        message = f"its __payload__ is {found!r:.100}; expected a codec, such as boxengine.Payload.json()"
        self.found.append(Finding(path, message))
        return None

    def _hook(self, path: Path, model: type | None, name: str) -> Callable[..., object] | None:
        """A model's method of the item, its property, or a mapping that is the same for all items."""
        found = getattr(model, name, None)
        match found:
            case property(fget=get) if get is not None:
                found = get
            case Mapping():
                return lambda _item: found
            case None:
                return None
        if callable(found):
            return cast("Callable[..., object]", found) if self._runs(path, f"its {name}", found) else None
        message = f"its {name} is {type(found).__name__}; expected a method of the item, a property, or a mapping"
        self.found.append(Finding(path, message))
        return None

    def _sequence(self, path: Path, settings: BoxSettings, model: type | None) -> bool:
        if settings.sequence and model is not None and not hasattr(model, "seq"):
            message = (
                f"{settings.model} has no column for it; expected the mixin boxengine.SequencedItem among its bases"
            )
            self.found.append(Finding(path, message))
        numbered = bool(getattr(model, "__box_sequence__", False))
        if numbered and settings.storage is Storage.LOG:
            message = (
                f"{settings.model} is a SequencedItem, and storage: log has no place for its numbers; expected table"
            )
            self.found.append(Finding((*path[:-1], "storage"), message))
        return settings.sequence or numbered

    def _model(self, path: Path, dotted_path: str | None, box: str) -> type | None:
        """The class, if it is a model of this box: anything else would be found out when the first item is created."""
        if dotted_path is None:
            return None
        found = self._load(path, dotted_path)
        if found is None:
            return None
        fault = _fault_of_model(found, box, outbox=path[0] == "outbox_items")
        if fault is None:
            return cast("type", found)
        self.found.append(Finding(path, f"{dotted_path} {fault}"))
        return None

    def _table(self, path: Path, name: str, settings: BoxSettings, model: type | None) -> str:
        mapped = None if model is None else model.__table__.fullname  # type: ignore[attr-defined]
        if mapped and settings.table and mapped != settings.table:
            message = f"is {settings.table!r}, but the model's is {mapped!r}; leave this key out"
            self.found.append(Finding((*path, "table"), message))
        return self._taken(path, str(mapped or settings.table_for(name)), has_model=model is not None)

    def _taken(self, path: Path, table: str, *, has_model: bool) -> str:
        """The table, which no other box may work on."""
        spelled_out = self._settings.spelled_out(table)
        other, other_has_model = self._tables.setdefault(spelled_out, (path, has_model))
        # Where neither has a model, the rules over the keys alone have seen it.
        if other != path and (other_has_model or has_model):
            self.found.append(table_taken(path, table, other))
        return table

    def _partition_strategy(self, path: Path, name: str) -> PartitionStrategy:
        built_in = partitioning.BUILT_IN.get(name)
        if built_in is not None:
            return built_in
        # Not asked for its truth, which may be anything: an object without items is false.
        own = self._callable(path, name, "(key, bucket_size)")
        return partitioning.number if own is None else own

    def _retry_strategies(self, path: Path, settings: BoxSettings) -> tuple[RetryStrategy, ...]:
        strategies: list[RetryStrategy] = []
        for position, name in enumerate(settings.strategies):
            here = (*path, position)
            built_in = retry.BUILT_IN.get(name)
            strategy = built_in() if built_in else self._callable(here, name, "(item, context)")
            if strategy is not None:
                strategies.append(strategy)
        return tuple(strategies)

    def _transports(self, path: Path, settings: BoxSettings) -> tuple[TransportSpec, ...]:
        specs: list[TransportSpec] = []
        for key, transport in settings.transports.items():
            # In a list the key is the position.
            here = (*path, int(key) if key.isdecimal() else key)
            try:
                spec = transports.specify(transport, self._settings, built_in=self._builtin_transports)
            except transports.Misconfigured as error:
                for part, message in error.mistakes:
                    self._report_once((*here, part) if part else here, message)
            else:
                specs.append(spec)
        return tuple(specs)

    def _sources(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for name, box in self._settings.inbox_items.items():
            if box.source is not None:
                found[name] = transports.kafka_source(box.source.kafka, self._settings.kafka)
                if "bootstrap_servers" not in found[name]:
                    path = ("inbox_items", name, "source", "kafka", "bootstrap_servers")
                    self.found.append(Finding(path, "missing: expected here, or in kafka at the top level"))
                found[name] |= self._message_rules(("inbox_items", name, "source", "kafka"), found[name])
        self.found += rules.shared_topics(found)
        return found

    def _message_rules(self, path: Path, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the item's attributes are worked out by; takes the keys for it out of the arguments."""
        given: dict[tuple[str, ...], str] = {
            ("attributes", name): text for name, text in arguments.pop("attributes", {}).items()
        }
        for name in ("event_name", "event_key"):
            if name in arguments:
                given[(name,)] = arguments.pop(name)
        rules: dict[str, Callable[[Any], Any]] = {}
        for key, text in given.items():
            here = (*path, *key)
            if key[-1] in OURS:
                self.found.append(Finding(here, "is the consumer's to set"))
            elif "." in text and "{" not in text:
                rule = self._callable(here, text, "(message)")
                if rule is not None:
                    rules[key[-1]] = rule
            else:
                try:
                    rules[key[-1]] = MessageTemplate(text)
                except ValueError as error:
                    self.found.append(Finding(here, f"{text!r}: {error}"))
        return {"attributes": rules} if rules else {}

    def _middlewares(self) -> Middlewares:
        return Middlewares(**{kind: self._middleware(kind) for kind in MiddlewaresSettings.model_fields})

    def _middleware(self, kind: str) -> tuple[Middleware, ...]:
        shape = "(model, attributes, call_next)" if kind.startswith("create") else "(subject, call_next)"
        paths: tuple[str, ...] = getattr(self._settings.middlewares, kind)
        awaited = not kind.startswith("create")
        made = [
            self._callable(("middlewares", kind, position), path, shape, awaited=awaited)
            for position, path in enumerate(paths)
        ]
        return tuple(middleware for middleware in made if middleware is not None)

    def _error_tracker(self) -> ErrorTracker | None:
        path = self._settings.error_tracker
        return None if path is None else self._callable(("error_tracker",), path, "(error_or_message, **context)")

    def _callable(
        self, path: Path, dotted_path: str, shape: str, *, awaited: bool = False
    ) -> Callable[..., Any] | None:
        """What the dotted path names; an instance of it, where that is a class. It may be ``async def`` if it is ``awaited``."""
        found = self._load(path, dotted_path)
        if isinstance(found, type):
            try:
                found = found()
            except Exception as error:
                message = f"{dotted_path}() raised {described(error)}; expected a class without arguments"
                self.found.append(Finding(path, message))
                return None
        if found is None:
            return None
        if callable(found):
            fits = self._runs(path, dotted_path, found, awaited=awaited) and self._fits(path, dotted_path, found, shape)
            return cast("Callable[..., Any]", found) if fits else None
        message = f"{dotted_path} is not callable; expected a class whose instances are called as {shape}"
        self.found.append(Finding(path, message))
        return None

    def _runs(self, path: Path, name: str, found: object, *, awaited: bool = False) -> bool:
        """Whether a call of it runs its code: nobody goes through a generator, and not everything is ``awaited``."""
        kind = never_runs(found)
        if kind is None or (awaited and kind == ASYNC):
            return True
        self.found.append(Finding(path, f"{name} is {kind}, whose code would never run; write a plain def"))
        return False

    def _fits(self, path: Path, name: str, found: object, shape: str) -> bool:
        mistake = misfit(found, shape)
        if mistake is not None:
            self.found.append(Finding(path, f"{name} {mistake}"))
        return mistake is None

    def _load(self, path: Path, dotted_path: str) -> Any:
        try:
            return load_object(dotted_path)
        except CannotImport as error:
            self._report_once(path, str(error))
            return None

    def _report_once(self, path: Path, message: str) -> None:
        """A module that cannot be imported is one mistake, however many keys name something in it."""
        broken = [finding for finding in self.found if finding.path[0] == "app" and finding.message == message]
        if not broken:
            self.found.append(Finding(path, message))


_COLUMNS = ("event_key", "bucket", "status")
"""What no table of items lacks."""


def _fault_of_model(found: Any, box: str, *, outbox: bool) -> str | None:
    """Why this is no model of the box; None if it is one."""
    mixin = "boxengine.OutboxItem" if outbox else "boxengine.InboxItem"
    if not isinstance(found, type):
        return f"is {type(found).__name__}; expected a model class"
    columns = getattr(getattr(found, "__table__", None), "columns", None)
    if columns is None:
        return f"is a class without a table; expected a SQLAlchemy model with the mixin {mixin} and a __tablename__"
    lacking = [name for name in _COLUMNS if name not in columns]
    if lacking:
        return f"has no {', '.join(lacking)}; expected the mixin {mixin} among its bases"
    side = getattr(found, "__box_type__", None)
    if side is not None and (side == BoxType.OUTBOX) != outbox:
        return f"is an {side} model; expected the mixin {mixin} among its bases, or the box under {side}_items"
    own = box_name(found)
    if own != box:
        return f"belongs to the box {own}; rename this box, or write __box_name__ = {box!r} in the class"
    return None


def _key_index(settings: BoxSettings, model: type | None) -> bool:
    if settings.key_index is not None:
        return settings.key_index
    return settings.reads_keys or bool(getattr(model, "__box_key_index__", False))


def _backoff(settings: BoxSettings) -> Backoff | None:
    if settings.strict_order is StrictOrder.NONE and retry.WAITING.isdisjoint(settings.strategies):
        return None
    return Backoff(
        minimal=settings.minimal_retry_interval,
        maximal=settings.maximal_retry_interval,
        multiplier=settings.multiplier_retry_interval,
        jitter=settings.jitter_retry_interval,
    )


def _retention(settings: BoxSettings) -> Retention:
    return Retention(
        others=settings.retention,
        delivered=settings.delivered_retention,
        batch_size=settings.deletion_batch_size,
        pause=settings.deletion_sleep_time,
        window=settings.deletion_time_window,
        at_most=settings.retain_at_most,
    )
