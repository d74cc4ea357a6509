import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from boxengine.adapters.redis_stream import RedisStreamTransport
from boxengine.domain.outcome import Failure
from boxengine.errors import BoxError, Unavailable
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


def test_a_stream_is_kept_at_its_length(make: Make, redis: Redis) -> None:
    make(maxlen=10, approximate=False).call_batch([make_item(number) for number in range(1, 51)])
    assert redis.xlen("orders") == 10


def test_a_redis_that_is_not_there_is_no_attempt_of_any_item(make: Make) -> None:
    with pytest.raises(Unavailable, match="redis_stream: ConnectionError"):
        make(url="redis://127.0.0.1:1/0").call_batch([make_item(1), make_item(2)])


@pytest.mark.parametrize("arguments", [{"url": "http://a"}, {"maxlen": 0}, {"stream": ""}, {"stream": "{nothing}"}])
def test_what_is_wrong_is_said_when_the_transport_is_built(arguments: dict[str, Any]) -> None:
    with pytest.raises(BoxError):
        RedisStreamTransport(**{"stream": "orders"} | arguments)
