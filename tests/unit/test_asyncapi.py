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
