import json
import shutil
import socket
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.connection import AbstractConnection

from boxengine.adapters.redis_stream import RedisStreamTransport
from boxengine.domain.outcome import Failure
from boxengine.embedded import EmbeddedValkey
from boxengine.errors import BoxError, Unavailable
from tests.eventually import eventually
from tests.unit.transports.items import make_item

Make = Callable[..., RedisStreamTransport]


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def make(redis_url: str) -> Iterator[Make]:
    made: list[RedisStreamTransport] = []

    def make(**arguments: Any) -> RedisStreamTransport:
        made.append(RedisStreamTransport(**{"url": redis_url, "stream": "orders"} | arguments))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def entries(redis: Redis, stream: str = "orders") -> list[dict[bytes, bytes]]:
    found: Any = redis.xrange(stream)
    return [fields for _, fields in found]


def test_each_item_becomes_an_entry_in_order(make: Make, redis: Redis) -> None:
    items = [make_item(number) for number in range(1, 101)]
    assert make().call_batch(items) == [None] * 100
    found = entries(redis)
    assert [fields[b"uuid"].decode() for fields in found] == [str(item.uuid) for item in items]
    assert found[0][b"payload"] == items[0].payload
    assert found[0][b"event_key"] == b"key-1"
    assert json.loads(found[0][b"headers"]) == items[0].headers


def test_the_stream_may_be_a_template_and_the_payload_built(make: Make, redis: Redis) -> None:
    assert make(stream="orders.{event_name}")(make_item(), {"a": 1}) is None
    assert entries(redis, "orders.order_created")[0][b"payload"] == b'{"a":1}'


def test_an_entry_that_redis_refuses_fails_alone(make: Make, redis: Redis) -> None:
    redis.set("no-stream", "text")
    transport = make(stream="{options.to}")
    results = transport.call_batch(
        [
            make_item(1, options={"to": "orders"}),
            make_item(2, options={"to": "no-stream"}),
            make_item(3, options={}),
            make_item(4, options={"to": "orders"}),
        ]
    )
    assert results[0] is results[3] is None
    assert isinstance(results[1], Failure)
    assert "WRONGTYPE" in results[1].reason
    assert isinstance(results[2], Failure)
    assert "needs options.to" in results[2].reason
    assert len(entries(redis)) == 2


