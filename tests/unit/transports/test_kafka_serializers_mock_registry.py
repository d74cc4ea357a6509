"""Serializers of the kafka transport, Confluent's among them. MOCKS: librdkafka's cluster, and a schema registry that
speaks the real one's protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from boxengine.adapters.kafka.transport import KafkaTransport
from boxengine.domain.outcome import Failure
from boxengine.errors import Unavailable
from tests.unit.transports.items import make_item
from tests.unit.transports.kafka_reader import headers_of, read_all
from tests.unit.transports.mock_schema_registry import MockSchemaRegistry, mock_schema_registry

Make = Callable[..., KafkaTransport]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}]})
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
    }
)
ORDER = {"number": 7}


@pytest.fixture
def registry() -> Iterator[MockSchemaRegistry]:
    with mock_schema_registry() as registry:
        yield registry


@pytest.fixture
def client(registry: MockSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.fixture
def make(mock_kafka: str) -> Iterator[Make]:
    made: list[KafkaTransport] = []

    def make(**arguments: Any) -> KafkaTransport:
        made.append(KafkaTransport(topic="orders", bootstrap_servers=mock_kafka, **arguments))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def serializers(client: SchemaRegistryClient, kind: str, **config: Any) -> tuple[Any, Any]:
    """Confluent's serializer and deserializer of that kind."""
    if kind == "avro":
        return AvroSerializer(client, AVRO, conf=config), AvroDeserializer(client, AVRO)
    return JSONSerializer(JSON_SCHEMA, client, conf=config), JSONDeserializer(
        JSON_SCHEMA, schema_registry_client=client
    )


@pytest.mark.parametrize("kind", ["avro", "json_schema"])
def test_confluents_serializers_fit_as_they_are_and_register_their_schema(
    make: Make, mock_kafka: str, registry: MockSchemaRegistry, client: SchemaRegistryClient, kind: str
) -> None:
    serialize, deserialize = serializers(client, kind)
    assert make(serializer=serialize).call_batch([make_item(payload=ORDER)]) == [None]
    (message,) = read_all(mock_kafka, "orders")
    assert message.value()[:5] == b"\x00\x00\x00\x00\x01"  # the magic byte, and the schema's number
    assert registry.subjects == {"orders-value": [1]}
    assert deserialize(message.value(), SerializationContext("orders", MessageField.VALUE)) == ORDER


@pytest.mark.parametrize("kind", ["avro", "json_schema"])
def test_what_does_not_fit_the_schema_fails_its_own_item(
    make: Make, mock_kafka: str, client: SchemaRegistryClient, kind: str
) -> None:
    serialize, _ = serializers(client, kind)
    items = [make_item(n, payload={"number": "seven" if n == 2 else n}) for n in (1, 2, 3)]
    first, second, third = make(serializer=serialize).call_batch(items)
    assert first is third is None
    assert isinstance(second, Failure)
    assert "the message could not be built" in second.reason
    assert len(read_all(mock_kafka, "orders")) == 2


def test_a_serializer_may_put_the_schemas_id_into_a_header(
    make: Make, mock_kafka: str, client: SchemaRegistryClient
) -> None:
    serialize, deserialize = serializers(client, "json_schema", **{"schema.id.serializer": header_schema_id_serializer})
    assert make(serializer=serialize).call_batch([make_item(payload=ORDER)]) == [None]
    (message,) = read_all(mock_kafka, "orders")
    assert json.loads(message.value()) == ORDER
    context = SerializationContext("orders", MessageField.VALUE, message.headers())
    assert deserialize(message.value(), context) == ORDER


class OrderSerializer:
    """What a configuration names: made without arguments, called with what the row holds."""

    registry: SchemaRegistryClient

    def __init__(self) -> None:
        self._serialize = AvroSerializer(self.registry, AVRO)

    def __call__(self, payload: bytes, context: Any) -> bytes | None:
        serialized: bytes | None = self._serialize(json.loads(payload), context)
        return serialized


def test_a_class_named_by_its_dotted_path_is_made_once_and_serializes_what_the_row_holds(
    make: Make,
    mock_kafka: str,
    registry: MockSchemaRegistry,
    client: SchemaRegistryClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OrderSerializer, "registry", client, raising=False)
    transport = make(serializer=f"{__name__}.OrderSerializer")
    assert transport.call_batch([make_item(number, payload=b'{"number": 7}') for number in (1, 2)]) == [None, None]
    assert registry.subjects == {"orders-value": [1]}
    assert len(read_all(mock_kafka, "orders")) == 2


def test_headers_of_the_item_travel_beside_what_a_serializer_adds(
    make: Make, mock_kafka: str, client: SchemaRegistryClient
) -> None:
    serialize, _ = serializers(client, "avro")

    def marking(payload: Any, context: Any) -> bytes | None:
        context.headers.append(("schema", "order-v1"))
        serialized: bytes | None = serialize(payload, context)
        return serialized

    item = make_item(payload=ORDER)
    make(serializer=marking).call_batch([item])
    (message,) = read_all(mock_kafka, "orders")
    assert headers_of(message) == {**item.headers, "schema": "order-v1"}


def test_a_registry_that_is_away_may_be_told_as_unavailable_and_nothing_overtakes(make: Make, mock_kafka: str) -> None:
    def away_at_the_second(payload: bytes, context: Any) -> bytes:
        if context.item.id == 2:
            raise Unavailable("the schema registry does not answer")
        return payload

    first, second, third = make(serializer=away_at_the_second).call_batch(
        [make_item(n, event_key="k") for n in (1, 2, 3)]
    )
    assert first is None
    assert isinstance(second, Unavailable)
    assert third is second
    assert len(read_all(mock_kafka, "orders")) == 1
