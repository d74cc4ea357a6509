"""CloudEvents in structured mode, by the specification's own examples."""

import json
from typing import Any

import pytest

from boxengine.adapters.cloudevents import CloudEvents
from boxengine.domain.message import ReceivedMessage, brings_a_key, former_identity, item_attributes, remains
from boxengine.errors import InvalidItem
from tests.unit.transports.items import make_item

ENVELOPE = """{{
    "specversion" : "1.0",
    "type" : "com.example.someevent",
    "source" : "/mycontext",
    "id" : "{id}",
    "time" : "2018-04-05T17:31:00Z",
    "comexampleextension1" : "value",
    "comexampleothervalue" : 5,
    {rest}
}}"""
OBJECT = """{
        "appinfoA" : "abc",
        "appinfoB" : 123,
        "appinfoC" : true
    }"""


def received(value: str | bytes | None, /, *, key: bytes | None = b"mykey", **headers: str) -> ReceivedMessage:
    value = value.encode() if isinstance(value, str) else value
    named = {"content-type": "application/cloudevents+json; charset=UTF-8"} | headers
    return ReceivedMessage(
        "mytopic", 0, 7, key, value, tuple((name.replace("_", "-"), text.encode()) for name, text in named.items())
    )


@pytest.mark.parametrize(
    ("event_id", "rest", "payload", "content_type"),
    [
        (
            "A234-1234-1234",
            '"datacontenttype" : "application/vnd.apache.thrift.binary",\n    "data_base64" : "AP8Q"',
            b"\x00\xff\x10",
            "application/vnd.apache.thrift.binary",
        ),
        (
            "B234-1234-1234",
            '"unsetextension": null,\n"datacontenttype" : "application/xml",\n    "data" : "<much wow=\\"xml\\"/>"',
            b'<much wow="xml"/>',
            "application/xml",
        ),
        (
            "C234-1234-1234",
            f'"subject": null,\n"datacontenttype" : "application/json",\n    "data" : {OBJECT}',
            OBJECT.encode(),
            "application/json",
        ),
        (
            "D234-1234-1234",
            '"subject": null,\n"data" : "I\'m just a string"',
            b'"I\'m just a string"',
            "application/json",
        ),
    ],
)
def test_an_example_of_the_specification_becomes_what_binary_mode_would_have_become(
    event_id: str, rest: str, payload: bytes, content_type: str
) -> None:
    made = item_attributes(received(ENVELOPE.format(id=event_id, rest=rest)))
    headers = {
        "ce_specversion": "1.0",
        "ce_type": "com.example.someevent",
        "ce_source": "/mycontext",
        "ce_id": event_id,
        "ce_time": "2018-04-05T17:31:00Z",
        "ce_comexampleextension1": "value",
        "ce_comexampleothervalue": "5",
        "content-type": content_type,
    }
    assert made["options"]["headers"] == headers
    binary = ReceivedMessage("mytopic", 0, 7, b"mykey", payload, tuple((k, v.encode()) for k, v in headers.items()))
    assert made == item_attributes(binary)
    assert made["dedup_key"] == f"/mycontext#{event_id}"
    assert made["event_name"] == "com.example.someevent"


def event(**members: Any) -> str:
    return json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t"} | members)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (received(event(partitionkey="p", subject="s"), key=None), "p"),
        (received(event(subject="s"), key=None), "s"),
        (received(event(subject="s"), key=b"k"), "k"),
        (received(event(), key=None), "/s#1"),
    ],
)
def test_without_a_key_of_the_message_the_events_own_is_the_event_key(given: ReceivedMessage, key: str) -> None:
    assert item_attributes(given)["event_key"] == key


def test_numbers_keep_all_their_digits() -> None:
    value = '{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"total":1.10,"big":0.12345678901234567890}}'
    assert item_attributes(received(value))["payload"] == b'{"total":1.10,"big":0.12345678901234567890}'


