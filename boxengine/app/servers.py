"""The real servers of a configuration: database and Redis, each behind its ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import assert_never
from urllib.parse import quote

import redis

from boxengine.adapters.redis.connection import connect as connect_redis
from boxengine.adapters.redis.failures import RedisFailures
from boxengine.adapters.redis.leases import RedisLeases
from boxengine.adapters.redis.pauses import RedisPauses
from boxengine.adapters.redis.queue import RedisJobQueue
from boxengine.adapters.redis.wakeups import RedisNotifier, RedisWakeups
from boxengine.adapters.redis.workers import RedisWorkers
from boxengine.adapters.sql.census import SqlCensus
from boxengine.adapters.sql.engine import connect as connect_database
from boxengine.adapters.sql.items import SqlItems
from boxengine.adapters.sql.listen import PostgresWakeups
from boxengine.adapters.sql.store import SqlStore
from boxengine.adapters.system import SystemClock
from boxengine.domain.box import Box
from boxengine.engine.observation import NullObserver
from boxengine.errors import BoxError
from boxengine.ports import (
    Census,
    Clock,
    FailureMemory,
    ItemsStore,
    JobQueue,
    Leases,
    Observer,
    Pauses,
    Wakeups,
    Workers,
)
from boxengine.settings import Settings
from boxengine.settings.schema import Wakeup

SPARE_CONNECTIONS = 3
"""Beside one per thread: retention, probes, status."""


class Strangers:
    """What the adapters find in Redis and never put there: told to the worker's observer, once there is one."""

    def __init__(self) -> None:
        self.observer: Observer = NullObserver()

    def found(self, box: Box, elements: Sequence[bytes]) -> None:
        self.observer.foreign(box, elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Everything outside the process that a worker needs."""

    store: SqlStore
    items: ItemsStore
    census: Census
    queue: JobQueue
    leases: Leases
    pauses: Pauses
    memory: FailureMemory
    workers: Workers
    wakeups: Wakeups | None
    """None: nobody tells of commits; the poller looks by itself."""
    strangers: Strangers
    clock: Clock

    def close(self) -> None:
        """Gives back all connections."""
        if self.wakeups is not None:
            self.wakeups.close()
        self.store.close()


def connect(settings: Settings) -> Servers:
    """The servers of these settings; no connection is made yet.

    Raises:
        BoxError: ``database.url`` is missing or makes no sense, or the Redis settings do not.
    """
    clock, strangers = SystemClock(), Strangers()
    store = connect_store(settings)
    client = redis_client(settings)
    wakeups: Wakeups | None = None
    wakeup = wakeup_of(settings)
    match wakeup:
        case "notify":
            wakeups = PostgresWakeups(store.engine, listen_url=settings.database.listen_url)
        case "redis":
            wakeups = RedisWakeups(client, clock=clock)
        case "none":
            pass
        case never:
            assert_never(never)
    return Servers(
        store=store,
        items=SqlItems(
            store,
            notify=wakeup == "notify",
            signal=RedisNotifier(client).notify if wakeup == "redis" else None,
        ),
        census=SqlCensus(store),
        queue=RedisJobQueue(client, clock=clock, on_corrupt=strangers.found),
        leases=RedisLeases(client),
        pauses=RedisPauses(client),
        memory=RedisFailures(client, clock=clock),
        workers=RedisWorkers(client),
        wakeups=wakeups,
        strangers=strangers,
        clock=clock,
    )


def wakeup_of(settings: Settings) -> Wakeup:
    """How commits wake the poller: a database that has no notifications of its own leaves them to Redis."""
    url = settings.database.url
    if settings.wakeup == "notify" and url is not None and not url.startswith("postgres"):
        return "redis"
    return settings.wakeup


def connect_store(settings: Settings) -> SqlStore:
    """The database alone.

    Raises:
        BoxError: ``database.url`` is missing or makes no sense.
    """
    if settings.database.url is None:
        raise BoxError("database.url is missing: add it to the configuration, e.g. postgresql+psycopg://user@host/name")
    connections = settings.processor.threads_count + settings.poller.threads_count + SPARE_CONNECTIONS
    replica = settings.database.replica_url
    idle_timeout = max(settings.processor.general_timeout, timedelta(seconds=1))
    connect_to = partial(
        connect_database,
        connections=connections,
        idle_timeout=idle_timeout,
        prepared=settings.database.prepared_statements,
    )
    return SqlStore(
        connect_to(settings.database.url),
        replica=connect_to(replica) if replica else None,
        idle_timeout=idle_timeout,
    )


def redis_client(settings: Settings) -> redis.Redis:
    """A client of the configured Redis; no connection is made yet.

    Raises:
        BoxError: the settings make no sense together.
    """
    chosen = settings.redis
    url = chosen.url
    if chosen.sentinels:
        scheme = "rediss" if chosen.ssl else "redis"
        user, password = chosen.username or "", chosen.password
        credentials = f"{quote(user, safe='')}:{quote(password, safe='')}@" if password else ""
        url = f"{scheme}://{credentials}sentinel/{chosen.db}"
    return connect_redis(
        url,
        sentinels=[(host, int(port)) for host, _, port in (each.rpartition(":") for each in chosen.sentinels)],
        master_name=chosen.master_name,
        sentinel_username=chosen.sentinel_username,
        sentinel_password=chosen.sentinel_password,
        cluster=chosen.cluster,
        tls={
            name: value
            for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
            if (value := getattr(chosen, name)) is not None
        },
    )
