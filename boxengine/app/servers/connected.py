"""The real servers of a configuration, database and Redis, each behind its ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from boxengine.adapters.redis.attempts import RedisAttempts
from boxengine.adapters.redis.checkup import RedisCheckup
from boxengine.adapters.redis.failures import RedisFailures
from boxengine.adapters.redis.history import RedisHistory
from boxengine.adapters.redis.in_hand import RedisInHand
from boxengine.adapters.redis.leases import RedisLeases
from boxengine.adapters.redis.pauses import RedisPauses
from boxengine.adapters.redis.queue import RedisJobQueue
from boxengine.adapters.redis.trail import RedisTrail
from boxengine.adapters.redis.wakeups import CHANNEL as WAKEUPS
from boxengine.adapters.redis.wakeups import RedisNotifier, RedisWakeups
from boxengine.adapters.redis.workers import RedisWorkers
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.census import SqlCensus
from boxengine.adapters.sql.looking.inspection import SqlInspector
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.adapters.sql.looking.log_rows import LogRows
from boxengine.adapters.sql.waking.listen import PostgresWakeups
from boxengine.adapters.system import SystemClock
from boxengine.app.servers.database import connect_store
from boxengine.app.servers.passwords import database_password
from boxengine.app.servers.redis import redis_client
from boxengine.domain.box import Box
from boxengine.engine.observation import NullObserver
from boxengine.engine.running.closing import Closing
from boxengine.ports import (
    Census,
    Clock,
    FailureMemory,
    InHand,
    ItemsStore,
    JobQueue,
    Leases,
    Observer,
    Pauses,
    Wakeups,
    Workers,
)
from boxengine.ports.people.attempts import Attempts
from boxengine.ports.people.checkup import Checkup
from boxengine.ports.people.history import History
from boxengine.ports.people.inspection import Inspector
from boxengine.ports.people.log import LogItems
from boxengine.ports.people.trail import Trail
from boxengine.settings import Settings
from boxengine.settings.drivers import demand_url


class Strangers:
    """Reports what the adapters find in Redis but did not put there to the worker's observer, once there is one."""

    def __init__(self) -> None:
        self.observer: Observer = NullObserver()

    def found(self, box: Box, elements: Sequence[bytes]) -> None:
        from boxengine.ports.events import ForeignJobs  # noqa: PLC0415 - of all events the only one, and seldom found

        self.observer.see(ForeignJobs(box, elements))


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Everything outside the process that a worker needs."""

    store: SqlStore
    items: ItemsStore
    census: Census
    inspector: Inspector
    log: LogItems
    queue: JobQueue
    leases: Leases
    pauses: Pauses
    memory: FailureMemory
    workers: Workers
    trail: Trail
    history: History
    attempts: Attempts
    wakeups: Wakeups | None
    """None: commits are not announced; the poller checks by itself."""
    strangers: Strangers
    in_hand: Callable[[str], InHand]
    """Makes, from a worker's token, the record of what that worker is sending."""
    coordinator: Checkup
    """Checks the server that workers share."""
    disconnect: Sequence[Closing]
    """Closes the connections to that server."""
    clock: Clock

    def closings(self) -> list[list[Closing]]:
        """What closes all connections, one group after the other."""
        listener = [] if self.wakeups is None else [Closing("the listener's connection", self.wakeups.close)]
        return [
            listener,
            [
                Closing("the database's connections", self.store.close),
                *self.disconnect,
            ],
        ]

    def close(self) -> None:
        """Closes all connections, even if closing one of them fails."""
        with ExitStack() as closing:
            for group in reversed(self.closings()):
                for each in group:
                    closing.callback(each.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits the cost of questions where many people ask repeatedly."""

    statement_limit: timedelta = timedelta(seconds=2)
    counted_to: int = 10_000
    """How many rows of one kind are counted at most."""


def connect(settings: Settings, *, patience: Patience | None = None, writes: bool = False) -> Servers:
    """The servers of these settings; no connection is made yet.

    Args:
        patience: limits for questions; None: no limits, as for a worker or a single command.
        writes: whether a database that accepts no writes, such as a standby, counts as unreachable.

    Raises:
        BoxError: ``database.url`` is missing or makes no sense, or the Redis settings do not.
    """
    clock, strangers = SystemClock(), Strangers()
    store = connect_store(
        settings,
        statement_limit=None if patience is None else patience.statement_limit,
        writes=writes,
        only_looks=patience is not None,
    )
    client, prefix = redis_client(settings), settings.redis.prefix or ""
    wakeups: Wakeups | None = None
    wakeup = settings.wakeup_in_force
    match wakeup:
        case "notify":
            direct = settings.database.listen_url
            password = database_password(settings, direct or demand_url(settings))
            wakeups = PostgresWakeups(store.engine, listen_url=direct, password=password)
        case "redis":
            wakeups = RedisWakeups(client, clock=clock, channel=prefix + WAKEUPS)
        case "none":
            pass
        case never:
            assert_never(never)
    return Servers(
        store=store,
        items=SqlItems(
            store,
            notify=wakeup == "notify",
            signal=RedisNotifier(client, channel=prefix + WAKEUPS).notify if wakeup == "redis" else None,
        ),
        census=SqlCensus(store)
        if patience is None
        else SqlCensus(store, small=2 * patience.counted_to, limit=patience.counted_to),
        inspector=SqlInspector(store),
        log=LogRows(store),
        queue=RedisJobQueue(client, clock=clock, longest=settings.poller.max_queue_size, on_corrupt=strangers.found),
        leases=RedisLeases(client, prefix=prefix),
        pauses=RedisPauses(client),
        memory=RedisFailures(client, clock=clock),
        workers=RedisWorkers(client, prefix=prefix),
        trail=RedisTrail(client, prefix=prefix),
        history=RedisHistory(client, prefix=prefix),
        attempts=RedisAttempts(client, prefix=prefix),
        wakeups=wakeups,
        strangers=strangers,
        in_hand=lambda token: RedisInHand(client, worker=token),
        coordinator=RedisCheckup(client, now=clock.now),
        disconnect=[Closing("Redis's connections", client.connection_pool.disconnect)],
        clock=clock,
    )
