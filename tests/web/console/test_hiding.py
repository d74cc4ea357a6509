"""Which rules of ``console.hide`` are about which box, and how payloads are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boxengine.web.console.hiding import LARGEST, Hiding, ShownPayload


@pytest.mark.parametrize("box", ["order_outbox_item", "order_outbox_item.billing"])
def test_a_rule_of_a_box_is_one_of_its_subscriptions_too(box: str) -> None:
    whole, paths = Hiding({"order_outbox_item": None}), Hiding({"order_outbox_item": ("card",)})
    assert whole.payload(box, b'{"card": "4711"}').kind == "hidden"
    assert "4711" not in paths.payload(box, b'{"card": "4711"}').text


def test_a_rule_of_a_subscription_is_not_one_of_the_others() -> None:
    hiding = Hiding({"order_outbox_item.billing": None})
    assert [hiding.hides(f"order_outbox_item.{name}") for name in ("billing", "search")] == [True, False]


def shown(payload: str | bytes) -> ShownPayload:
    return Hiding({}).payload("order_outbox_item", payload.encode() if isinstance(payload, str) else payload)


@pytest.mark.parametrize(
    "json_text",
    [
        json.dumps({"id": 1, "password": 's3"cret', "rest": "x" * LARGEST}),
        json.dumps({"id": 1, "api_key": "s3cret" * LARGEST}),
        json.dumps({"token": 5_3_3, "id": 1, "credentials": {"user": "s3cret", "rest": "x" * LARGEST}}).replace(
            "533", "s3cret"
        ),
        '{"id": 1, "token": "s3cret", "deep": ' + "[" * 5_000 + "]" * 5_000 + "}",
        '{"id": 1, "token": "s3cret"}\n{"id": 2, "token": "s3cret"}',
    ],
    ids=["long", "cut within the secret", "an object", "deep", "lines of JSON"],
)
def test_secrets_of_json_that_is_too_large_to_be_parsed_are_hidden_too(json_text: str) -> None:
    found = shown(json_text)
    assert found.kind == "text"
    assert '"id": 1' in found.text
    assert "***" in found.text
    assert not any(part in found.text for part in ("s3cret", "cret"))


@pytest.mark.parametrize("text", ["10\u00a0EUR", "\ufeff<a/>\r\n", "👨\u200d👩", "می\u200cخواهم", "全角\u3000空白"])
def test_a_text_with_spaces_and_joiners_of_any_language_is_shown_as_text(text: str) -> None:
    assert (shown(text).kind, shown(text).text) == ("text", text)


def test_numbers_of_json_are_shown_as_they_are_written() -> None:
    written = '{"a": [12345678901234567.89, 1.10, 1e400, NaN, -0, 7], "pin_token": 4711, "n": ' + "9" * 5_000 + "}"
    found = shown(written)
    assert found.kind == "json"
    assert " ".join(found.text.split()) == " ".join(
        written.replace("{", "{ ")
        .replace("}", " }")
        .replace("[", "[ ")
        .replace("]", " ]")
        .replace("4711", '"***"')
        .split()
    )


@pytest.mark.parametrize("text", ["a\u202eb", "\x1b[2J", "\x00"])
def test_a_text_that_would_steer_or_reorder_what_stands_around_it_is_shown_in_hex(text: str) -> None:
    assert shown(text).kind == "hex"


@pytest.mark.parametrize("value", [{"a": "\ud800"}, {"\udfff": 1}, ["a\u202eb"], {"\x00": "\U000e0001"}])
def test_characters_of_json_that_no_page_can_show_are_shown_as_escapes(value: Any) -> None:
    found = shown(json.dumps(value))
    assert found.kind == "json"
    assert json.loads(found.text) == value
    assert found.text.encode().isascii()
