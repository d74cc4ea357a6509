"""From settings to live objects: imports all that is named by dotted path, and checks that it can serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, cast

from boxengine.domain import partitioning, retry
from boxengine.domain.box import Backoff, Box, BoxType, Retention, StrictOrder
from boxengine.domain.partitioning import PartitionStrategy
from boxengine.domain.retry import RetryStrategy
from boxengine.engine.pipeline import Middleware, Middlewares, Pipeline, TransportSpec
from boxengine.errors import ConfigurationError, Problem
from boxengine.ports import ErrorTracker
from boxengine.settings import loading, rules, transports
from boxengine.settings.boxes import BoxSettings
from boxengine.settings.diagnosis import Finding
from boxengine.settings.names import CannotImport, import_module, load_object
from boxengine.settings.origin import Path
from boxengine.settings.schema import MiddlewaresSettings, Settings


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
    ``bootstrap_servers``, ``config``), the top level's ``kafka`` worked in. Boxes without a source are left out."""


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
) -> Resolved:
    """``load`` and ``resolve`` in one, so that wrong keys and unimportable classes are reported together.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    examination = loading.examine(paths, env=env, environ=environ, cwd=cwd)
    resolver = _Resolver(examination.settings, builtin_transports)
    resolved = resolver.run()
    new = [finding for finding in resolver.found if not loading.depends_on(finding, examination.broken)]
    problems: list[Problem] = [*examination.problems, *loading.problems_of(new, examination.settings.origin)]
    if problems:
        raise ConfigurationError(tuple(dict.fromkeys(problems)))
    return resolved


class _Resolver:
    def __init__(self, settings: Settings, builtin_transports: Mapping[str, str]) -> None:
        self._settings = settings
        self._builtin_transports = builtin_transports
        self._tables: dict[str, tuple[Path, bool]] = {}
        self.found: list[Finding] = []

    def run(self) -> Resolved:
        self._import_app()
        pipelines = {
            name: self._pipeline(path, name, box) for path, name, box in rules.boxes_with_paths(self._settings)
        }
        return Resolved(self._settings, pipelines, self._middlewares(), self._error_tracker(), self._sources())

    def _import_app(self) -> None:
        for position, name in enumerate(self._settings.app):
            try:
                import_module(name)
            except CannotImport as error:
                self.found.append(Finding(("app", position), str(error)))

    def _pipeline(self, path: Path, name: str, settings: BoxSettings) -> Pipeline:
        model = self._model((*path, "model"), settings.model)
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
            owner=self._settings.owner_of(settings),
            bucket_size=self._settings.bucket_size_of(settings),
            partition_strategy=self._partition_strategy((*path, "partition_strategy"), settings.partition_strategy),
            strict_order=settings.strict_order,
            max_retries=settings.retries,
            backoff=_backoff(settings),
            retention=_retention(settings),
            circuit_breaker=settings.circuit_breaker.policy(),
            sequence=self._sequence((*path, "sequence"), settings, model),
            key_index=_key_index(settings, model),
            payload_builder=getattr(model, "build_payload", None),
            extra_options=self._hook((*path, "model"), model, "extra_options"),
            extra_log_details=self._hook((*path, "model"), model, "extra_log_details"),
        )

    def _hook(self, path: Path, model: type | None, name: str) -> Callable[..., object] | None:
        """A model's method of the item, its property, or a mapping that is the same for all items."""
        found = getattr(model, name, None)
        match found:
            case property(fget=get) if get is not None:
                return get
            case Mapping():
                return lambda _item: found
            case None:
                return None
        if callable(found):
            return cast("Callable[..., object]", found)
        message = f"its {name} is {type(found).__name__}; expected a method of the item, a property, or a mapping"
        self.found.append(Finding(path, message))
        return None

    def _sequence(self, path: Path, settings: BoxSettings, model: type | None) -> bool:
        if settings.sequence and model is not None and not hasattr(model, "seq"):
            message = (
                f"{settings.model} has no column for it; expected the mixin boxengine.SequencedItem among its bases"
            )
            self.found.append(Finding(path, message))
        return settings.sequence or bool(getattr(model, "__box_sequence__", False))

    def _model(self, path: Path, dotted_path: str | None) -> type | None:
        if dotted_path is None:
            return None
        found = self._load(path, dotted_path)
        if found is None or isinstance(found, type):
            return found
        self.found.append(Finding(path, f"{dotted_path} is {type(found).__name__}; expected a model class"))
        return None

    def _table(self, path: Path, name: str, settings: BoxSettings, model: type | None) -> str:
        mapped = getattr(model, "__tablename__", None)
        if mapped and settings.table and mapped != settings.table:
            message = f"is {settings.table!r}, but the model's is {mapped!r}; leave this key out"
            self.found.append(Finding((*path, "table"), message))
        table = mapped or settings.table_for(name)
        other, other_has_model = self._tables.setdefault(table, (path, model is not None))
        # Where neither has a model, the rules over the keys alone have seen it.
        if other != path and (other_has_model or model is not None):
            self.found.append(rules.table_taken(path, table, other))
        return str(table)

    def _partition_strategy(self, path: Path, name: str) -> PartitionStrategy:
        built_in = partitioning.BUILT_IN.get(name)
        return built_in or self._callable(path, name, "(key, bucket_size)") or partitioning.number

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
                    self.found.append(Finding((*here, part) if part else here, message))
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
        return found

    def _middlewares(self) -> Middlewares:
        return Middlewares(**{kind: self._middleware(kind) for kind in MiddlewaresSettings.model_fields})

    def _middleware(self, kind: str) -> tuple[Middleware, ...]:
        shape = "(model, attributes, call_next)" if kind.startswith("create") else "(subject, call_next)"
        paths: tuple[str, ...] = getattr(self._settings.middlewares, kind)
        made = [self._callable(("middlewares", kind, position), path, shape) for position, path in enumerate(paths)]
        return tuple(middleware for middleware in made if middleware is not None)

    def _error_tracker(self) -> ErrorTracker | None:
        path = self._settings.error_tracker
        return None if path is None else self._callable(("error_tracker",), path, "(error_or_message, **context)")

    def _callable(self, path: Path, dotted_path: str, shape: str) -> Callable[..., Any] | None:
        """What the dotted path names; an instance of it, where that is a class."""
        found = self._load(path, dotted_path)
        if isinstance(found, type):
            try:
                found = found()
            except Exception as error:
                message = f"{dotted_path}() raised {type(error).__name__}: {error}; expected a class without arguments"
                self.found.append(Finding(path, message))
                return None
        if found is None:
            return None
        if callable(found):
            return cast("Callable[..., Any]", found)
        message = f"{dotted_path} is not callable; expected a class whose instances are called as {shape}"
        self.found.append(Finding(path, message))
        return None

    def _load(self, path: Path, dotted_path: str) -> Any:
        try:
            return load_object(dotted_path)
        except CannotImport as error:
            self.found.append(Finding(path, str(error)))
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
    )
