"""The code of ``docs/transports.md``, run against stand-ins (FAKES) of the clients it uses."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from boxengine.adapters.http.signature import Signer
from boxengine.domain.outcome import Failure
from boxengine.engine.delivering.calls.pipeline import TransportSpec
from boxengine.engine.delivering.calls.transports import Carrier
from boxengine.errors import Unavailable
from tests.unit.transports.items import make_item

PAGE = Path(__file__).parents[3] / "docs" / "transports.md"
LONGEST = 45
"""Lines; "write your own" is to stay short."""


def blocks() -> dict[str, str]:
    """Python code of the page that has a file name in its first line, by that name."""
    return dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL))


def load(name: str) -> SimpleNamespace:
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(blocks()[name], name, "exec"), namespace)
    return SimpleNamespace(**namespace)


def install(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> ModuleType:
    """Makes ``import name`` find a module with these attributes."""
    module = ModuleType(name)
    for attribute, value in attributes.items():
        setattr(module, attribute, value)
    monkeypatch.setitem(sys.modules, name, module)
    parent, _, child = name.rpartition(".")
    if parent:
        monkeypatch.setattr(sys.modules[parent], child, module, raising=False)
    return module


def carried(transport: Any) -> Carrier:
    """As the engine takes it up."""
    return Carrier(TransportSpec(name="own", build=lambda: transport))


def test_all_python_of_the_page_compiles() -> None:
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(found) >= len(blocks())
    for number, code in enumerate(found):
        compile(code, f"block {number}", "exec")


@pytest.mark.parametrize("name", ["shop/rabbitmq.py", "shop/jetstream.py", "shop/sqs.py"])
def test_each_transport_is_short(name: str) -> None:
    assert len(blocks()[name].splitlines()) <= LONGEST


# ── RabbitMQ ─────────────────────────────────────────────────────────────────────────────────────────


class FakePika:
    """The part of pika that the example uses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.published: list[tuple[Any, ...]] = []
        self.connections = 0
        self.error: Exception | None = None
        self.lost: Exception | None = None
        """Why the connection that was kept is closed; None: it is open."""
        self.closed = False
        self.is_open = True
        self.confirming = False
        install(
            monkeypatch,
            "pika",
            BasicProperties=SimpleNamespace,
            URLParameters=lambda url: url,
            BlockingConnection=self.connect,
        )
        amqp_error = type("AMQPError", (Exception,), {})
        self.exceptions = install(
            monkeypatch,
            "pika.exceptions",
            AMQPError=amqp_error,
            UnroutableError=type("UnroutableError", (amqp_error,), {}),
            NackError=type("NackError", (amqp_error,), {}),
            AMQPConnectionError=type("AMQPConnectionError", (amqp_error,), {}),
        )

    def connect(self, _parameters: str) -> FakePika:
        self.connections += 1
        self.lost = None
        return self

    def process_data_events(self) -> None:
        if self.lost is not None:
            raise self.lost

    def channel(self) -> FakePika:
        return self

    def confirm_delivery(self) -> None:
        self.confirming = True

    def basic_publish(self, exchange: str, routing_key: str, body: bytes, properties: Any, *, mandatory: bool) -> None:
        assert self.confirming
        assert mandatory
        if self.error is not None:
            raise self.error
        self.published.append((exchange, routing_key, body, properties.message_id, properties.headers))

    def close(self) -> None:
        self.closed = True


def test_rabbitmq_publishes_with_the_uuid_as_message_id_and_waits_for_the_confirmation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pika = FakePika(monkeypatch)
    carrier = carried(load("shop/rabbitmq.py").RabbitMQ(url="amqp://host", exchange="orders"))
    item = make_item(1)
    assert carrier.single()(item, item.payload) is None
    assert pika.published == [("orders", "order_created", item.payload, item.uuid, item.headers)]
    carrier.close()
    assert pika.closed


