"""Another Redis becomes the master: scripts and commands find it, whether a Sentinel tells of it or a name leads there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from boxengine.adapters.redis import script
from boxengine.adapters.redis.connection import connect
from boxengine.adapters.redis.queue import RedisJobQueue
from boxengine.adapters.redis.script import Scripts
from boxengine.adapters.system import SystemClock
from boxengine.embedded import EmbeddedValkey
from boxengine.errors import QueueUnavailable
from boxengine.ports import Hold
from tests.conformance.coordination import TTL, job, make_box
from tests.servers.sentinel import MASTER, EmbeddedSentinel

BOX = make_box()
ECHO = "return ARGV[1]"
ATTEMPTS = 100


@pytest.fixture
def other(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """The server that becomes the master."""
    with EmbeddedValkey(tmp_path / "other", durable=False) as server:
        yield server


@pytest.fixture
def sentinel(tmp_path: Path, own_redis: EmbeddedValkey) -> Iterator[EmbeddedSentinel]:
    """Names ``own_redis`` until told otherwise."""
    with EmbeddedSentinel(tmp_path / "sentinel") as server:
        server.name(own_redis)
        yield server


@pytest.fixture
def client(sentinel: EmbeddedSentinel) -> Iterator[redis.Redis]:
    with connect(
        sentinels=[("127.0.0.1", sentinel.port)], master_name=MASTER, answer_timeout=timedelta(seconds=0.3)
    ) as client:
        yield client


@pytest.fixture
def queue(client: redis.Redis) -> RedisJobQueue:
    return RedisJobQueue(client, clock=SystemClock())


def seized(queue: RedisJobQueue, bucket: int) -> Hold:
    hold = queue.seize(BOX, [job(bucket)], ttl=TTL)
    assert hold is not None
    return hold


def demote(server: EmbeddedValkey, *, below: EmbeddedValkey) -> None:
    """Makes it a replica, which leaves its connections open."""
    with redis.Redis.from_url(server.url()) as admin:
        admin.replicaof("127.0.0.1", below.port)


def test_behind_a_sentinel_an_answer_that_comes_too_late_is_not_taken_for_that_of_the_next_call(
    client: redis.Redis, own_redis: EmbeddedValkey
) -> None:
    echo = Scripts(client).register(ECHO)
    echo(args=["first"])
    with redis.Redis.from_url(own_redis.url()) as admin:
        admin.client_pause(500)  # milliseconds
    with pytest.raises(redis.exceptions.TimeoutError):
        echo(args=["late"])
    for number in range(ATTEMPTS):
        with suppress(redis.exceptions.TimeoutError):
            assert echo(args=[number]) == b"%d" % number
            break
    else:
        pytest.fail("the server never answered again")


def test_a_master_that_dies_costs_one_call(
    queue: RedisJobQueue, sentinel: EmbeddedSentinel, own_redis: EmbeddedValkey, other: EmbeddedValkey
) -> None:
    seized(queue, 1)
    sentinel.name(other)
    own_redis.kill()
    with pytest.raises(QueueUnavailable):
        seized(queue, 2)
    assert seized(queue, 3).buckets == {3}


def test_a_master_that_died_while_nobody_called_costs_none(
    queue: RedisJobQueue,
    sentinel: EmbeddedSentinel,
    own_redis: EmbeddedValkey,
    other: EmbeddedValkey,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seized(queue, 1)
    sentinel.name(other)
    own_redis.kill()
    monkeypatch.setattr(script, "_FRESH", 0.0)
    assert seized(queue, 2).buckets == {2}


def test_a_master_that_becomes_a_replica_costs_one_call(
    queue: RedisJobQueue, sentinel: EmbeddedSentinel, own_redis: EmbeddedValkey, other: EmbeddedValkey
) -> None:
    seized(queue, 1)
    sentinel.name(other)
    demote(own_redis, below=other)
    with pytest.raises(QueueUnavailable):
        seized(queue, 2)
    assert seized(queue, 3).buckets == {3}
