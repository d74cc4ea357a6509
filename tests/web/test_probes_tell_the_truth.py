"""The probes over HTTP, with real servers that die or fall silent and a real thread that hangs."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import redis
import sqlalchemy

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.redis.connection import connect
from boxengine.adapters.redis.queue import RedisJobQueue
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.system import SystemClock
from boxengine.adapters.telemetry import logs
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from boxengine.engine.observation import NullObserver
from boxengine.engine.running.health import Health
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.threads import ThreadGroup
from boxengine.ports import Clock
from boxengine.web import probes
from boxengine.web.server import HttpService
from tests.web.test_server import HERE, body, get

LIMIT = timedelta(seconds=180)
Ask = Callable[[str], tuple[int, list[str]]]


def thread_group(turn: Callable[[], timedelta], *, health: Health, clock: Clock) -> ThreadGroup:
    outages = Outages(observer=NullObserver(), error_tracker=logs.report, clock=clock)
    return ThreadGroup(
        "processor", turn, limit=LIMIT, health=health, clock=clock, outages=outages, randomness=random.Random(1)
    )


def serve(health: Health) -> tuple[HttpService, Ask]:
    service = HttpService(probes.routes(ready=health.ready, alive=health.alive), port=0, key="probes.port", host=HERE)
    service.start()

    def ask(path: str) -> tuple[int, list[str]]:
        status, answer = body(get(service.port, path))
        return status, answer["reasons"]

    return service, ask


@pytest.fixture
def client(own_redis: EmbeddedValkey) -> Iterator[redis.Redis]:
    client = connect(own_redis.url())
    yield client
    client.close()


@pytest.fixture
def engine(own_postgres: EmbeddedPostgres) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(own_postgres.url(), connect_args={"connect_timeout": 2})
    yield engine
    engine.dispose()


@pytest.fixture
def ask(engine: sqlalchemy.Engine, client: redis.Redis) -> Iterator[Ask]:
    """Asks a worker's probes; its loop waits for nothing, its servers are the test's own."""
    clock = SystemClock()
    checks = {"database": SqlStore(engine).ping, "redis": RedisJobQueue(client, clock=clock).ping}
    health = Health(clock=clock, checks=checks, check_lifetime=timedelta(0))
    health.loop("processor-0", limit=LIMIT)
    service, ask = serve(health)
    yield ask
    service.stop()


def test_a_dead_database_is_not_ready_but_alive(ask: Ask, own_postgres: EmbeddedPostgres) -> None:
    assert ask("/readiness/outbox") == (200, [])
    own_postgres.kill()
    status, reasons = ask("/readiness/outbox")
    assert status == 503
    assert [reason.partition(":")[0] for reason in reasons] == ["database"]
    assert ask("/liveness/outbox") == (200, [])
    own_postgres.start()
    assert ask("/readiness/outbox") == (200, [])


def test_a_dead_redis_is_not_ready_but_alive(ask: Ask, own_redis: EmbeddedValkey) -> None:
    assert ask("/readiness/outbox") == (200, [])
    own_redis.kill()
    status, reasons = ask("/readiness/outbox")
    assert status == 503
    assert [reason.partition(":")[0] for reason in reasons] == ["redis"]
    assert ask("/liveness/outbox") == (200, [])


def test_a_silent_redis_is_not_ready_and_the_probe_answers_all_the_same(ask: Ask, own_redis: EmbeddedValkey) -> None:
    own_redis.send_signal(signal.SIGSTOP)
    try:
        status, reasons = ask("/readiness/outbox")
    finally:
        own_redis.send_signal(signal.SIGCONT)
    assert status == 503
    assert reasons[0].startswith("redis: no answer for ")


def test_a_thread_that_hangs_in_a_transport_is_not_alive_and_is_named() -> None:
    clock = ManualClock()
    health = Health(clock=clock, checks={})
    inside, release = threading.Event(), threading.Event()

    def hang() -> timedelta:
        inside.set()
        release.wait()
        return timedelta(hours=1)

    group = thread_group(hang, health=health, clock=clock)
    service, ask = serve(health)
    group.start()
    assert inside.wait(10)
    assert ask("/liveness/outbox") == (200, [])
    clock.advance(LIMIT + timedelta(seconds=1))
    hung = ["boxengine-processor-0: no progress for 181 s (limit 180 s)"]
    assert ask("/liveness/outbox") == (503, hung)
    assert ask("/readiness/outbox") == (503, hung)
    group.ask_to_stop()
    release.set()
    assert group.join(until=clock.monotonic() + 10) == []
    assert ask("/liveness/outbox") == (200, [])
    service.stop()


def test_a_thread_that_waits_out_an_outage_is_alive() -> None:
    clock = ManualClock()
    health = Health(clock=clock, checks={})
    turns = [threading.Event() for _ in range(5)]
    count = iter(turns)

    def fail() -> timedelta:
        clock.advance(LIMIT / 2)
        turn = next(count, None)
        if turn is None:
            return timedelta(hours=1)
        turn.set()
        raise ConnectionError("refused")

    group = thread_group(fail, health=health, clock=clock)
    service, ask = serve(health)
    group.start()
    for turn in turns:
        assert turn.wait(10)
        assert ask("/liveness/outbox") == (200, [])
    group.ask_to_stop()
    assert group.join(until=clock.monotonic() + 10) == []
    service.stop()
