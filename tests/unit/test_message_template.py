"""Texts worked out per message."""

from __future__ import annotations

import pytest

from boxengine.domain.message import ReceivedMessage
from boxengine.domain.message_template import MessageTemplate

MESSAGE = ReceivedMessage(
    "orders",
    3,
    17,
    b"k-1",
    b'{"order": {"id": 7, "lines": [1]}}',
    (("Type", b"old"), ("TYPE", b"paid"), ("bad", b"\xff")),
)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("order_created", "order_created"),
        ("orders.created{}", "orders.created"),
        ("{topic}-{partition}-{offset}/{key}", "orders-3-17/k-1"),
        ("order_{headers.type}", "order_paid"),
        ("{value.order.id}", "7"),
    ],
)
def test_places_are_filled_from_the_message(text: str, result: str) -> None:
    assert MessageTemplate(text)(MESSAGE) == result


@pytest.mark.parametrize(
    "text", ["{headers.none}", "{value.order.none}", "{value.order}", "{value.a.b}", "{headers.bad}"]
)
def test_a_message_that_has_nothing_to_put_there_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"needs|utf-8"):
        MessageTemplate(text)(MESSAGE)


@pytest.mark.parametrize("value", [None, b"", b"no json", b"[]"])
def test_a_value_that_is_no_json_object_is_refused(value: bytes | None) -> None:
    with pytest.raises(ValueError, match=r"needs|Expecting"):
        MessageTemplate("{value.order}")(MESSAGE._replace(value=value))


@pytest.mark.parametrize("text", ["{nope}", "{headers}", "{value}", "{open"])
def test_places_that_no_message_has_are_found_when_the_template_is_made(text: str) -> None:
    with pytest.raises(ValueError, match=r"no message has|expected '}'"):
        MessageTemplate(text)
