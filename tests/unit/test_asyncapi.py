"""The AsyncAPI document of a configuration, and what counts as a breaking change between two."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy.orm import DeclarativeBase

import boxengine
from boxengine import InboxItem, OutboxItem, Payload
from boxengine.app.asyncapi import breaking_changes, document

CONFIGURATION = f"""
database: {{url: "postgresql+psycopg://a@localhost/b"}}
kafka: {{bootstrap_servers: ["k1:9092", "k2:9092"]}}
outbox_items:
  order_outbox_item:
    model: {__name__}.OrderOutboxItem
    transports:
      - {{class: kafka, topic: "orders.{{options.tenant}}"}}
      - {{class: http, url: "https://shop.example/hooks?token=secret", event_name: order_placed}}
      - {{class: log}}
inbox_items:
  payment_inbox_item:
    model: {__name__}.PaymentInboxItem
    source: {{kafka: {{topics: [payments], group: shop}}}}
    transports: {{log: {{}}}}
"""
SEND = "send.order_outbox_item.kafka: message order_outbox_item: "
RECEIVE = "receive.payment_inbox_item.payments: message payment_inbox_item: "


class Base(DeclarativeBase):
    pass


class Line(BaseModel):
    count: int
    within: list[Line] = []


class Order(BaseModel):
    id: int
    lines: list[Line]
    note: str | None = None


class OrderOutboxItem(OutboxItem[Order], Base):
    __tablename__ = "asyncapi_orders"
    __payload__ = Payload.pydantic(Order)


class Payment(BaseModel):
    account: str
    note: str | None = None


class PaymentInboxItem(InboxItem[Payment], Base):
    __tablename__ = "asyncapi_payments"
    __payload__ = Payload.pydantic(Payment)


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "outbox.yml").write_text(CONFIGURATION)
    return document(boxengine.load(tmp_path / "outbox.yml").resolved, title="shop", version="2.0.0")


def references(value: Any) -> Iterator[str]:
    match value:
        case {"$ref": str(reference)}:
            yield reference
        case dict():
            for each in value.values():
                yield from references(each)
        case list():
            for each in value:
                yield from references(each)


def found(document: Any, reference: str) -> Any:
    for part in reference.removeprefix("#/").split("/"):
        document = document[part]
    return document


def test_the_document_has_what_the_specification_requires(made: dict[str, Any]) -> None:
    assert made["asyncapi"] == "3.0.0"
    assert made["info"] == {"title": "shop", "version": "2.0.0"}
    assert all({"host", "protocol"} <= server.keys() for server in made["servers"].values())
    for operation in made["operations"].values():
        assert operation["action"] in {"send", "receive"}
        channel = operation["channel"]["$ref"]
        assert all(message["$ref"].startswith(f"{channel}/messages/") for message in operation["messages"])
    for kind in ("servers", "channels", "operations", "components/messages", "components/schemas"):
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+", key) for key in found(made, kind))
    led = [found(made, reference) for reference in references(made)]
    assert len(led) > 10


def test_topics_webhooks_and_sources_are_channels_and_transports_without_an_address_are_none(
    made: dict[str, Any],
) -> None:
    channels = {key: channel["address"] for key, channel in made["channels"].items()}
    assert channels == {
        "order_outbox_item.kafka": "orders.{options_tenant}",
        "order_outbox_item.http": "/hooks",
        "payment_inbox_item.payments": "payments",
    }
    assert made["channels"]["order_outbox_item.kafka"]["parameters"].keys() == {"options_tenant"}
    assert [each["host"] for each in made["servers"].values()] == ["k1:9092,k2:9092", "shop.example"]
    assert "secret" not in str(made)


def test_payloads_are_those_of_the_codec_and_a_transport_for_one_event_has_its_own_message(
    made: dict[str, Any],
) -> None:
    messages = made["components"]["messages"]
    assert messages.keys() == {"order_outbox_item", "order_outbox_item.order_placed", "payment_inbox_item"}
    assert messages["order_outbox_item"]["contentType"] == "application/json"
    assert messages["order_outbox_item"]["payload"]["required"] == ["id", "lines"]
    assert "order_outbox_item.Line" in made["components"]["schemas"]
    assert messages["order_outbox_item.order_placed"]["headers"]["properties"]["Event-Name"] == {
        "const": "order_placed"
    }


def test_a_document_is_compatible_with_itself(made: dict[str, Any]) -> None:
    assert breaking_changes(made, copy.deepcopy(made)) == []


def order(document: Any) -> Any:
    return document["components"]["messages"]["order_outbox_item"]["payload"]


def line(document: Any) -> Any:
    return document["components"]["schemas"]["order_outbox_item.Line"]


def payment(document: Any) -> Any:
    return document["components"]["messages"]["payment_inbox_item"]["payload"]


CHANGES: dict[str, tuple[Callable[[Any], object], list[str]]] = {
    "a field that is sent goes": (lambda new: order(new)["properties"].pop("id"), [f"{SEND}payload.id: is gone"]),
    "a field that is sent may be missing": (
        lambda new: order(new)["required"].remove("id"),
        [f"{SEND}payload.id: may now be missing"],
    ),
    "a field that is sent may be something else": (
        lambda new: order(new)["properties"]["id"].update(type=["integer", "string"]),
        [f"{SEND}payload.id: may now be string"],
    ),
    "deep within, behind a reference that leads to itself": (
        lambda new: line(new)["properties"]["count"].update(type="number"),
        [f"{SEND}payload.lines[].count: may now be number"],
    ),
    "a field that is sent is narrower": (
        lambda new: order(new)["properties"].update(note={"type": "null"}),
        [],
    ),
    "a field more is sent": (lambda new: order(new)["properties"].update(more={"type": "string"}), []),
    "a field more is asked for": (
        lambda new: payment(new)["required"].append("note"),
        [f"{RECEIVE}payload.note: is now required"],
    ),
    "what is taken is narrower": (
        lambda new: payment(new)["properties"].update(note={"type": "string"}),
        [f"{RECEIVE}payload.note: may no longer be null"],
    ),
    "what is taken is wider": (
        lambda new: payment(new)["properties"]["account"].update(type=["string", "integer"]),
        [],
    ),
    "a field that is not asked for any more": (lambda new: payment(new).update(required=[]), []),
    "other values": (
        lambda new: payment(new)["properties"]["account"].update(enum=["a", "b"]),
        [f"{RECEIVE}payload.account: may no longer be anything but a, b"],
    ),
    "another topic": (
        lambda new: new["channels"]["payment_inbox_item.payments"].update(address="paid"),
        ["receive.payment_inbox_item.payments: the address is 'paid', was 'payments'"],
    ),
    "another format": (
        lambda new: new["components"]["messages"]["payment_inbox_item"].update(contentType="application/protobuf"),
        [f"{RECEIVE}contentType is application/protobuf, was application/json"],
    ),
    "a channel goes": (
        lambda new: new["operations"].pop("send.order_outbox_item.http"),
        ["send.order_outbox_item.http: is gone"],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_breaks_those_who_rely_on_the_old_document_is_told(name: str, made: dict[str, Any]) -> None:
    change, expected = CHANGES[name]
    new = copy.deepcopy(made)
    change(new)
    assert [
        each for each in breaking_changes(made, new) if not each.startswith("send.order_outbox_item.http: message")
    ] == expected


def test_values_of_an_enumeration_break_receivers_when_added_and_senders_when_taken_away(made: dict[str, Any]) -> None:
    few, more = copy.deepcopy(made), copy.deepcopy(made)
    for document_, values in ((few, ["a"]), (more, ["a", "b"])):
        payment(document_)["properties"]["account"]["enum"] = values
        order(document_)["properties"]["note"] = {"enum": values}
    kafka = "send.order_outbox_item.kafka"
    assert [each for each in breaking_changes(few, more) if kafka in each] == [f"{SEND}payload.note: may now be b"]
    assert [each for each in breaking_changes(more, few) if "receive" in each] == [
        f"{RECEIVE}payload.account: may no longer be b"
    ]


def told(made: Any, before: Callable[[Any], object], after: Callable[[Any], object], *, action: str) -> list[str]:
    """What breaks between two documents that differ from the one that was made."""
    old, new = copy.deepcopy(made), copy.deepcopy(made)
    before(old)
    after(new)
    prefix = {"send": SEND, "receive": RECEIVE}[action]
    return [each.removeprefix(prefix) for each in breaking_changes(old, new) if each.startswith(prefix)]


def sent_note(schema: Any) -> Callable[[Any], object]:
    return lambda document: order(document)["properties"].update(note=schema)


def received_note(schema: Any) -> Callable[[Any], object]:
    return lambda document: payment(document)["properties"].update(note=schema)


LISTED: Any = {"enum": ["a", "b"], "type": "string"}
OPEN: Any = {"anyOf": [LISTED, {"type": "null"}, {"type": "string"}]}
TEXT: Any = {"type": "string"}
NUMBER: Any = {"type": "integer"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (LISTED, TEXT, ["may now be something else than a, b"]),
        (TEXT, LISTED, []),
        ({"const": "a"}, {"enum": ["a", "b"]}, ["may now be b"]),
        (OPEN, {"anyOf": [TEXT, {"type": "null"}]}, []),
        ({"anyOf": [LISTED, NUMBER]}, {"anyOf": [TEXT, NUMBER]}, ["may now be something else than a, b"]),
        (TEXT, {"title": "Note"}, ["may now be anything"]),
        ({"title": "Note"}, TEXT, []),
    ],
)
def test_what_is_sent_may_not_become_wider(made: Any, before: Any, after: Any, expected: list[str]) -> None:
    found = told(made, sent_note(before), sent_note(after), action="send")
    assert found == [f"payload.note: {each}" for each in expected]


def test_the_values_of_a_mapping_are_compared(made: Any) -> None:
    numbers, texts = ({"type": "object", "additionalProperties": of} for of in (NUMBER, TEXT))
    found = told(made, sent_note(numbers), sent_note(texts), action="send")
    assert found == ["payload.note{}: may now be string"]


def test_what_is_received_may_not_become_narrower_than_anything(made: Any) -> None:
    anything, text = received_note({"title": "Note"}), received_note(TEXT)
    assert told(made, anything, text, action="receive") == ["payload.note: may no longer be anything but string"]
    assert told(made, text, anything, action="receive") == []


def test_a_payload_whose_schema_is_not_known_any_more_may_be_anything(made: Any) -> None:
    def without(document: Any) -> None:
        for message in document["components"]["messages"].values():
            message.pop("payload", None)

    assert told(made, lambda _: None, without, action="send") == ["payload: may now be anything"]
    assert told(made, without, lambda _: None, action="receive") == ["payload: may no longer be anything but object"]


def test_a_type_that_may_contain_itself_is_compared(made: Any) -> None:
    within: Any = {"anyOf": [{"$ref": "#/components/schemas/order_outbox_item.Line"}, {"type": "null"}]}

    def recursive(document: Any) -> None:
        line(document)["properties"]["within"] = within

    def changed(document: Any) -> None:
        recursive(document)
        line(document)["properties"]["count"] = TEXT

    assert told(made, recursive, recursive, action="send") == []
    assert told(made, recursive, changed, action="send") == ["payload.lines[].count: may now be string"]


def test_each_of_several_types_is_compared_with_the_one_of_its_name(made: Any) -> None:
    placed: Any = {"title": "Placed", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    paid: Any = {"title": "Paid", "type": "object", "properties": {"total": {"type": "integer"}}}
    gone, renamed = {**placed, "properties": {}}, {**paid, "title": "Settled"}

    def sent(*kinds: Any) -> Callable[[Any], object]:
        return sent_note({"oneOf": list(kinds)})

    def received(*kinds: Any) -> Callable[[Any], object]:
        return received_note({"oneOf": list(kinds)})

    assert told(made, sent(placed, paid), sent(paid, gone), action="send") == ["payload.note.id: is gone"]
    assert told(made, sent(placed), sent(placed, paid), action="send") == ["payload.note: may now be Paid"]
    assert told(made, sent(placed, paid), sent(paid), action="send") == []
    assert told(made, sent(placed, paid), sent(placed, renamed), action="send") == []
    assert told(made, received(placed, paid), received(paid), action="receive") == [
        "payload.note: may no longer be Placed"
    ]
    assert told(made, received(paid), received(placed, paid), action="receive") == []


def test_braces_of_a_pattern_for_topics_are_no_placeholders(tmp_path: Path) -> None:
    pattern = r"^orders\.v[0-9]{1,3}\.(a|b){2}$"
    source = f"source: {{kafka: {{topics: ['{pattern}'], group: shop}}}}"
    text = CONFIGURATION.replace("source: {kafka: {topics: [payments], group: shop}}", source)
    (tmp_path / "outbox.yml").write_text(text)
    channels = document(boxengine.load(tmp_path / "outbox.yml").resolved, title="shop", version="1")["channels"]
    (received,) = [each for key, each in channels.items() if key.startswith("payment_inbox_item.")]
    assert received["address"] == pattern
    assert "parameters" not in received


def test_each_transport_of_one_class_is_a_channel_of_its_own(tmp_path: Path) -> None:
    transports = """
    transports:
      - {class: kafka, topic: orders, event_name: order_placed}
      - {class: kafka, topic: refunds, event_name: order_refunded}
      - {class: http, url: "https://shop.example/hooks"}
      - {class: http, url: "https://bank.example/hooks"}
      - {class: redis_stream, stream: orders}