def test_data_that_is_null_is_data_and_none_is_an_empty_payload_and_no_tombstone() -> None:
    assert item_attributes(received(event(data=None)))["payload"] == b"null"
    without = item_attributes(received(event()))
    assert without["payload"] == b""
    assert "tombstone" not in without["options"]["kafka"]
    assert item_attributes(received(None))["options"]["kafka"]["tombstone"] is True


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{", "not the CloudEvent in JSON"),
        (b"\xff", "utf-8"),
        ("[]", "it is not a JSON object"),
        ("[" * 200_000, "not the CloudEvent in JSON"),
        ('{"specversion":"1.0","id":"","source":1}', "no id, source, type in it"),
        (event(specversion="0.3"), "specversion '0.3': expected 1.0"),
        (event(data=1, data_base64="AA=="), "both data and data_base64"),
        (event(data_base64="?"), "data_base64"),
        (event(data_base64=1), "data_base64 is not text"),
        (event(data=float("nan")), "NaN is not JSON"),
        (event(subject="\ud800"), "surrogates not allowed"),
    ],
)
def test_a_value_that_is_no_event_is_refused_and_kept_as_it_came(value: str | bytes, reason: str) -> None:
    message = received(value)
    with pytest.raises(InvalidItem, match=reason):
        item_attributes(message)
    assert remains(message)["payload"] == message.value


def test_what_remains_of_an_event_that_cannot_be_stored_is_legible_and_known_by_its_own_key() -> None:
    kept = remains(received(event(type="x\x00" * 200, subject="a\x00b", data=7), key=None))
    assert (kept["event_key"], kept["dedup_key"], kept["payload"]) == ("a\\x00b", "/s#1", b"7")
    assert len(kept["event_name"]) <= 255
    assert "\x00" not in json.dumps(kept["options"], ensure_ascii=False)


def test_other_content_types_are_left_alone() -> None:
    for content_type in ("application/json", "application/cloudevents-batch+json", "application/cloudevents+avro"):
        message = received(event(), content_type=content_type)
        assert item_attributes(message)["payload"] == message.value
    assert item_attributes(received(event(data=1), content_type="Application/CloudEvents+JSON"))["payload"] == b"1"


def test_an_event_brings_its_key_and_may_have_a_row_under_its_place() -> None:
    message = received(event())
    assert brings_a_key(message)
    assert former_identity(message) == "mytopic:0:7"
    assert not brings_a_key(received(event(), content_type="application/json"))


def test_an_envelope_holds_json_digit_for_digit_and_other_data_in_base64() -> None:
    item = make_item(event_key="ä")
    attributes = {
        "specversion": "1.0",
        "id": item.uuid,
        "source": "/shop",
        "type": "order_created",
        "time": "2026-01-31T12:00:00.000250Z",
        "subject": "ä",
        "partitionkey": "ä",
    }
    events = CloudEvents(source="/shop", structured=True)
    sent = events.envelope(item, b'{"total": 1.10}')
    assert sent.endswith(b',"data":{"total": 1.10}}')
    assert json.loads(sent) == attributes | {"datacontenttype": "application/json", "data": {"total": 1.1}}
    avro = CloudEvents(source="/shop", content_type="application/avro", structured=True).envelope(item, b"\x00\xff")
    assert json.loads(avro) == attributes | {"datacontenttype": "application/avro", "data_base64": "AP8="}
    assert json.loads(events.envelope(item, b"")) == attributes | {"datacontenttype": "application/json"}


@pytest.mark.parametrize("data", [b"{", b"\xff", b"NaN", b'{"a":1}}'])
def test_a_payload_that_is_no_json_is_not_sent_as_such(data: bytes) -> None:
    with pytest.raises(ValueError, match="content_type application/json announces JSON"):
        CloudEvents(structured=True).envelope(make_item(), data)


@pytest.mark.parametrize(
    ("content_type", "payload"), [("application/json", b'{"n": 1.50}'), ("text/plain", b"\xc3\xa4\x00")]
)
def test_what_one_box_sends_another_receives_as_it_was(content_type: str, payload: bytes) -> None:
    item = make_item()
    sent = CloudEvents(content_type=content_type, structured=True).envelope(item, payload)
    made = item_attributes(received(sent, key=None, Idempotency_Key=item.uuid))
    assert (made["payload"], str(made["uuid"])) == (payload, item.uuid)
    assert (made["event_key"], made["event_name"]) == (item.event_key, item.event_name)
    assert made["options"]["headers"]["content-type"] == content_type