def test_rabbitmq_tells_a_refused_message_from_a_broker_that_is_away_and_connects_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pika = FakePika(monkeypatch)
    transport = load("shop/rabbitmq.py").RabbitMQ(url="amqp://host", exchange="orders")
    pika.error = pika.exceptions.UnroutableError("no queue")
    assert isinstance(transport(make_item(), b""), Failure)
    pika.error = pika.exceptions.AMQPConnectionError("gone")
    with pytest.raises(Unavailable, match="gone"):
        transport(make_item(), b"")
    pika.error = None
    assert transport(make_item(), b"") is None
    assert pika.connections == 2


def test_rabbitmq_puts_nothing_off_for_an_idle_connection_that_the_broker_has_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pika = FakePika(monkeypatch)
    transport = load("shop/rabbitmq.py").RabbitMQ(url="amqp://host", exchange="orders")
    assert transport(make_item(1), b"") is None
    pika.lost = pika.exceptions.AMQPConnectionError("no heartbeats")
    assert transport(make_item(2), b"") is None
    assert (pika.connections, len(pika.published)) == (2, 2)


# ── NATS ─────────────────────────────────────────────────────────────────────────────────────────────


class FakeNats:
    """The part of nats-py that the example uses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.published: list[tuple[str, bytes, dict[str, str]]] = []
        self.error: Exception | None = None
        """What becomes of a message."""
        self.away = False
        self.connections = 0
        self.is_closed = False
        self.drained = False
        install(monkeypatch, "nats", connect=self.connect)
        error = type("Error", (Exception,), {})
        self.errors = install(
            monkeypatch, "nats.errors", Error=error, MaxPayloadError=type("MaxPayloadError", (error,), {})
        )
        install(monkeypatch, "nats.js")
        self.js_errors = install(monkeypatch, "nats.js.errors", BadRequestError=type("BadRequestError", (error,), {}))

    async def connect(self, _servers: str) -> FakeNats:
        if self.away:
            raise self.errors.Error("no servers available")
        self.connections += 1
        self.is_closed = False
        return self

    def jetstream(self) -> FakeNats:
        return self

    async def publish(self, subject: str, payload: bytes, *, timeout: float, headers: dict[str, str]) -> object:
        assert timeout
        if self.error is not None:
            raise self.error
        self.published.append((subject, payload, headers))
        return object()

    async def drain(self) -> None:
        self.drained = True


def test_jetstream_publishes_with_the_uuid_as_message_id_over_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    nats = FakeNats(monkeypatch)
    transport = load("shop/jetstream.py").JetStream(servers="nats://host", subject="orders")
    items = [make_item(number) for number in (1, 2, 3)]

    async def send() -> list[Any]:
        return await asyncio.gather(*(transport(item, item.payload) for item in items))

    assert asyncio.run(send()) == [None] * 3
    assert [(payload, headers["Nats-Msg-Id"]) for _, payload, headers in nats.published] == [
        (item.payload, item.uuid) for item in items
    ]
    asyncio.run(transport.aclose())
    assert (nats.connections, nats.drained) == (1, True)


def test_jetstream_tells_a_refused_message_from_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    nats = FakeNats(monkeypatch)
    transport = load("shop/jetstream.py").JetStream(servers="nats://host", subject="orders")

    def send() -> Any:
        return asyncio.run(transport(make_item(), b""))

    nats.away = True
    with pytest.raises(Unavailable, match="no servers available"):
        send()
    nats.away = False
    for refusal in (nats.errors.MaxPayloadError("too large"), nats.js_errors.BadRequestError("too large")):
        nats.error = refusal
        assert send() == Failure(f"NATS refused the message: {refusal!r}")
    for outage in (nats.errors.Error("no response from stream"), TimeoutError("no acknowledgement")):
        nats.error = outage
        with pytest.raises(Unavailable, match=str(outage)):
            send()
    nats.error, nats.is_closed = None, True
    assert send() is None
    assert nats.connections == 2


# ── SQS ──────────────────────────────────────────────────────────────────────────────────────────────


class FakeSqs:
    """The part of boto3 that the example uses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[dict[str, Any]] = []
        self.calls = 0
        self.away_at = 0
        self.refused: set[str] = set()
        self.throttled: set[str] = set()
        install(monkeypatch, "boto3", client=lambda _service: self)
        install(monkeypatch, "botocore")
        self.gone = type("ConnectionError", (Exception,), {})
        silent = type("HTTPClientError", (Exception,), {})
        install(monkeypatch, "botocore.exceptions", ConnectionError=self.gone, HTTPClientError=silent)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - boto3's names
        self.calls += 1
        if self.calls == self.away_at:
            raise self.gone("no endpoint")
        assert len(Entries) <= 10
        failed = [entry for entry in Entries if entry["MessageGroupId"] in self.refused | self.throttled]
        self.sent += [entry for entry in Entries if entry not in failed]
        said = [(entry["Id"], entry["MessageGroupId"] in self.refused) for entry in failed]
        return {"Failed": [{"Id": place, "Code": "Sorry", "SenderFault": ours} for place, ours in said]}


