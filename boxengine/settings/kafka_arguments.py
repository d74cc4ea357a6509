"""The arguments of Kafka transports and sources: their own over the defaults, in whichever words they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from boxengine.settings.arguments import Misconfigured, parsed
from boxengine.settings.boxes import KafkaSettings, KafkaSource
from boxengine.settings.diagnosis import findings
from boxengine.settings.origin import dotted
from boxengine.settings.transport_names import KAFKA
from boxengine.settings.values.numbers import Amount

_NAMES_OF_SERVERS = ("bootstrap.servers", "metadata.broker.list")
"""What librdkafka calls ``bootstrap_servers``."""
_SECONDS_OF_THE_REFERENCE = {
    "connect_timeout": "socket.connection.setup.timeout.ms",
    "ack_timeout": "request.timeout.ms",
    "retry_backoff": "retry.backoff.ms",
}
"""Keys that sbmt-kafka_producer counts in seconds, and librdkafka's names for them, in milliseconds."""


def kafka_arguments(arguments: Mapping[str, Any], defaults: KafkaSettings) -> dict[str, Any]:
    """A Kafka transport's own arguments over the defaults; ``config`` is merged key by key.

    ``kafka: {required_acks: -1}`` among the arguments is how sbmt-outbox writes them, and is understood. Servers that are
    named among librdkafka's settings become ``bootstrap_servers``.

    Raises:
        Misconfigured: that inner section is not in order.
    """
    shared = defaults.for_transports()
    # A key without a value is no key.
    own = {key: value for key, value in arguments.items() if value is not None or key not in shared}
    written = own.pop("kafka", None)
    try:
        inner = KafkaSettings.model_validate(as_kafka_settings(written)).for_transports()
    except ValidationError as error:
        found = findings(error, written, model=KafkaSettings)
        raise Misconfigured(*((dotted(("kafka", *finding.path)), finding.message) for finding in found)) from error
    return _layered(shared, inner, own)


def as_kafka_settings(written: object) -> object:
    """The keys of a ``kafka`` section written for sbmt-outbox, under the names that ``KafkaSettings`` has.

    What is no key of that gem's and has a dot in its name is librdkafka's own, as there. What cannot be understood is
    left as it is, to be refused with its path.

    Raises:
        Misconfigured: a time that is no number of seconds.
    """
    if not isinstance(written, Mapping):
        return written
    settings: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for key, value in written.items():
        if key == "servers":
            settings["bootstrap_servers"] = value
        elif key == "kafka_config" and isinstance(value, Mapping):
            config |= value
        elif key in _SECONDS_OF_THE_REFERENCE:
            if value is not None:
                seconds: float = parsed(dotted((KAFKA, key)), value, Amount)
                config[_SECONDS_OF_THE_REFERENCE[key]] = round(seconds * 1000)
        elif "." in key:
            config[key] = value
        else:
            settings[key] = value
    own = settings.get("config")
    if config and isinstance(own, Mapping | None):
        settings["config"] = {**config, **(own or {})}
    return settings


def kafka_source(source: KafkaSource, defaults: KafkaSettings) -> dict[str, Any]:
    """A Kafka consumer's arguments: the source's own keys over the defaults, put together as in ``kafka_arguments``."""
    return _layered(defaults.for_all(), source.model_dump(exclude_none=True))


def kafka_servers(arguments: Mapping[str, Any]) -> str:
    """The servers among the arguments that ``kafka_arguments`` or ``kafka_source`` returned, as librdkafka wants them: in one
    text, with commas; empty if there are none."""
    return _in_one_text(arguments.get("bootstrap_servers") or "")


def _layered(*layers: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in map(_servers_apart, layers):
        merged = {**merged, **layer, **_both_mappings(merged.get("config"), layer.get("config"))}
    return merged


def _servers_apart(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """A layer whose ``config`` names servers, with these as its ``bootstrap_servers``: what asks for servers need not know
    librdkafka's names, and a layer above may name others."""
    config = layer.get("config")
    if not isinstance(config, Mapping):
        return layer
    named = [config[key] for key in _NAMES_OF_SERVERS if config.get(key)]
    if not named:
        return layer
    rest = {key: value for key, value in config.items() if key not in _NAMES_OF_SERVERS}
    return {**layer, "config": rest, "bootstrap_servers": _in_one_text(named[0])}


def _in_one_text(servers: object) -> str:
    return ",".join(map(str, servers)) if isinstance(servers, list | tuple) else str(servers)


def _both_mappings(lower: object, upper: object) -> dict[str, Any]:
    if isinstance(lower, Mapping) and isinstance(upper, Mapping):
        return {"config": _deep_merged(lower, upper)}
    return {}


def _deep_merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(lower)
    for key, value in upper.items():
        below = result.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[key] = _deep_merged(below, value) if both else value  # type: ignore[arg-type]
    return result
