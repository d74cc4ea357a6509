"""What ``config show`` and ``config schema`` print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from boxengine.domain.box import StrictOrder
from boxengine.domain.masking import masked
from boxengine.settings import rules
from boxengine.settings.boxes import BoxSettings, TransportSettings
from boxengine.settings.durations import format_iso
from boxengine.settings.origin import Path, dotted
from boxengine.settings.schema import ENVIRONMENTS, Settings

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Row:
    """One value in force."""

    path: str
    """Key path, as in problems: ``poller.rate_limit``, ``outbox_items.order.transports.log.level``."""
    value: Any
    """Of JSON's types; secrets are ``***``."""
    source: str
    """The file (and environment variables) it came from; ``default``; or the key it was inherited from."""


def explain(settings: Settings) -> list[Row]:
    """Every value in force, in the order of the schema, each with its source."""
    dumped = settings.model_dump(mode="json", exclude={"outbox_items", "inbox_items", "job_items"}, fallback=str)
    rows = [_row(settings, path, value) for path, value in _leaves((), dumped)]
    for path, name, box in rules.declared(settings):
        rows += _box_rows(settings, path, name, box)
    for name, job_box in settings.job_items.items():
        here = ("job_items", name)
        dumped = job_box.model_dump(mode="json", fallback=str)
        rows += [_row(settings, path, value) for path, value in _leaves(here, dumped)]
    return rows


def json_schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors: flat or with environment sections; ``x-`` keys may hold anchors."""
    schema = Settings.model_json_schema()
    definitions = schema.pop("$defs")
    environments = {name: {"$ref": "#/$defs/Settings"} for name in ENVIRONMENTS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "boxengine configuration",
        "type": "object",
        "properties": {**schema["properties"], **environments},
        "patternProperties": {"^x-": {}},
        "additionalProperties": False,
        "$defs": {**definitions, "Settings": schema},
    }


def _box_rows(settings: Settings, path: Path, name: str, box: BoxSettings) -> Iterator[Row]:
    inherited = _inherited(settings, name, box)
    dumped = box.model_dump(mode="json", exclude={"transports", "subscriptions", "partition_size"}, fallback=str)
    for leaf, value in _leaves(path, dumped):
        key = leaf[len(path)]
        if value in (None, []) and key in inherited:
            effective, source = inherited[str(key)]
            yield Row(dotted(leaf), masked(leaf, effective), source)
        else:
            yield _row(settings, leaf, value)
    yield from _transport_rows(settings, (*path, "transports"), box.transports)
    for own, each in box.subscriptions.items():
        here = (*path, "subscriptions", own)
        dumped = each.model_dump(mode="json", by_alias=True, exclude={"transports"}, exclude_none=True, fallback=str)
        for leaf, value in _leaves(here, dumped):
            yield _row(settings, leaf, value)
        yield from _transport_rows(settings, (*here, "transports"), each.transports)


def _inherited(settings: Settings, name: str, box: BoxSettings) -> dict[str, tuple[Any, str]]:
    """What stands for a key that the box leaves out, and where that comes from."""
    retries = "no limit" if box.retries is None else box.retries
    strict = "strict_order" if box.strict_order is not StrictOrder.NONE else DEFAULT
    return {
        "owner": (settings.owner, _via(settings, "owner")),
        "bucket_size": (settings.bucket_size, _via(settings, "bucket_size")),
        "max_payload_bytes": (settings.max_payload_bytes, _via(settings, "max_payload_bytes")),
        "table": (box.table_for(name), f"model {box.model}" if box.model else DEFAULT),
        "key_index": (box.reads_keys, DEFAULT),
        "max_retries": (retries, strict),
        "retry_strategies": (list(box.strategies), strict),
        "retention_delivered_items": (format_iso(box.delivered_retention), "retention"),
    }


def _via(settings: Settings, key: str) -> str:
    source = settings.origin.of((key,))
    return f"{key}, {source}" if source else DEFAULT


def _transport_rows(settings: Settings, path: Path, transports: Mapping[str, TransportSettings]) -> Iterator[Row]:
    for key, transport in transports.items():
        here = (*path, int(key) if key.isdecimal() else key)
        own = {
            "class": transport.class_name,
            "event_name": transport.event_name,
            "disposable": settings.disposable(transport),
        }
        arguments = transport.model_dump(mode="json", include={"arguments"}, fallback=str)["arguments"]
        for name, value in own.items():
            given = settings.origin.of((*here, name))
            source = _via(settings, "disposable_transports") if name == "disposable" and not given else None
            if name == "class" and not given:
                source = "the transport's name"
            row = _row(settings, (*here, name), value)
            yield Row(row.path, row.value, source) if source else row
        for leaf, value in _leaves(here, arguments):
            yield _row(settings, leaf, value)


def _row(settings: Settings, path: Path, value: Any) -> Row:
    source = settings.origin.of(path)
    return Row(dotted(path), _masked(path, value), str(source) if source else DEFAULT)


def _masked(path: Path, value: Any) -> Any:
    if isinstance(value, list):
        return [_masked(path, entry) for entry in value]
    if isinstance(value, dict):
        return {key: _masked((*path, key), entry) for key, entry in value.items()}
    return masked(path, value)


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """Mappings are walked into, also empty ones left out; a list is one value."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves((*path, key), inner)
    else:
        yield path, value
