"""What a real broker refuses: each refusal is an outcome of its own, with words of its own.

The broker creates no topics, asks for credentials on one of its two listeners, and holds clients to ACLs there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it does not say that these are for others
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from boxengine.adapters.kafka.client import load_client
from boxengine.adapters.kafka.consumer import KafkaSource
from boxengine.adapters.kafka.consumer_config import consumer_config
from boxengine.adapters.kafka.pool import ProducerPool
from boxengine.adapters.kafka.transport import KafkaTransport
from boxengine.domain.outcome import Failure
from boxengine.embedded.process import free_port
from boxengine.errors import SourceUnavailable, Unavailable
from tests.eventually import eventually
from tests.integration.kafka.inbox import produce
from tests.servers.kafka import KafkaBroker, jar_folder, prepare
from tests.servers.offer import How, Offer
from tests.servers.promised import promised_servers, require
from tests.unit.transports.items import make_item
from tests.unit.transports.kafka_reader import read_all

Make = Callable[..., KafkaTransport]
TRANSACTIONAL = pytest.mark.parametrize(
    "options", [{}, {"transactional": True, "transactional_id": "refused"}], ids=["plain", "tx"]
)
SMALL = "10000"


class GuardedKafka:
    """A broker that creates no topics, with a listener for anybody (a super user) and one for those with a password."""

    def __init__(self, broker: KafkaBroker, secured: str) -> None:
        self.broker = broker
        self.secured = secured
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        topics = [
            NewTopic(name, num_partitions=1, replication_factor=1, config=config)
            for name, config in (
                ("open", {}),
                ("small", {"max.message.bytes": SMALL}),
                ("closed", {}),
                ("readable", {}),
            )
        ]
        for made in self.admin.create_topics(topics).values():
            made.result(timeout=30)
        self.allow(ResourceType.TOPIC, "open")
        self.allow(ResourceType.TOPIC, "readable", AclOperation.READ, AclOperation.DESCRIBE)

    def allow(self, kind: Any, name: str, *operations: Any) -> None:
        """Lets the user `shop` do this there, or else write; what nobody is named for is forbidden to all."""
        bindings = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, "User:shop", "*", operation, AclPermissionType.ALLOW)
            for operation in operations or (AclOperation.WRITE, AclOperation.DESCRIBE)
        ]
        for made in self.admin.create_acls(bindings).values():
            made.result(timeout=30)

    def create(self, topic: str) -> None:
        (made,) = self.admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)]).values()
        made.result(timeout=30)

    def credentials(self, password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "shop",
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    missing = prepare(os.environ)
    if missing:
        require(Offer("kafka", How.ABSENT, missing), promised_servers(os.environ))
    secured = f"127.0.0.1:{free_port()}"
    plain, sasl = "PLAINTEXT://127.0.0.1:{port}", f"SASL_PLAINTEXT://{secured}"
    folder: Path = tmp_path_factory.mktemp("guarded")
    controller = f"127.0.0.1:{free_port()}"
    settings = {
        "auto.create.topics.enable": "false",
        "listeners": f"{plain},{sasl},CONTROLLER://{controller}",
        "controller.quorum.voters": f"1@{controller}",
        "advertised.listeners": f"{plain},{sasl}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required user_shop=right;"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KafkaBroker(folder / "broker", jars=jar_folder(os.environ), settings=settings) as broker:
        yield GuardedKafka(broker, secured)


@pytest.fixture
def make(guarded: GuardedKafka) -> Iterator[Make]:
    made: list[KafkaTransport] = []

    def make(topic: str, **arguments: Any) -> KafkaTransport:
        made.append(KafkaTransport(**{"topic": topic, "bootstrap_servers": guarded.broker.bootstrap} | arguments))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


@TRANSACTIONAL
def test_an_unknown_topic_fails_its_own_items_and_says_so(
    make: Make, guarded: GuardedKafka, options: dict[str, Any]
) -> None:
    transport = make("{options.topic}", config={"topic.metadata.propagation.max.ms": 500}, **options)
    items = [make_item(n, options={"topic": "nowhere" if n == 2 else "open"}) for n in (1, 2, 3)]
    before = len(read_all(guarded.broker.bootstrap, "open"))
    first, second, third = transport.call_batch(items)
    assert first is third is None
    assert isinstance(second, Failure)
    assert "unknown topic, and the broker does not create it" in second.reason
    assert len(read_all(guarded.broker.bootstrap, "open")) == before + 2


@TRANSACTIONAL
def test_items_of_a_topic_that_does_not_exist_yet_wait_for_it(
    make: Make, guarded: GuardedKafka, options: dict[str, Any]
) -> None:
    topic = f"later-{len(options)}"
    transport = make(topic, config={"topic.metadata.propagation.max.ms": 500}, **options)
    items = [make_item(n) for n in (1, 2, 3)]
    results = transport.call_batch(items)
    assert all(isinstance(result, Unavailable) for result in results)
    assert all(f"topic {topic}: unknown topic, and the broker does not create it" in str(result) for result in results)
    guarded.create(topic)
    eventually(lambda: transport.call_batch(items) == [None] * 3)


@TRANSACTIONAL
def test_a_message_over_the_topics_limit_fails_alone_and_says_so(make: Make, options: dict[str, Any]) -> None:
    transport = make("small", config={"compression.type": "none", "linger.ms": 20}, **options)
    results = transport.call_batch([make_item(n, payload=b"x" * (20_000 if n == 2 else 10)) for n in (1, 2, 3)])
    assert results[0] is results[2] is None
    assert isinstance(results[1], Failure)
    assert "message too large: see message.max.bytes of the producer and max.message.bytes" in results[1].reason


@TRANSACTIONAL
def test_a_timestamp_that_the_broker_refuses_fails_its_own_item_and_says_so(
    make: Make, options: dict[str, Any]
) -> None:
    transport = make("open", config={"linger.ms": 20}, **options)
    far = {"timestamp": "2999-12-31T00:00:00Z"}  # by default a broker takes one hour ahead
    results = transport.call_batch([make_item(n, options=far if n == 2 else None) for n in (1, 2, 3)])
    assert results[0] is results[2] is None
    assert isinstance(results[1], Failure)
    assert (
        "the broker refuses the timestamp: see options.timestamp and message.timestamp.before.max.ms"
        in results[1].reason
    )


@pytest.mark.parametrize("told", [True, False], ids=["limit-known", "limit-unknown"])
def test_of_six_boxes_that_share_a_producer_one_oversized_message_fails_and_no_other(
    guarded: GuardedKafka, told: bool
) -> None:
    client = load_client() if told else replace(load_client(), admin=None)
    pool = ProducerPool(client=lambda: client)
    config = {"compression.type": "none", "linger.ms": 100}
    boxes = [
        KafkaTransport(topic="small", bootstrap_servers=guarded.broker.bootstrap, config=config, producers=pool)
        for _ in range(6)
    ]
    together = Barrier(6)

    def send(number: int) -> list[Any]:
        sizes = [20_000 if (number, place) == (0, 3) else 10 for place in range(6)]
        items = [make_item(100 * number + place, payload=b"x" * size) for place, size in enumerate(sizes, start=1)]
        together.wait(20)
        return list(boxes[number].call_batch(items))

    try:
        with ThreadPoolExecutor(6) as threads:
            results = list(threads.map(send, range(6)))
    finally:
        for box in boxes:
            box.close()
    failed = [(box, place) for box, row in enumerate(results) for place, result in enumerate(row) if result is not None]
    assert failed == [(0, 3)]


@TRANSACTIONAL
@pytest.mark.parametrize("topic", ["closed", "readable"])
def test_a_topic_that_one_may_not_write_to_fails_its_own_items_and_names_the_acls(
    make: Make, guarded: GuardedKafka, options: dict[str, Any], topic: str
) -> None:
    if options:
        guarded.allow(ResourceType.TRANSACTIONAL_ID, "refused-0-0")
    transport = make(
        "{options.topic}", bootstrap_servers=guarded.secured, config=guarded.credentials("right"), **options
    )
    items = [make_item(n, options={"topic": topic if n == 2 else "open"}) for n in (1, 2, 3)]
    first, second, third = transport.call_batch(items)
    assert first is third is None
    assert isinstance(second, Failure)
    assert f"topic {topic}: not authorised: see the principal's ACLs for this topic" in second.reason


def test_a_transactional_id_that_one_may_not_use_leaves_the_items_pending_and_says_so(
    make: Make, guarded: GuardedKafka
) -> None:
    transport = make(
        "open",
        bootstrap_servers=guarded.secured,
        config=guarded.credentials("right"),
        transactional=True,
        transactional_id="somebody-elses",
    )
    (result,) = transport.call_batch([make_item()])
    assert isinstance(result, Unavailable)
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in str(result)


@TRANSACTIONAL
def test_a_wrong_password_leaves_the_items_pending_and_says_so(
    make: Make, guarded: GuardedKafka, options: dict[str, Any]
) -> None:
    transport = make(
        "open",
        bootstrap_servers=guarded.secured,
        config=guarded.credentials("wrong"),
        delivery_timeout=3.0,
        **options,
    )
    first, second = transport.call_batch([make_item(1), make_item(2)])
    assert isinstance(first, Unavailable)
    assert "authentication failed: see the credentials in config" in str(first)
    assert second is first


def test_a_local_queue_that_stays_full_leaves_the_items_pending_and_says_so(make: Make, guarded: GuardedKafka) -> None:
    transport = make(
        "open", delivery_timeout=2.0, config={"queue.buffering.max.messages": 3, "socket.timeout.ms": 1000}
    )
    assert transport(make_item(1), b"first") is None
    guarded.broker.send_signal(signal.SIGSTOP)
    try:
        results = transport.call_batch([make_item(number) for number in range(2, 8)])
    finally:
        guarded.broker.send_signal(signal.SIGCONT)
    assert all(isinstance(result, Unavailable) for result in results)
    assert "local queue stayed full: see queue.buffering.max.messages" in str(results[-1])
    assert "not acknowledged within 2 s" in str(results[0])
    eventually(lambda: transport(make_item(9), b"last") is None)


class Reader:
    """The user `shop`, as a consumer of one topic."""

    def __init__(self, guarded: GuardedKafka, topic: str) -> None:
        self.told: list[tuple[str, str | None]] = []
        self.source = KafkaSource(
            topics=[topic],
            config=consumer_config(
                bootstrap_servers=guarded.secured,
                group=f"readers-of-{topic}",
                config={**guarded.credentials("right"), "topic.metadata.refresh.interval.ms": 500},
                slot="0.0",
            ),
            absent=lambda *told: self.told.append(told),
        )

    def turn(self) -> str:
        """The value of the message that came, or what is wrong; empty: nothing came, and nothing is."""
        try:
            return b"".join(each.value or b"" for each in self.source.receive(1, wait=timedelta(seconds=0.1))).decode()
        except SourceUnavailable as error:
            return str(error)

    def was_told(self, reason: str | None) -> bool:
        """Takes a turn. Whether the last that was told of the topic is this."""
        self.turn()
        return bool(self.told) and self.told[-1][1] == reason


@pytest.fixture
def reader(guarded: GuardedKafka, request: pytest.FixtureRequest) -> Iterator[Reader]:
    guarded.create(request.param)
    produce(guarded.broker.bootstrap, request.param, [{"value": "x"}])
    made = Reader(guarded, request.param)
    yield made
    made.source.close()


@pytest.mark.parametrize("reader", ["of-a-closed-group"], indirect=True)
def test_a_consumer_that_may_not_join_its_group_says_so_until_it_may(reader: Reader, guarded: GuardedKafka) -> None:
    guarded.allow(ResourceType.TOPIC, "of-a-closed-group", AclOperation.READ)
    eventually(lambda: "GROUP_AUTHORIZATION_FAILED" in reader.turn())
    assert all("GROUP_AUTHORIZATION_FAILED" in reader.turn() for _ in range(20)), "librdkafka said so once"
    guarded.allow(ResourceType.GROUP, "readers-of-of-a-closed-group", AclOperation.READ)
    eventually(lambda: reader.turn() == "x")
    assert reader.turn() == ""


@pytest.mark.parametrize(
    ("reader", "allowed"),
    [("secret", ()), ("described", (AclOperation.DESCRIBE,))],
    indirect=["reader"],
    ids=["nothing", "describe"],
)
def test_a_topic_that_a_consumer_may_not_read_is_told_of_until_it_may(
    reader: Reader, guarded: GuardedKafka, allowed: tuple[Any, ...]
) -> None:
    topic = "described" if allowed else "secret"
    guarded.allow(ResourceType.GROUP, f"readers-of-{topic}", AclOperation.READ)
    if allowed:
        guarded.allow(ResourceType.TOPIC, topic, *allowed)
    forbidden = f"topic {topic} may not be read: see the principal's ACLs for this topic"
    eventually(lambda: reader.was_told(forbidden))
    eventually(lambda: reader.turn() == "")
    guarded.allow(ResourceType.TOPIC, topic, AclOperation.READ)
    eventually(lambda: reader.turn() == "x")
    eventually(lambda: reader.was_told(None))
