"""CloudEvents 1.0 in structured mode, JSON format: attributes and data are one JSON object, the message's value.

The event is converted to what binary mode sends in Kafka, so that either mode gives the same item.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from typing import NamedTuple

from boxengine.domain.json_members import Member, members_of
from boxengine.errors import InvalidItem

STRUCTURED = "application/cloudevents+json"
REQUIRED = ("specversion", "id", "source", "type")
DATA, DATA_BASE64, DATA_TYPE = "data", "data_base64", "datacontenttype"
JSON_TYPE = "application/json"


class Event(NamedTuple):
    """An event as binary mode would have sent it."""

    headers: dict[str, str]
    """``ce_id``, ``ce_source``, ...; and ``content-type``, the media type of the data, if it is known."""
    data: bytes
    """JSON data is copied from the event byte for byte. Empty for an event without data."""
    key: str | None
    """``partitionkey``, else ``subject``."""


def is_structured(content_type: str | None) -> bool:
    """Whether a message of this content type is an event in structured mode, JSON format."""
    return content_type is not None and _media_type(content_type) == STRUCTURED


def declares_json(content_type: str | None) -> bool:
    """Whether an event's data is JSON: ``*/json``, ``*/*+json``, or no type at all."""
    return content_type is None or _media_type(content_type).endswith(("/json", "+json"))


def opened(value: bytes) -> Event:
    """The event in a message's value.

    Raises:
        InvalidItem: the value is not a CloudEvent 1.0 in JSON.
    """
    try:
        return _event(
            {name: member for name, member in members_of(value.decode()) if member.value is not None or name == DATA}
        )
    except (ValueError, RecursionError) as error:
        # UnicodeError and NotBase64 are ValueErrors.
        raise InvalidItem(
            f"the value is not the CloudEvent in JSON that its content-type announces: {error}"
        ) from error


def _event(members: dict[str, Member]) -> Event:
    missing = [
        name for name in REQUIRED if not isinstance(members.get(name, _NONE).value, str) or not members[name].value
    ]
    if missing:
        raise ValueError(f"no {', '.join(missing)} in it")
    if members["specversion"].value != "1.0":
        raise ValueError(f"specversion {members['specversion'].value!r}: expected 1.0")
    if DATA in members and DATA_BASE64 in members:
        raise ValueError("both data and data_base64 in it")
    attributes = {name: _text(each) for name, each in members.items() if name not in {DATA, DATA_BASE64}}
    media_type = attributes.pop(DATA_TYPE, None)
    if media_type is None and DATA in members:
        media_type = JSON_TYPE
    headers = {f"ce_{name}": value for name, value in attributes.items()}
    if media_type is not None:
        headers["content-type"] = media_type
    return Event(headers, _data(members, media_type), attributes.get("partitionkey") or attributes.get("subject"))


def _data(members: dict[str, Member], media_type: str | None) -> bytes:
    if DATA_BASE64 in members:
        encoded = members[DATA_BASE64].value
        if not isinstance(encoded, str):
            raise ValueError("data_base64 is not text")
        try:
            return b64decode(encoded, validate=True)
        except NotBase64 as error:
            raise ValueError(f"data_base64: {error}") from error
    if DATA not in members:
        return b""
    value, text = members[DATA]
    if isinstance(value, str) and not declares_json(media_type):
        text = value
    return text.encode()


def _text(member: Member) -> str:
    text = member.value if isinstance(member.value, str) else member.text
    text.encode()  # fails on half a surrogate pair, which cannot be stored
    return text


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


_NONE = Member(None, "null")