inbox_items:"""
    text = re.sub(r"\n    transports:\n.*\ninbox_items:", transports, CONFIGURATION, count=1, flags=re.DOTALL)
    (tmp_path / "outbox.yml").write_text(text)
    made = document(boxengine.load(tmp_path / "outbox.yml").resolved, title="shop", version="1")
    sent = {
        key: (channel["address"], [found(made, each["$ref"])["host"] for each in channel["servers"]])
        for key, channel in made["channels"].items()
        if key.startswith("order_outbox_item.")
    }
    assert sent == {
        "order_outbox_item.kafka.order_placed.orders": ("orders", ["k1:9092,k2:9092"]),
        "order_outbox_item.kafka.order_refunded.refunds": ("refunds", ["k1:9092,k2:9092"]),
        "order_outbox_item.http.-hooks": ("/hooks", ["shop.example"]),
        "order_outbox_item.http.-hooks.2": ("/hooks", ["bank.example"]),
        "order_outbox_item.redis_stream": ("orders", ["127.0.0.1:6379"]),
    }
    without = copy.deepcopy(made)
    del without["channels"]["order_outbox_item.kafka.order_placed.orders"]
    del without["operations"]["send.order_outbox_item.kafka.order_placed.orders"]
    assert breaking_changes(made, without) == ["send.order_outbox_item.kafka.order_placed.orders: is gone"]