def test_sqs_sends_ten_at_a_time_and_each_item_has_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    sqs = FakeSqs(monkeypatch)
    sqs.refused = {"key-12"}
    transport = load("shop/sqs.py").Sqs(queue_url="https://sqs/orders.fifo")
    assert carried(transport).has_batch
    items = [make_item(number) for number in range(1, 26)]
    results = transport.call_batch(items)
    assert [index for index, result in enumerate(results) if result is not True] == [11]
    assert results[11] == Failure("SQS: Sorry: None")
    assert [entry["MessageDeduplicationId"] for entry in sqs.sent] == [item.uuid for item in items if item.id != 12]


def test_sqs_that_throttles_gets_nothing_more_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sqs = FakeSqs(monkeypatch)
    sqs.throttled = {"key-14"}
    results = load("shop/sqs.py").Sqs(queue_url="q").call_batch([make_item(number) for number in range(1, 26)])
    assert results[:10] == [True] * 10
    assert {type(result) for result in results[10:]} == {Unavailable}
    assert (len(results), sqs.calls) == (25, 2)


def test_sqs_that_goes_away_in_mid_batch_leaves_the_rest_unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    sqs = FakeSqs(monkeypatch)
    sqs.away_at = 2
    results = load("shop/sqs.py").Sqs(queue_url="q").call_batch([make_item(number) for number in range(1, 26)])
    assert results[:10] == [True] * 10
    assert all(isinstance(result, Unavailable) for result in results[10:])
    assert len(results) == 25
    assert len(sqs.sent) == 10


# ── the others ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("secret", ["secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MDEyMzQ1Njc4OQ"])
def test_the_documented_receiver_knows_a_genuine_request(secret: str) -> None:
    genuine = load("receiver.py").genuine
    signed = Signer([secret]).headers(message_id="1", timestamp=int(time.time()), body=b"{}")
    assert genuine(secret, signed, b"{}")
    assert not genuine(secret, signed, b"{ }")
    assert not genuine("other", signed, b"{}")
    old = Signer([secret]).headers(message_id="1", timestamp=int(time.time()) - 301, body=b"{}")
    assert not genuine(secret, old, b"{}")
    for forged in ({}, {"webhook-signature": "v1,ü"}, {"webhook-timestamp": "soon"}):
        assert not genuine(secret, forged, b"{}"), "and says so without an error"


def test_the_documented_serializer_is_made_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    confluent = "confluent_kafka.schema_registry"
    monkeypatch.setattr(f"{confluent}.SchemaRegistryClient", lambda config: config["url"])
    monkeypatch.setattr(
        f"{confluent}.avro.AvroSerializer",
        lambda registry, _schema: lambda payload, context: f"{registry} {payload} {context}".encode(),
    )
    monkeypatch.setenv("SCHEMA_REGISTRY", "http://registry")
    assert load("shop/schemas.py").OrderSerializer()(b'{"number": 7}', "context") == (
        b"http://registry {'number': 7} context"
    )
