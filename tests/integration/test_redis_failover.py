"""Another Redis becomes the master: scripts and commands find it, whether a Sentinel tells of it or a name leads there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from boxengine.adapters.redis import script
from boxengine.adapters.redis.connection import connect, takes_no_writes
from boxengine.adapters.redis.pauses import RedisPauses
from boxengine.adapters.redis.queue import RedisJobQueue
from boxengine.adapters.redis.script import Scripts
from boxengine.adapters.redis.wakeups import RedisNotifier, RedisWakeups
from boxengine.adapters.system import SystemClock
from boxengine.embedded import EmbeddedValkey
from boxengine.errors import QueueUnavailable
from boxengine.ports import Signal
from tests.conformance.coordination import TTL, job, make_box, seized
from tests.eventually import eventually
from tests.servers.proxy import FaultProxy
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
    seized(queue, BOX, 1)
    sentinel.name(other)
    own_redis.kill()
    with pytest.raises(QueueUnavailable):
        seized(queue, BOX, 2)
    assert seized(queue, BOX, 3).buckets == {3}


def test_a_master_that_died_while_nobody_called_costs_none(
    queue: RedisJobQueue,
    sentinel: EmbeddedSentinel,
    own_redis: EmbeddedValkey,
    other: EmbeddedValkey,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seized(queue, BOX, 1)
    sentinel.name(other)
    own_redis.kill()
    monkeypatch.setattr(script, "_FRESH", 0.0)
    assert seized(queue, BOX, 2).buckets == {2}


def test_a_master_that_becomes_a_replica_costs_one_call(
    queue: RedisJobQueue, sentinel: EmbeddedSentinel, own_redis: EmbeddedValkey, other: EmbeddedValkey
) -> None:
    seized(queue, BOX, 1)
    sentinel.name(other)
    demote(own_redis, below=other)
    with pytest.raises(QueueUnavailable):
        seized(queue, BOX, 2)
    assert seized(queue, BOX, 3).buckets == {3}


def hears(wakeups: RedisWakeups, client: redis.Redis) -> bool:
    """Whether a wake-up that the client publishes arrives."""
    RedisNotifier(client).notify([Signal("order_outbox_item", 1)])
    return bool(wakeups.wait(timedelta(milliseconds=50)))


def assert_follows_writers(client: redis.Redis, lead: Callable[[], None], *, old: str, new: str) -> None:
    """A listener hears what is published on the old server, and on the new one once writers are led there."""
    wakeups = RedisWakeups(client, clock=SystemClock(), check_interval=timedelta(seconds=1))
    with redis.Redis.from_url(old) as before, redis.Redis.from_url(new) as after:
        eventually(lambda: hears(wakeups, before))
        lead()
        eventually(lambda: hears(wakeups, after))
    wakeups.close()


def test_who_listens_for_wake_ups_goes_where_the_sentinel_leads_writers(
    client: redis.Redis, sentinel: EmbeddedSentinel, own_redis: EmbeddedValkey, other: EmbeddedValkey
) -> None:
    """The old server is cut off from the others, so that nobody tells it and nobody closes its connections."""
    assert_follows_writers(client, lambda: sentinel.name(other), old=own_redis.url(), new=other.url())


def assert_writer_follows_listeners(
    client: redis.Redis, lead: Callable[[], None], new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a writer publishes arrives once it is led to the new server, although the old one has closed no connection."""
    monkeypatch.setattr("boxengine.adapters.redis.wakeups._RENEWAL", 0.0)
    notifier = RedisNotifier(client)
    notifier.notify([Signal("order_outbox_item", 1)])
    lead()
    with redis.Redis.from_url(new) as after:
        listener = RedisWakeups(after, clock=SystemClock())
        listener.wait(timedelta(0))
        notifier.notify([Signal("order_outbox_item", 2)])
        assert listener.wait(timedelta(seconds=30)) == [Signal("order_outbox_item", 2)]
        listener.close()


