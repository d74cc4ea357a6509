"""Scripts are called over connections of their own: what becomes of them when a server restarts, forgets or stays silent."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
import redis

from boxengine.adapters.redis import script
from boxengine.adapters.redis.connection import connect
from boxengine.adapters.redis.queue import RedisJobQueue
from boxengine.adapters.redis.script import Scripts
from boxengine.adapters.system import SystemClock
from boxengine.embedded import EmbeddedValkey
from boxengine.errors import QueueUnavailable
from tests.conformance.coordination import make_box, seized

BOX = make_box()
ECHO = "return {KEYS[1], ARGV[1], ARGV[2]}"
THREADS = 6
ATTEMPTS = 100


@pytest.fixture
def client(own_redis: EmbeddedValkey) -> Iterator[redis.Redis]:
    with connect(own_redis.url(), answer_timeout=timedelta(seconds=0.3)) as client:
        yield client


@pytest.fixture
def admin(own_redis: EmbeddedValkey) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_redis.url()) as admin:
        yield admin


@pytest.fixture
def queue(client: redis.Redis) -> RedisJobQueue:
    return RedisJobQueue(client, clock=SystemClock())


def hang_up(admin: redis.Redis) -> None:
    """The server closes the connections of all others."""
    admin.client_kill_filter(_type="normal", skipme=True)


@pytest.mark.parametrize("argument", ["plain", b"\x00\xff\r\n$3", "größer", 7, 0.5, "", "two\r\nlines"])
def test_arguments_of_every_kind_arrive_as_they_are(client: redis.Redis, argument: Any) -> None:
    answer = Scripts(client).register(ECHO)(keys=["key"], args=[argument, "behind it"])
    sent = argument if isinstance(argument, bytes) else str(argument).encode()
    assert answer == [b"key", sent, b"behind it"]


def test_a_server_that_has_forgotten_its_scripts_is_told_them_again(queue: RedisJobQueue, admin: redis.Redis) -> None:
    seized(queue, BOX, 1)
    admin.script_flush()
    assert seized(queue, BOX, 2).buckets == {2}


def test_a_connection_that_was_closed_while_it_was_idle_is_no_error(
    queue: RedisJobQueue, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    seized(queue, BOX, 1)
    hang_up(admin)
    monkeypatch.setattr(script, "_FRESH", 0.0)
    assert seized(queue, BOX, 2).buckets == {2}


def test_one_that_was_closed_right_after_a_call_costs_one_call(queue: RedisJobQueue, admin: redis.Redis) -> None:
    seized(queue, BOX, 1)
    hang_up(admin)
    with pytest.raises(QueueUnavailable):
        seized(queue, BOX, 2)
    assert seized(queue, BOX, 3).buckets == {3}


def test_an_answer_that_comes_too_late_is_not_taken_for_that_of_the_next_call(
    client: redis.Redis, admin: redis.Redis
) -> None:
    echo = Scripts(client).register(ECHO)
    echo(keys=["key"], args=["first", ""])
    admin.client_pause(500)  # milliseconds
    with pytest.raises(redis.exceptions.TimeoutError):
        echo(keys=["key"], args=["late", ""])
    for number in range(ATTEMPTS):
        with suppress(redis.exceptions.TimeoutError):
            assert echo(keys=["key"], args=[number, ""]) == [b"key", b"%d" % number, b""]
            break
    else:
        pytest.fail("the server never answered again")


def test_a_call_that_the_server_refuses_leaves_the_connection_in_use(client: redis.Redis, admin: redis.Redis) -> None:
    scripts = Scripts(client)
    wrong = scripts.register("return redis.call('LLEN', KEYS[1])")
    admin.set("text", "no list")
    echo, before = scripts.register(ECHO), admin.info("stats")["total_connections_received"]
    for _ in range(3):
        with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
            wrong(keys=["text"])
        assert echo(keys=["key"], args=["1", "2"]) == [b"key", b"1", b"2"]
    assert admin.info("stats")["total_connections_received"] == before + 1


def test_threads_that_call_at_once_get_their_own_answers_and_leave_few_connections_behind(
    own_redis: EmbeddedValkey,
) -> None:
    client = connect(own_redis.url(), max_connections=THREADS)
    echo, together = Scripts(client).register(ECHO), Barrier(THREADS)

    def call(number: int) -> bool:
        together.wait()
        return all(
            echo(keys=["key"], args=[number, turn]) == [b"key", b"%d" % number, b"%d" % turn] for turn in range(50)
        )

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(call, range(THREADS)))
    # The others are in the pool again: it has enough for as many commands that last.
    lent = [client.client() for _ in range(THREADS - script._KEPT)]  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
    assert all(each.ping() for each in lent)
    for each in lent:
        each.close()
    client.close()
