"""What a received message becomes."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxengine.domain.message import LONGEST_NAME, ReceivedMessage, fitted, item_attributes, remains
from boxengine.errors import InvalidItem

KNOWN = UUID("0191d0a2-7b3c-7c59-9d0e-0f5f3a1f2b4c")


def message(*, key: bytes | None = b"7", value: bytes | None = b"{}", **headers: bytes) -> ReceivedMessage:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return ReceivedMessage("orders", 3, 41, key, value, named)


def test_a_message_is_known_by_its_idempotency_key_in_one_spelling() -> None:
    spellings = [str(KNOWN), str(KNOWN).upper(), KNOWN.hex]
    made = [item_attributes(message(Idempotency_Key=spelling.encode())) for spelling in spellings]
    assert {each["uuid"] for each in made} == {KNOWN}
    assert {each["dedup_key"] for each in made} == {str(KNOWN)}


def test_without_an_idempotency_key_a_message_is_known_by_its_place_with_a_uuid_that_is_always_the_same() -> None:
    first, again = item_attributes(message()), item_attributes(message(value=b"other"))
    other = item_attributes(message()._replace(offset=42))
    assert first["dedup_key"] == again["dedup_key"] == "orders:3:41@:"
    assert first["uuid"] == again["uuid"] != other["uuid"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (message(), "7"),
        (message(key=None, idempotency_key=b"abc"), "abc"),
        (message(key=None), "orders:3"),
        (message(key=b""), "orders:3"),
    ],
)
def test_the_event_key_is_the_messages_key_else_what_it_is_known_by_else_its_partition(
    given: ReceivedMessage, expected: str
) -> None:
    assert item_attributes(given)["event_key"] == expected


def test_a_value_over_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(InvalidItem, match=r"6 bytes is over the limit of 5"):
        item_attributes(message(value=b"123456"), max_payload=5)
    assert item_attributes(message(value=b"12345"), max_payload=5)["payload"] == b"12345"


@pytest.mark.parametrize(
    ("bad", "reason"), [(message(key=b"\xff"), "the key is not UTF-8"), (message(x=b"\xff"), "header 'x' is not UTF-8")]
)
def test_bytes_that_are_no_text_are_refused_and_legible_in_the_remains(bad: ReceivedMessage, reason: str) -> None:
    with pytest.raises(InvalidItem, match=reason):
        item_attributes(bad)
    kept = remains(bad)
    assert "\\xff" in (kept["event_key"], kept["options"]["headers"].get("x"))


@given(st.text())
def test_a_name_always_fits_its_column_and_short_ones_stay_as_they_are(text: str) -> None:
    assert len(fitted(text * 50)) <= LONGEST_NAME
    if len(text) <= LONGEST_NAME:
        assert fitted(text) == text


@given(key=st.none() | st.binary(), header=st.binary(), value=st.none() | st.binary(max_size=20))
def test_of_any_message_something_can_be_stored(key: bytes | None, header: bytes, value: bytes | None) -> None:
    kept = remains(message(key=key, value=value, x=header))
    texts = [kept["event_key"], kept["dedup_key"], *kept["options"]["headers"].values()]
    assert kept["event_key"]
    assert all("\x00" not in text for text in texts)
    assert all(len(text) <= LONGEST_NAME for text in texts[:2])
