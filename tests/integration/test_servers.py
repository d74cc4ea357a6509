"""The servers that the other tests stand on answer, each through its fixture."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, Producer
from redis import Redis
from sqlalchemy import create_engine, text

from tests.servers.kafka import KafkaBroker
from tests.servers.kafka_mock import KafkaMock


def test_postgres_url_is_an_empty_database(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        tables = connection.scalar(text("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"))
    engine.dispose()
    assert tables == 0


def test_redis_url_is_an_empty_database(redis_url: str) -> None:
    with Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", "behind")


def test_redis_url_is_empty_again_for_the_next_test(redis_url: str) -> None:
    with Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", "behind")


def test_mysql_url_is_an_empty_database(mysql_url: str) -> None:
    engine = create_engine(mysql_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(20))"))
        connection.execute(text("INSERT INTO t VALUES (1, 'żółw')"))
        word = connection.scalar(text("SELECT word FROM t"))
    engine.dispose()
    assert word == "żółw"


def _produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value=value, key=b"one")
    assert producer.flush(30) == 0


def _consume(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        return [message.value() for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


def test_kafka_gives_back_what_it_was_given(kafka_bootstrap: str, kafka_topic: str) -> None:
    _produce(kafka_bootstrap, kafka_topic, [b"a", b"b"])
    assert _consume(kafka_bootstrap, kafka_topic, 2) == [b"a", b"b"]


def test_a_killed_kafka_comes_back_with_what_it_acknowledged(own_kafka: KafkaBroker) -> None:
    _produce(own_kafka.bootstrap, "events", [b"a"])
    own_kafka.kill()
    own_kafka.start()
    assert _consume(own_kafka.bootstrap, "events", 1) == [b"a"]


def test_the_mock_stands_in_for_kafka(tmp_path: Path) -> None:
    with ExitStack() as stack:
        bootstrap = KafkaMock().start(tmp_path, stack).address
        _produce(bootstrap, "events", [b"a"])
        assert _consume(bootstrap, "events", 1) == [b"a"]
