"""AsyncAPI 3.0: the servers, channels, operations and messages of a configuration.

Each transport that leads to a Kafka topic, a webhook or a Redis stream is a channel that the service sends to; each topic of a
``source`` is one that it receives from. Custom transports have no known address, so they are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from string import Formatter
from typing import Any
from urllib.parse import urlsplit

from boxengine.domain.box import Box, BoxType
from boxengine.settings import Resolved
from boxengine.settings.boxes import InboxSettings, TransportSettings
from boxengine.settings.kafka_arguments import kafka_arguments, kafka_servers, kafka_source
from boxengine.settings.transport_names import KAFKA, short_name

VERSION = "3.0.0"
UNKNOWN_CONTENT = "application/octet-stream"
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9._-]")
_HEADERS: Mapping[str, Mapping[str, str]] = {
    "Outbox-Name": {"type": "string"},
    "Idempotency-Key": {"type": "string", "format": "uuid"},
    "Sequence-ID": {"type": "string"},
    "Created-At": {"type": "string", "format": "date-time"},
    "Dispatched-At": {"type": "string", "format": "date-time"},
}
"""The headers that every item has; see ``Item.headers``."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a transport sends to."""

    protocol: str
    host: str
    address: str


def document(resolved: Resolved, *, title: str, version: str) -> dict[str, Any]:
    """The document as JSON values.

    Args:
        title: the service's title.
        version: the version of the service's messages, in its users' numbering.
    """
    return _Document(resolved).made(title, version)


@dataclass(slots=True)
class _Document:
    _resolved: Resolved
    _servers: dict[str, Any] = field(default_factory=dict)
    _channels: dict[str, Any] = field(default_factory=dict)
    _operations: dict[str, Any] = field(default_factory=dict)
    _messages: dict[str, Any] = field(default_factory=dict)
    _schemas: dict[str, Any] = field(default_factory=dict)

    def made(self, title: str, version: str) -> dict[str, Any]:
        settings = self._resolved.settings
        for name, pipeline in self._resolved.pipelines.items():
            of_the_box = settings.boxes[name]
            names = Counter(transport.name for transport in of_the_box.transports.values())
            for transport in of_the_box.transports.values():
                place = self._place_of(transport)
                if place is None:
                    continue
                parts = [transport.name]
                if names[transport.name] > 1:  # a list may have one class several times
                    parts += [transport.event_name or "", place.address]
                self._add("send", pipeline.box, place, ".".join(filter(None, parts)), transport.event_name)
            if isinstance(of_the_box, InboxSettings) and of_the_box.source is not None:
                source = of_the_box.source.kafka
                servers = kafka_servers(kafka_source(source, settings.kafka))
                for topic in source.topics:
                    self._add("receive", pipeline.box, _Place("kafka", _hosts(servers), topic), topic, None)
        components = {"messages": self._messages, "schemas": self._schemas}
        return {
            "asyncapi": VERSION,
            "info": {"title": title, "version": version},
            "servers": self._servers,
            "channels": self._channels,
            "operations": self._operations,
            "components": {name: found for name, found in components.items() if found},
        }

    def _place_of(self, transport: TransportSettings) -> _Place | None:
        arguments = transport.arguments
        match short_name(transport.class_name):
            case name if name == KAFKA:
                servers = kafka_servers(kafka_arguments(arguments, self._resolved.settings.kafka))
                return _Place("kafka", _hosts(servers), str(arguments.get("topic")))
            case "http":
                url = urlsplit(str(arguments.get("url")))
                # User, password and query may be secrets; none of them belongs in a document that is passed around.
                return _Place(url.scheme, url.netloc.rpartition("@")[2], url.path or "/")
            case "redis_stream":
                url = urlsplit(str(arguments.get("url", "redis://127.0.0.1:6379/0")))
                return _Place("redis", url.netloc.rpartition("@")[2], str(arguments.get("stream")))
            case _:
                return None

    def _add(self, action: str, box: Box, place: _Place, name: str, event_name: str | None) -> None:
        message = self._message(box, event_name)
        channel = self._free(_key(f"{box.label}.{name}"))
        # Braces in a pattern for topics are no placeholders.
        address, places = _parameters(place.address) if action == "send" else (place.address, [])
        server = self._server(place)
        self._channels[channel] = {
            "address": address,
            "messages": {message: _ref("components", "messages", message)},
            "servers": [_ref("servers", server)],
            **({"parameters": {each: {"description": f"{each} of the item"} for each in places}} if places else {}),
        }
        self._operations[f"{action}.{channel}"] = {
            "action": action,
            "channel": _ref("channels", channel),
            "messages": [_ref("channels", channel, "messages", message)],
        }

    def _free(self, channel: str) -> str:
        """The key, with a number if another channel has it, such as that of a webhook with the same path on another host."""
        if channel not in self._channels:
            return channel
        return next(key for number in count(2) if (key := f"{channel}.{number}") not in self._channels)

    def _server(self, place: _Place) -> str:
        key = _key(f"{place.protocol}-{place.host}")
        self._servers[key] = {"host": place.host, "protocol": place.protocol}
        return key

    def _message(self, box: Box, event_name: str | None) -> str:
        key = _key(box.label if event_name is None else f"{box.label}.{event_name}")
        headers = dict(_HEADERS) | ({} if event_name is None else {"Event-Name": {"const": event_name}})
        message: dict[str, Any] = {
            "name": event_name or box.name,
            "contentType": UNKNOWN_CONTENT if box.codec is None else box.codec.content_type,
        }
        if box.type is BoxType.OUTBOX:
            message["headers"] = {"type": "object", "properties": headers}
        schema = None if box.codec is None else box.codec.schema()
        if schema is not None:
            message["payload"] = self._hoisted(schema, box)
        self._messages[key] = message
        return key

    def _hoisted(self, schema: Mapping[str, Any], box: Box) -> dict[str, Any]:
        """The schema, with its definitions moved to the document's: references start at the root of the document."""
        own = dict(schema)
        prefix = _key(box.label)
        for name, definition in own.pop("$defs", {}).items():
            self._schemas[f"{prefix}.{_key(name)}"] = _moved(definition, prefix)
        moved: dict[str, Any] = _moved(own, prefix)
        return moved


def _moved(schema: Any, prefix: str) -> Any:
    match schema:
        case {"$ref": str(reference), **others} if reference.startswith("#/$defs/"):
            name = _key(reference.removeprefix("#/$defs/"))
            return {**others, "$ref": f"#/components/schemas/{prefix}.{name}"}
        case Mapping():
            return {name: _moved(value, prefix) for name, value in schema.items()}
        case list():
            return [_moved(each, prefix) for each in schema]
        case _:
            return schema


def _parameters(address: str) -> tuple[str, list[str]]:
    """The address with its placeholders renamed to what AsyncAPI accepts, and the new names."""
    parts: list[str] = []
    names: list[str] = []
    for literal, place, _, _ in Formatter().parse(address):
        parts.append(literal)
        if place is not None:
            names.append(re.sub(r"[^A-Za-z0-9_-]", "_", place))
            parts.append(f"{{{names[-1]}}}")
    return "".join(parts), names


def _hosts(servers: str) -> str:
    """The bootstrap servers, together one cluster, without spaces."""
    return ",".join(each.strip() for each in servers.split(",")) or "localhost:9092"


def _key(text: str) -> str:
    return _NOT_IN_KEYS.sub("-", text)


def _ref(*path: str) -> dict[str, str]:
    return {"$ref": f"#/{'/'.join(path)}"}
