"""Tries out a configuration: whether its servers answer and its transports can be made. Nothing is sent or written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from boxengine.adapters.redis.connection import translated
from boxengine.adapters.redis.queue import RedisJobQueue
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.jobs import schema as job_schema
from boxengine.adapters.system import SystemClock
from boxengine.app.checking.shared_tables import refuse_shared_tables
from boxengine.app.servers.database import connect_store
from boxengine.app.servers.redis import redis_client
from boxengine.domain.box import Box
from boxengine.domain.masking import masked_text
from boxengine.engine.delivering.calls.pipeline import TransportSpec
from boxengine.engine.jobs.pipeline import JobPipeline
from boxengine.errors import BoxError, described
from boxengine.settings import Resolved
from boxengine.settings.kafka_arguments import kafka_arguments, kafka_servers
from boxengine.settings.transport_names import KAFKA, short_name

_FOR_THE_LIBRARY = timedelta(seconds=5)
"""How much longer Kafka's client library may take to load, start and stop. Its own limit ends first, and says why."""


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of one check."""

    what: str
    seconds: float
    problem: str | None = None
    """None: it works."""


def try_out(resolved: Resolved, *, within: timedelta) -> Iterator[Tried]:
    """Runs one check after the other, each for at most ``within``; a thread that hangs is left behind.

    The tables are checked only if the database answers.
    """
    database = _tried("database", partial(_ask_database, resolved, SqlStore.ping, writes=True), within)
    yield database
    if database.problem is None:
        for pipeline in resolved.pipelines.values():
            what = f"table {pipeline.box.table} of {pipeline.box.name}"
            look = partial(_look_at_table, pipeline.box)
            yield _tried(what, partial(_ask_database, resolved, look), within)
        for jobs in resolved.jobs.values():
            what = f"table {jobs.box.table} of {jobs.box.name}"
            yield _tried(what, partial(_ask_database, resolved, partial(_look_at_jobs, jobs)), within)
        shared = partial(refuse_shared_tables, resolved)
        yield _tried("tables that no two boxes share", partial(_ask_database, resolved, shared), within)
    if resolved.pipelines or resolved.settings.wakes_by_redis:  # long jobs alone need none
        yield _tried("Redis", partial(_ping_redis, resolved), within)
    for servers, config in _clusters(resolved):
        reach = partial(_reach_kafka, servers, config, within)
        yield _tried(f"Kafka at {servers}", reach, within + _FOR_THE_LIBRARY)
    for pipeline in resolved.pipelines.values():
        for spec in pipeline.transports:
            yield _tried(f"transport {spec.name} of {pipeline.box.name}", partial(_make, spec), within)


def _ask_database(resolved: Resolved, ask: Callable[[SqlStore], object], *, writes: bool = False) -> None:
    store = connect_store(resolved.settings, writes=writes)
    try:
        ask(store)
    finally:
        store.close()


def _look_at_table(box: Box, store: SqlStore) -> None:
    table = store.table(box)
    table.refuse_another_size()
    table.refuse_another_storage()


def _look_at_jobs(pipeline: JobPipeline, store: SqlStore) -> None:
    box, model = pipeline.box, pipeline.model
    for finding in job_schema.check(store.engine, [box], {} if model is None else {box.name: model}):
        if finding.severity == "error":
            raise BoxError(f"box {box.name}: {finding.message}")


def _ping_redis(resolved: Resolved) -> None:
    client = redis_client(resolved.settings)
    try:
        with translated("reach the server", client):
            client.ping()
        with translated("run a script", client):
            client.eval("return 1", 0)
        if resolved.pipelines:
            RedisJobQueue(client, clock=SystemClock()).ping()
    finally:
        client.close()


def _clusters(resolved: Resolved) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each Kafka cluster that a transport or a source names, with the settings of the first that does."""
    settings = resolved.settings
    named = [
        kafka_arguments(transport.arguments, settings.kafka)
        for box in settings.boxes.values()
        for transport in box.transports.values()
        if short_name(transport.class_name) == KAFKA
    ]
    seen = set()
    for arguments in [*named, *resolved.sources.values()]:
        servers = kafka_servers(arguments)
        if servers and servers not in seen:
            seen.add(servers)
            yield servers, arguments.get("config") or {}


def _reach_kafka(servers: str, config: Mapping[str, Any], within: timedelta) -> None:
    from boxengine.adapters.kafka.reach import reach  # noqa: PLC0415 - an optional dependency

    reach(servers, config, within=within)


def _make(spec: TransportSpec) -> None:
    made = spec.build()
    close = getattr(made, "close", None)
    if callable(close):
        close()


def _tried(what: str, call: Callable[[], None], within: timedelta) -> Tried:
    problems: list[str] = []

    def run() -> None:
        try:
            call()
        except BoxError as error:
            problems.append(str(error))
        except BaseException as error:  # users' constructors may raise anything
            problems.append(f"its constructor raised {described(error)}")

    started = time.monotonic()
    thread = threading.Thread(target=run, name=f"boxengine-trying-{what}", daemon=True)
    thread.start()
    thread.join(within.total_seconds())
    seconds = time.monotonic() - started
    if thread.is_alive():
        return Tried(what, seconds, f"no answer within {within.total_seconds():g} s")
    return Tried(what, seconds, masked_text(problems[0]) if problems else None)
