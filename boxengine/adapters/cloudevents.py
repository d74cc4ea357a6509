"""CloudEvents 1.0, binary mode: the event's attributes travel as headers, the payload stays as it is.

Kafka and HTTP spell them differently: the CloudEvents Kafka binding prefixes ``ce_`` and sends UTF-8, the HTTP binding
prefixes ``ce-`` and percent-encodes what a header cannot carry (section 3.1.3.2 of the HTTP binding).
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from boxengine.domain.item import Item, rfc3339

PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvents:
    """What an item does not say of itself."""

    source: str | None = None
    """URI reference of where events come from; default ``/boxengine/BOX``."""
    content_type: str | None = "application/json"
    """Media type of the payload; None: none is sent."""

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