class Mute(Exception):
    """Says nothing about itself."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [SystemExit(1), CancelledError(), Mute()], ids=repr)
def test_whatever_a_serializer_raises_fails_its_own_item_alone(make: Make, redis: Redis, error: BaseException) -> None:
    results = make(serializer=raising(error)).call_batch([make_item(1), make_item(2, payload=b"bad"), make_item(3)])
    assert [type(result) for result in results] == [type(None), Failure, type(None)]
    assert [fields[b"uuid"].decode() for fields in entries(redis)] == [make_item(1).uuid, make_item(3).uuid]


def test_what_a_serializer_needs_and_cannot_reach_costs_no_attempt_and_nothing_overtakes(
    make: Make, redis: Redis
) -> None:
    outage = Unavailable("the registry is away")
    items = [make_item(1), make_item(2, payload=b"bad"), make_item(3)]
    assert make(serializer=raising(outage)).call_batch(items) == [None, outage, outage]
    assert len(entries(redis)) == 1


@pytest.mark.parametrize("made", [{"a": 1}, {}, False, ["a"], 5], ids=repr)
def test_an_item_of_which_the_serializer_makes_no_bytes_fails_alone(make: Make, redis: Redis, made: Any) -> None:
    transport = make(serializer=lambda payload, _context: made if payload == b"bad" else payload)
    first, bad, last = transport.call_batch([make_item(1), make_item(2, payload=b"bad"), make_item(3)])
    assert [first, last] == [None, None]
    assert isinstance(bad, Failure)
    assert f"the serializer returned {type(made).__name__}, not bytes or text" in bad.reason
    assert len(entries(redis)) == 2


def raising(error: BaseException) -> Callable[..., bytes]:
    """A serializer that raises for a bad payload."""

    def serialize(payload: Any, _context: object) -> bytes:
        if payload == b"bad":
            raise error
        return bytes(payload)

    return serialize


def test_a_stream_is_kept_at_its_length(make: Make, redis: Redis) -> None:
    make(maxlen=10, approximate=False).call_batch([make_item(number) for number in range(1, 51)])
    assert redis.xlen("orders") == 10


def test_more_than_a_hundred_threads_may_call_it_at_once(make: Make) -> None:
    pool = make()._redis.connection_pool
    taken = [pool.get_connection() for _ in range(120)]
    for each in taken:
        pool.release(each)
    assert len(set(taken)) == 120


def test_a_redis_that_is_not_there_is_no_attempt_of_any_item(make: Make) -> None:
    with pytest.raises(Unavailable, match="redis_stream: ConnectionError"):
        make(url="redis://127.0.0.1:1/0").call_batch([make_item(1), make_item(2)])


def demote(redis: Redis) -> None:
    redis.replicaof("127.0.0.1", 1)  # nobody listens there


def lose_the_primary(redis: Redis) -> None:
    redis.config_set("replica-serve-stale-data", "no")
    redis.config_set("replica-read-only", "no")
    demote(redis)


@pytest.mark.parametrize(
    ("befall", "words"),
    [
        (demote, "ReadOnlyError"),
        (lambda redis: redis.config_set("maxmemory", 1), "OutOfMemoryError"),
        (lambda redis: redis.config_set("min-replicas-to-write", 1), "NOREPLICAS"),
        (lose_the_primary, "MasterDownError"),
    ],
    ids=["READONLY", "OOM", "NOREPLICAS", "MASTERDOWN"],
)
def test_a_server_that_takes_no_entries_at_the_moment_costs_no_attempt(
    make: Make, own_redis: EmbeddedValkey, befall: Callable[[Redis], object], words: str
) -> None:
    transport = make(url=own_redis.url())
    assert transport(make_item(), b"") is None
    with Redis.from_url(own_redis.url()) as client:
        befall(client)
        results = transport.call_batch([make_item(2), make_item(3)])
    assert [type(result) for result in results] == [Unavailable, Unavailable]
    assert words in str(results[0])


@pytest.mark.parametrize("allowed", ["+@all", "+@all -multi"], ids=["MULTI", "no-MULTI"])
def test_a_batch_is_added_in_one_go_unless_the_account_may_not(
    make: Make, own_redis: EmbeddedValkey, allowed: str
) -> None:
    with Redis.from_url(own_redis.url()) as client:
        client.acl_setuser("shop", enabled=True, nopass=True, keys=["*"], commands=allowed.split())
        url = own_redis.url().replace("redis://", "redis://shop:x@")
        items = [make_item(number, event_key="one") for number in range(1, 4)]
        assert make(url=url).call_batch(items) == [None] * 3
        assert [fields[b"uuid"].decode() for fields in entries(client)] == [item.uuid for item in items]


def test_no_item_overtakes_one_of_its_key_that_the_server_did_not_take(
    make: Make, own_redis: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = make(url=own_redis.url())
    items = [make_item(number, event_key=f"key-{number % 3}", payload=b"x" * 10_000) for number in range(1, 21)]
    send: Any = AbstractConnection.send_packed_command
    with Redis.from_url(own_redis.url()) as client:

        def memory_becomes_free_meanwhile(connection: Any, command: Any, check_health: bool = True) -> None:
            if len(command) < len(items):
                send(connection, command, check_health)
                return
            send(connection, command[: len(command) // 2], check_health)
            eventually(lambda: client.info("errorstats").get("errorstat_OOM"))
            client.config_set("maxmemory", 0)
            send(connection, command[len(command) // 2 :], check_health)

        client.config_set("maxmemory", 1)
        with monkeypatch.context() as patch:
            patch.setattr(AbstractConnection, "send_packed_command", memory_becomes_free_meanwhile)
            results = transport.call_batch(items)
        assert [type(result) for result in results] == [Unavailable] * len(items)
        assert "OutOfMemoryError" in str(results[-1])
        assert transport.call_batch(items) == [None] * len(items)
        assert [fields[b"uuid"].decode() for fields in entries(client)] == [item.uuid for item in items]


def test_an_entry_that_redis_refuses_fails_alone_among_those_of_its_key(make: Make, redis: Redis) -> None:
    redis.xadd("orders", {"a": "b"}, id="18446744073709551615-18446744073709551614")  # leaves room for one more
    items = [make_item(number, event_key="one") for number in range(1, 4)]
    first, second, third = make().call_batch(items)
    assert first is None
    assert isinstance(second, Failure)
    assert isinstance(third, Failure)


def test_a_cluster_without_the_slot_costs_no_attempt(make: Make, tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path / "node", durable=False, settings={"cluster-enabled": "yes"}) as node:
        [result] = make(url=node.url()).call_batch([make_item()])
    assert isinstance(result, Unavailable)
    assert "ClusterDownError" in str(result)


def test_a_node_whose_slots_another_one_has_taken_over_costs_no_attempt(make: Make, tmp_path: Path) -> None:
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(EmbeddedValkey(tmp_path / name, durable=False, settings=of_a_cluster()))
            for name in "ab"
        ]
        first, second = (stack.enter_context(Redis.from_url(node.url())) for node in nodes)
        transport = make(url=nodes[0].url())
        first.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: transport.call_batch([make_item(1)]) == [None])
        bus = second.config_get("cluster-port")["cluster-port"]
        first.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, bus)
        other = second.execute_command("CLUSTER", "MYID").decode()
        eventually(lambda: other in str(first.execute_command("CLUSTER", "NODES")))
        slot = first.execute_command("CLUSTER", "KEYSLOT", "orders")
        first.delete("orders")
        first.execute_command("CLUSTER", "SETSLOT", slot, "NODE", other)
        results = transport.call_batch([make_item(2, event_key="one"), make_item(3, event_key="one")])
        connected = first.client_list(_type="normal")
    assert [type(result) for result in results] == [Unavailable, Unavailable]
    assert "MovedError" in str(results[0])
    assert len(connected) == 1, "the name may lead to another server by now"


def of_a_cluster() -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return {"cluster-enabled": "yes", "cluster-port": str(free.getsockname()[1])}


def withdraw_the_right_to_the_stream(redis: Redis) -> None:
    redis.acl_setuser("default", enabled=True, nopass=True, reset_keys=True, keys=["other*"], commands=["+@all"])


@pytest.mark.parametrize(
    ("befall", "words"),
    [
        (withdraw_the_right_to_the_stream, "NoPermissionError"),
        (lambda redis: redis.set("orders", "text"), "WRONGTYPE"),
    ],
    ids=["NOPERM", "WRONGTYPE"],
)
def test_what_every_entry_of_the_only_stream_would_meet_costs_no_attempt(
    make: Make, own_redis: EmbeddedValkey, befall: Callable[[Redis], object], words: str
) -> None:
    with Redis.from_url(own_redis.url()) as client:
        befall(client)
    items = [make_item(number, event_key="one", options={"to": "orders"}) for number in (1, 2)]
    results = make(url=own_redis.url()).call_batch(items)
    assert [type(result) for result in results] == [Unavailable, Unavailable]
    assert words in str(results[0])
    assert isinstance(make(url=own_redis.url(), stream="{options.to}").call_batch(items)[0], Failure)


def test_a_server_that_cannot_save_costs_no_attempt(make: Make, own_redis: EmbeddedValkey) -> None:
    shutil.rmtree(own_redis.data_dir)
    with Redis.from_url(own_redis.url()) as client:
        client.config_set("save", "3600 1")
        client.bgsave()
        eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        [result] = make(url=own_redis.url()).call_batch([make_item()])
        client.config_set("save", "")  # or the server would refuse to stop
    assert isinstance(result, Unavailable)
    assert "MISCONF" in str(result)


def test_a_server_that_runs_a_script_costs_no_attempt(make: Make, own_redis: EmbeddedValkey) -> None:
    transport = make(url=own_redis.url())
    with Redis.from_url(own_redis.url()) as client, ThreadPoolExecutor() as threads:
        client.config_set("lua-time-limit", 1)  # milliseconds after which it answers others, with BUSY
        script = threads.submit(client.eval, "while true do end", 0)
        eventually(lambda: "BUSY" in str(transport.call_batch([make_item()])[0]))
        [result] = transport.call_batch([make_item()])
        client.script_kill()
        assert script.exception() is not None
    assert isinstance(result, Unavailable)
    assert transport.call_batch([make_item()]) == [None]


def test_after_a_failover_the_new_primary_is_found_by_its_name(
    make: Make, own_redis: EmbeddedValkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary = own_redis.port

    def resolved(*_args: Any, **_kwargs: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", primary))]

    with (
        EmbeddedValkey(tmp_path / "other", durable=False) as other,
        Redis.from_url(own_redis.url()) as old,
        Redis.from_url(other.url()) as new,
    ):
        old.ping()
        new.ping()
        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        transport = make(url="redis://primary.example/0")
        assert transport(make_item(1), b"") is None
        demote(old)
        primary = other.port
        assert isinstance(transport(make_item(2), b""), Unavailable)
        assert transport(make_item(2), b"") is None
        assert len(entries(new)) == 1


@pytest.mark.parametrize("arguments", [{"url": "http://a"}, {"maxlen": 0}, {"stream": ""}, {"stream": "{nothing}"}])
def test_what_is_wrong_is_said_when_the_transport_is_built(arguments: dict[str, Any]) -> None:
    with pytest.raises(BoxError):
        RedisStreamTransport(**{"stream": "orders"} | arguments)
