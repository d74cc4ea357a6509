"""Parses one line of ``boxengine create --jsonl``: from JSON to an item's or a job's attributes, or to an error."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Any
from uuid import UUID

from boxengine.domain.json_members import members_of
from boxengine.domain.new_values import UNSTORABLE
from boxengine.errors import InvalidItem

LONGEST_LINE = 64 << 20
"""Bytes; more than any payload column can hold."""
LONGEST_TIME = 1e9
"""Seconds; 31 years."""


def item_of(line: bytes) -> dict[str, Any]:
    """The attributes of one line.

    Raises:
        InvalidItem: what is wrong with it.
    """
    if len(line) > LONGEST_LINE:
        raise InvalidItem(f"longer than {LONGEST_LINE >> 20} MiB")
    item = _parsed(line)
    if item.get("event_key") in (None, ""):
        raise InvalidItem("event_key is missing")
    item["payload"] = _payload(item, line)
    for name in ("event_key", "event_name", "dedup_key"):
        if item.get(name) is not None:
            item[name] = _name(name, item[name])
    if item.get("uuid") is not None:
        item["uuid"] = _uuid(item["uuid"])
    if item.get("available_at") is not None:
        item["available_at"] = _moment(item["available_at"])
    if not isinstance(item.get("options"), dict | None):
        raise InvalidItem("options must be an object")
    return item


def job_of(line: bytes, *, task: str | None) -> dict[str, Any]:
    """The attributes of a long job; ``task`` applies if the line names none.

    Raises:
        InvalidItem: what is wrong with it.
    """
    if len(line) > LONGEST_LINE:
        raise InvalidItem(f"longer than {LONGEST_LINE >> 20} MiB")
    job = _parsed(line)
    job.setdefault("task", task)
    if job["task"] is None:
        raise InvalidItem("task is missing")
    if job.get("available_at") is not None:
        job["available_at"] = _moment(job["available_at"])
    for name in ("delay", "lease_ttl"):
        if isinstance(job.get(name), float) and abs(job[name]) > LONGEST_TIME:
            raise InvalidItem(f"{name}: expected seconds, {LONGEST_TIME:.0f} at most")
    return job


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        item = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise InvalidItem(f"not JSON: {reason}") from error
    if not isinstance(item, dict):
        raise InvalidItem("not a JSON object")
    return item


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number")


def _payload(item: dict[str, Any], line: bytes) -> bytes:
    encoded = item.pop("payload_base64", None)
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise InvalidItem(f"payload_base64: {error}") from error
    payload = item.get("payload")
    if payload is None:
        raise InvalidItem("payload is missing")
    # Other values than texts are stored as they are written: a number in JSON may have more digits than one of Python's.
    if not isinstance(payload, str):
        text = line.decode(json.detect_encoding(line), "surrogatepass")
        payload = {name: member.text for name, member in members_of(text)}["payload"]
    try:
        return payload.encode()
    except UnicodeEncodeError as error:
        raise InvalidItem(f"payload: {error}") from error


def _name(name: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise InvalidItem(f"{name} must be text or a whole number")
    unstorable = UNSTORABLE.search(value)
    if unstorable:
        raise InvalidItem(f"{name} holds the character U+{ord(unstorable[0]):04X}, which is no text")
    return value


def _uuid(value: Any) -> UUID:
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidItem(f"uuid: {error}") from error


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
    except (ValueError, TypeError) as error:
        raise InvalidItem(f"available_at: {error}") from error
    if moment.tzinfo is None:
        raise InvalidItem(f"available_at: expected a moment with a zone, such as 2026-01-31T12:00Z; got {value!r}")
    return moment
