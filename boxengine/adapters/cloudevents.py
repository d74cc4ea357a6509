"""CloudEvents 1.0. In binary mode the event's attributes travel as headers, and the payload stays as it is.

Kafka and HTTP spell the headers differently: the CloudEvents Kafka binding prefixes ``ce_`` and sends UTF-8, the HTTP binding
prefixes ``ce-`` and percent-encodes what a header cannot carry (section 3.1.3.2 of the HTTP binding).

In structured mode, attributes and payload are one JSON object, the same in Kafka and HTTP.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from typing import Literal, Self
from urllib.parse import quote

from boxengine.domain.cloud_event import STRUCTURED, declares_json
from boxengine.domain.item import Item, rfc3339
from boxengine.domain.json_members import DECODER
from boxengine.errors import BoxError

STRUCTURED_TYPE = f"{STRUCTURED}; charset=UTF-8"
"""Content type of an event in structured mode."""
Format = Literal["plain", "cloudevents", "cloudevents_structured"]
FORMATS: tuple[Format, ...] = ("plain", "cloudevents", "cloudevents_structured")
PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvents:
    """What an item does not say of itself."""

    source: str | None = None
    """URI reference of where events come from; default ``/boxengine/BOX``."""
    content_type: str | None = "application/json"
    """Media type of the payload; None: none is sent."""
    structured: bool = False

    @classmethod
    def of(cls, format: Format, *, transport: str, source: str | None, content_type: str | None) -> Self | None:  # noqa: A002 - see transports
        """What the format needs; None where it is plain.

        Raises:
            BoxError: there is no such format.
        """
        demand_format(format, transport=transport)
        if format == "plain":
            return None
        return cls(source=source, content_type=content_type, structured=format == "cloudevents_structured")

    def attributes(self, item: Item) -> dict[str, str]:
        """The event's attributes: ``type`` is the event name (else the box), ``subject`` and ``partitionkey`` the event key."""
        return {
            "specversion": "1.0",
            "id": item.uuid,
            "source": self.source or f"/boxengine/{item.box_name}",
            "type": item.event_name or item.box_name,
            "time": rfc3339(item.created_at),
            "subject": item.event_key,
            "partitionkey": item.event_key,
        }

    def envelope(self, item: Item, data: bytes | None) -> bytes:
        """The event in structured mode. Data of a JSON type stays as it is, digit for digit; any other is in base64.

        Raises:
            ValueError: the content type says JSON, and the data is none.
        """
        members = self.attributes(item)
        if self.content_type is not None:
            members["datacontenttype"] = self.content_type
        if data and not declares_json(self.content_type):
            members["data_base64"] = b64encode(data).decode()
        event = json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()
        if not data or "data_base64" in members:
            return event
        _check_json(data, self.content_type)
        return event[:-1] + b',"data":' + data + b"}"

    def kafka_headers(self, item: Item) -> dict[str, str]:
        """Headers of a Kafka message."""
        return self._headers("ce_", self.attributes(item))

    def http_headers(self, item: Item) -> dict[str, str]:
        """Headers of an HTTP request."""
        return self._headers(
            "ce-", {name: quote(value, safe=PRINTABLE) for name, value in self.attributes(item).items()}
        )

    def _headers(self, prefix: str, attributes: dict[str, str]) -> dict[str, str]:
        headers = {prefix + name: value for name, value in attributes.items()}
        if self.content_type is not None:
            headers["content-type"] = self.content_type
        return headers


def demand_format(format: str, *, transport: str) -> None:  # noqa: A002 - see transports
    """Raises ``BoxError`` unless there is such a format."""
    if format not in FORMATS:
        raise BoxError(f"{transport}: format {format!r}: expected plain, cloudevents or cloudevents_structured")


def _check_json(data: bytes, content_type: str | None) -> None:
    try:
        DECODER.decode(data.decode())
    except (ValueError, RecursionError) as error:
        said = "no content_type" if content_type is None else f"content_type {content_type}"
        raise ValueError(f"{said} announces JSON, but the payload is not JSON: {error}") from error
