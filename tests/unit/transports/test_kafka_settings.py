import sys
from datetime import timedelta
from typing import Any

import pytest

from boxengine.adapters.kafka.client import load_client
from boxengine.adapters.kafka.config import producer_config, without_consumer_settings
from boxengine.adapters.kafka.consumer_client import load_consumer_client
from boxengine.adapters.kafka.consumer_config import consumer_config
from boxengine.adapters.kafka.pool import ProducerPool
from boxengine.adapters.kafka.transport import KafkaTransport
from boxengine.errors import BoxError

MINUTE = timedelta(minutes=1)


def test_defaults_wait_for_all_replicas_without_doubles() -> None:
    config = producer_config(bootstrap_servers=["a:1", "b:2"], delivery_timeout=MINUTE)
    assert config["bootstrap.servers"] == "a:1,b:2"
    assert config["enable.idempotence"] is True
    assert config["acks"] == "all"
    assert config["compression.type"] == "lz4"
    assert config["delivery.timeout.ms"] == 60_000


def test_the_users_own_settings_have_the_last_word() -> None:
    own = {"linger.ms": 50, "message.timeout.ms": 1000, "bootstrap.servers": "c:3"}
    config = producer_config(bootstrap_servers="a:1", config=own, delivery_timeout=MINUTE)
    assert own.items() <= config.items()
    assert "delivery.timeout.ms" not in config


def test_the_references_names_are_understood() -> None:
    config = producer_config(bootstrap_servers="a:1", delivery_timeout=MINUTE, required_acks=-1, max_retries=5)
    assert (config["acks"], config["message.send.max.retries"], config["enable.idempotence"]) == (-1, 5, True)
    assert (
        producer_config(bootstrap_servers="a:1", delivery_timeout=MINUTE, max_retries=0)["enable.idempotence"] is False
    )
    assert producer_config(bootstrap_servers="a:1", delivery_timeout=MINUTE, required_acks=1)["acks"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"bootstrap_servers": None}, "bootstrap_servers is missing"),
        ({"required_acks": 0}, "nothing could count as delivered"),
        ({"config": {"acks": 0}}, "nothing could count as delivered"),
        ({"config": {"no.such.key": 1}}, "librdkafka refuses the configuration.*no.such.key"),
        ({"config": {"linger.ms": "soon"}}, "librdkafka refuses the configuration"),
        ({"topic": ""}, "found nothing"),
        ({"topic": "orders/{event_name}"}, "found '/' in it"),
        ({"topic": "orders.{event}"}, "no item has 'event'; there are box_name"),
        ({"topic": "orders.{event_name"}, "expected '}'"),
        ({"key": "{payload}"}, "no item has 'payload'"),
        ({"format": "avro"}, "expected plain, cloudevents or cloudevents_structured"),
        ({"serializer": "no.such.thing"}, "expected bytes, json or a dotted path"),
        ({"transactional": True}, "transactional needs transactional_id"),
        ({"config": {"delivery.report.only.error": True}}, "nothing would say that a message was delivered"),
        ({"config": {"delivery.report.only.error": "true"}}, "nothing would say that a message was delivered"),
        ({"config": {"delivery.timeout.ms": 0}}, "delivery.timeout.ms must be more than 0"),
        ({"config": {"message.timeout.ms": "0"}}, "message.timeout.ms must be more than 0"),
        ({"config": {"delivery.timeout.ms": "soon"}}, "expected milliseconds"),
        ({"delivery_timeout": 0}, "delivery.timeout.ms must be more than 0"),
    ],
)
def test_what_is_wrong_is_said_when_the_transport_is_built(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(BoxError, match=words):
        KafkaTransport(**{"topic": "orders", "bootstrap_servers": "127.0.0.1:1"} | arguments)


def test_a_transactional_id_belongs_to_one_configuration_of_a_cluster() -> None:
    pool = ProducerPool()

    def make(**arguments: Any) -> KafkaTransport:
        settings: dict[str, Any] = {
            "topic": "orders",
            "bootstrap_servers": "127.0.0.1:1",
            "transactional_id": "orders-0",
        }
        return KafkaTransport(**settings | arguments, transactional=True, producers=pool)

    make()
    make(topic="invoices")
    make(bootstrap_servers="127.0.0.2:1", delivery_timeout=30)
    make(transactional_id="invoices-0", delivery_timeout=30)
    with pytest.raises(BoxError, match=r"transactional_id 'orders-0' is also used with other settings"):
        make(delivery_timeout=30)


def test_a_producer_for_dead_letters_takes_the_connection_of_its_consumer_and_nothing_else() -> None:
    config = {"sasl.username": "u", "client.id": "c", "group.protocol": "consumer", "session.timeout.ms": 6000}
    assert without_consumer_settings(config) == {"sasl.username": "u", "client.id": "c"}


def test_of_what_a_consumer_sets_by_itself_a_producer_for_dead_letters_is_given_nothing_that_librdkafka_ignores(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = consumer_config(bootstrap_servers="127.0.0.1:1", group="g", slot="0.0")
    config = without_consumer_settings(
        {**consumer, "group.instance.id": "i", "max.poll.interval.ms": 1, "fetch.min.bytes": 1}
    )
    load_client().make_producer(config).poll(0)
    assert "is a consumer property" not in caplog.text


def test_where_the_broker_assigns_partitions_no_strategy_of_ours_is_in_the_way() -> None:
    config = consumer_config(bootstrap_servers="a:1", group="g", config={"group.protocol": "consumer"}, slot="0.0")
    assert "partition.assignment.strategy" not in config
    load_consumer_client().consumer(config).close()


def test_without_confluent_kafka_the_error_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(BoxError, match=r'pip install "boxengine\[kafka\]"'):
        KafkaTransport(topic="orders", bootstrap_servers="127.0.0.1:1")