def test_who_publishes_wake_ups_goes_where_the_sentinel_leads_listeners(
    client: redis.Redis,
    sentinel: EmbeddedSentinel,
    own_redis: EmbeddedValkey,
    other: EmbeddedValkey,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lead() -> None:
        sentinel.name(other)
        demote(own_redis, below=other)

    assert_writer_follows_listeners(client, lead, other.url(), monkeypatch)


@pytest.fixture
def name(own_redis: EmbeddedValkey) -> Iterator[FaultProxy]:
    """Leads new connections to ``own_redis``, as a name in DNS does, until told otherwise."""
    with FaultProxy.before(own_redis.url()) as proxy:
        yield proxy


@pytest.fixture
def named(name: FaultProxy, own_redis: EmbeddedValkey) -> Iterator[redis.Redis]:
    with connect(name.url(own_redis.url())) as client:
        yield client


def test_without_a_sentinel_a_master_that_becomes_a_replica_costs_one_script(
    named: redis.Redis, name: FaultProxy, own_redis: EmbeddedValkey, other: EmbeddedValkey
) -> None:
    queue, echo = RedisJobQueue(named, clock=SystemClock()), Scripts(named).register(ECHO)
    seized(queue, BOX, 1)
    name.lead_new_to(other.url())
    demote(own_redis, below=other)
    with pytest.raises(QueueUnavailable, match="read only replica"):
        seized(queue, BOX, 2)
    assert seized(queue, BOX, 3).buckets == {3}
    assert echo(args=["answers"]) == b"answers"


def test_who_listens_for_wake_ups_goes_where_a_name_leads_writers(
    named: redis.Redis, name: FaultProxy, own_redis: EmbeddedValkey, other: EmbeddedValkey
) -> None:
    assert_follows_writers(named, lambda: name.lead_new_to(other.url()), old=own_redis.url(), new=other.url())


def test_who_publishes_wake_ups_goes_where_a_name_leads_listeners(
    named: redis.Redis, name: FaultProxy, other: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_writer_follows_listeners(named, lambda: name.lead_new_to(other.url()), other.url(), monkeypatch)


def test_a_writer_that_nobody_hears_does_not_connect_anew_each_time(
    named: redis.Redis, name: FaultProxy, other: EmbeddedValkey
) -> None:
    notifier = RedisNotifier(named)
    notifier.notify([Signal("order_outbox_item", 1)])
    name.lead_new_to(other.url())
    with redis.Redis.from_url(other.url()) as after:
        for _ in range(3):
            notifier.notify([Signal("order_outbox_item", 1)])
        assert "cmdstat_publish" not in after.info("commandstats")


def test_who_may_not_ask_which_server_it_is_hears_of_wake_ups(own_redis: EmbeddedValkey) -> None:
    with redis.Redis.from_url(own_redis.url()) as admin:
        admin.acl_setuser("lean", enabled=True, nopass=True, categories=["+@all"], commands=["-info"], channels=["*"])
        address = own_redis.url().replace("redis://", "redis://lean:x@")
        with connect(address) as client:
            wakeups = RedisWakeups(client, clock=SystemClock(), check_interval=timedelta(seconds=1))
            eventually(lambda: hears(wakeups, admin))
            wakeups.close()


def test_it_costs_one_command_where_commands_have_connections_of_the_pool(
    named: redis.Redis, name: FaultProxy, own_redis: EmbeddedValkey, other: EmbeddedValkey
) -> None:
    pauses = RedisPauses(named)
    lent = [named.client() for _ in range(3)]  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
    for each in lent:
        each.close()
    name.lead_new_to(other.url())
    demote(own_redis, below=other)
    with pytest.raises(QueueUnavailable, match="read only replica"):
        pauses.set(BOX, polling_enabled=False)
    lent = [named.client() for _ in range(3)]  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
    assert [each.info("server")["tcp_port"] for each in lent] == [other.port] * 3
    for each in lent:
        each.close()
    pauses.set(BOX, polling_enabled=False)
    assert pauses.polling_enabled([BOX]) == {BOX.name: False}


def test_a_wait_for_jobs_ends_when_the_master_becomes_a_replica_and_the_next_one_waits_at_the_new(
    named: redis.Redis, name: FaultProxy, own_redis: EmbeddedValkey, other: EmbeddedValkey
) -> None:
    queue = RedisJobQueue(named, clock=SystemClock())
    wait = timedelta(seconds=3)
    with ThreadPoolExecutor(1) as pool, redis.Redis.from_url(own_redis.url()) as admin:
        taking = pool.submit(queue.take, [BOX], wait=wait, ttl=TTL, share=1)
        eventually(lambda: admin.info("clients")["blocked_clients"])
        name.lead_new_to(other.url())
        demote(own_redis, below=other)
        with pytest.raises(QueueUnavailable):
            taking.result()
    queue.push(BOX, [job(1)])
    assert queue.take([BOX], wait=wait, ttl=TTL, share=1) is not None


def test_the_error_of_an_older_server_s_script_is_understood() -> None:
    told = "Error running script (call to f_0): @user_script:1: -READONLY You can't write against a read only replica."
    assert takes_no_writes(redis.ResponseError(told))


def test_a_replica_is_not_ready_and_the_next_look_goes_where_the_name_leads(
    named: redis.Redis, name: FaultProxy, own_redis: EmbeddedValkey, other: EmbeddedValkey
) -> None:
    queue = RedisJobQueue(named, clock=SystemClock())
    queue.ping()
    name.lead_new_to(other.url())
    demote(own_redis, below=other)
    with pytest.raises(QueueUnavailable, match="takes no writes"):
        queue.ping()
    queue.ping()


def test_a_replica_that_takes_writes_is_ready(own_redis: EmbeddedValkey, other: EmbeddedValkey) -> None:
    demote(own_redis, below=other)
    with connect(own_redis.url()) as client:
        client.config_set("replica-read-only", "no")
        RedisJobQueue(client, clock=SystemClock()).ping()


def test_a_user_who_may_not_ask_for_the_role_or_try_a_write_is_ready(own_redis: EmbeddedValkey) -> None:
    with connect(own_redis.url()) as client:
        client.execute_command("ACL", "SETUSER", "default", "-info", "-set")
        RedisJobQueue(client, clock=SystemClock()).ping()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"maxmemory": "1"}, "used memory > 'maxmemory'"),
        ({"min-replicas-to-write": "1"}, "[Nn]ot enough good replicas"),
    ],
    ids=["full", "without its replicas"],
)
def test_a_server_that_answers_and_refuses_writes_is_not_ready(
    own_redis: EmbeddedValkey, settings: dict[str, str], reason: str
) -> None:
    with connect(own_redis.url()) as client:
        queue, before = RedisJobQueue(client, clock=SystemClock()), client.dbsize()
        queue.ping()
        for name, value in settings.items():
            client.config_set(name, value)
        with pytest.raises(QueueUnavailable, match=f"takes no writes.*{reason}"):
            queue.ping()
        for name in settings:
            client.config_set(name, "0")
        queue.ping()
        assert client.dbsize() == before
