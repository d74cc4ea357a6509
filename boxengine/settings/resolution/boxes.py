"""Boxes of items: their table, order, retries, transports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from boxengine.domain import partitioning, retry
from boxengine.domain.box import Backoff, Box, BoxType, Retention, StrictOrder, Subscription
from boxengine.domain.names import twins
from boxengine.domain.partitioning import PartitionStrategy
from boxengine.domain.retry import RetryStrategy
from boxengine.engine.delivering.calls.pipeline import Pipeline, TransportSpec
from boxengine.settings.arguments import Misconfigured
from boxengine.settings.boxes import BoxSettings
from boxengine.settings.origin import Path
from boxengine.settings.resolution.models import Models, has_key_index
from boxengine.settings.resolution.named import Named
from boxengine.settings.rules import boxes_with_paths, declared, names, table_taken
from boxengine.settings.schema import Settings
from boxengine.settings.transports import specify


class ItemBoxes:
    """The outbox and inbox boxes of the settings."""

    def __init__(self, settings: Settings, named: Named, *, builtin_transports: Mapping[str, str]) -> None:
        self._settings = settings
        self._named = named
        self._models = Models(named)
        self._builtin_transports = builtin_transports
        self._twins = twins(names(settings))
        self._tables: dict[str, tuple[Path, bool]] = {}
        """By spelled-out name: where it is configured, and whether a model is."""

    def logs(self) -> dict[str, Pipeline]:
        """Boxes that are only written to: their subscriptions deliver from them."""
        return {
            name: self._written(path, name, box) for path, name, box in declared(self._settings) if box.subscriptions
        }

    def created(self, logs: Mapping[str, Pipeline]) -> dict[str, Pipeline]:
        """Boxes other than these that items are created in, without what only a worker needs."""
        others = [each for each in declared(self._settings) if each[1] not in logs]
        return {name: self._written(path, name, box) for path, name, box in others}

    def _written(self, path: Path, name: str, box: BoxSettings) -> Pipeline:
        """A pipeline to create items with."""
        model = self._models.load((*path, "model"), box.model, name)
        return Pipeline(box=self._box(path, name, box, model), transports=(), retry_strategies=(), model=model)

    def delivered(self, logs: Mapping[str, Pipeline]) -> dict[str, Pipeline]:
        """Boxes that a worker delivers, subscriptions among them."""
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
            key_index=has_key_index(settings, log.model),
            subscription=Subscription(of=log.box, name=own, begins=given.begins),
        )
        return Pipeline(
            box=box,
            transports=self._transports((*path, "transports"), settings),
            retry_strategies=self._retry_strategies((*path, "retry_strategies"), settings),
            model=log.model,
        )

    def _pipeline(self, path: Path, name: str, settings: BoxSettings) -> Pipeline:
        model = self._models.load((*path, "model"), settings.model, name)
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
            twin=name in self._twins,
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
            sequence=self._models.sequence((*path, "sequence"), settings, model),
            key_index=has_key_index(settings, model),
            payload_builder=self._models.payload_builder((*path, "model"), model),
            codec=self._models.codec((*path, "model"), model),
            extra_options=self._models.hook((*path, "model"), model, "extra_options"),
            extra_log_details=self._models.hook((*path, "model"), model, "extra_log_details"),
        )

    def _table(self, path: Path, name: str, settings: BoxSettings, model: type | None) -> str:
        mapped = None if model is None else model.__table__.fullname  # type: ignore[attr-defined]
        if mapped and settings.table and mapped != settings.table:
            message = f"is {settings.table!r}, but the model's is {mapped!r}; leave this key out"
            self._named.report((*path, "table"), message)
        return self._taken(path, str(mapped or settings.table_for(name)), has_model=model is not None)

    def _taken(self, path: Path, table: str, *, has_model: bool) -> str:
        """The table, which no other box may work on."""
        spelled_out = self._settings.spelled_out(table)
        other, other_has_model = self._tables.setdefault(spelled_out, (path, has_model))
        # Where neither has a model, the rules over the keys alone have seen it.
        if other != path and (other_has_model or has_model):
            self._named.found.append(table_taken(path, table, other))
        return table

    def _partition_strategy(self, path: Path, name: str) -> PartitionStrategy:
        built_in = partitioning.BUILT_IN.get(name)
        if built_in is not None:
            return built_in
        # Not asked for its truth, which may be anything: an object without items is false.
        own = self._named.load_callable(path, name, "(key, bucket_size)")
        return partitioning.number if own is None else own

    def _retry_strategies(self, path: Path, settings: BoxSettings) -> tuple[RetryStrategy, ...]:
        strategies: list[RetryStrategy] = []
        for position, name in enumerate(settings.strategies):
            here = (*path, position)
            built_in = retry.BUILT_IN.get(name)
            strategy = built_in() if built_in else self._named.load_callable(here, name, "(item, context)")
            if strategy is not None:
                strategies.append(strategy)
        return tuple(strategies)

    def _transports(self, path: Path, settings: BoxSettings) -> tuple[TransportSpec, ...]:
        specs: list[TransportSpec] = []
        for key, transport in settings.transports.items():
            # In a list the key is the position.
            here = (*path, int(key) if key.isdecimal() else key)
            try:
                spec = specify(transport, self._settings, built_in=self._builtin_transports)
            except Misconfigured as error:
                for part, message in error.mistakes:
                    self._named.report_once((*here, part) if part else here, message)
            else:
                specs.append(spec)
        return tuple(specs)


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
