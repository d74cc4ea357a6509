"""What ``inbox_items.NAME.source.kafka`` says, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from boxengine.domain.box import Box
from boxengine.errors import ConfigurationError, UnknownBox
from boxengine.settings import Resolved
from boxengine.settings.diagnosis import Finding
from boxengine.settings.loading import problems_of

SETTINGS_CHECKED = ("topics", "group", "concurrency", "bootstrap_servers", "config")
"""Keys that ``boxengine.settings`` has looked at."""
OURS = ("batch_size", "max_payload_bytes", "dead_letter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Topics whose messages become items of one box."""

    box: Box
    topics: Sequence[str]
    group: str
    bootstrap_servers: str
    concurrency: int = 1
    """Consumers, each with a thread, in one process."""
    config: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 500
    """Messages in one transaction, at most."""
    max_payload_bytes: int | None = None
    """Larger messages are dead letters; None: no limit."""
    dead_letter_box: Box | None = None
    dead_letter_topic: str | None = None
    """Neither: failed rows of the box itself."""


def sources(resolved: Resolved, names: Sequence[str]) -> dict[str, Source]:
    """The sources of the boxes named, of all boxes if none is.

    Raises:
        UnknownBox: a name that no box with a source has, or there is no such box at all.
        ConfigurationError: with every problem that was found.
    """
    for name in names:
        if name not in resolved.sources:
            raise UnknownBox(name, resolved.sources)
    if not resolved.sources:
        raise ConfigurationError(
            problems_of([Finding(("inbox_items",), "no box has a source")], resolved.settings.origin)
        )
    found: list[Finding] = []
    made = {
        name: _source(resolved, name, arguments, found)
        for name, arguments in resolved.sources.items()
        if not names or name in names
    }
    if found:
        raise ConfigurationError(problems_of(found, resolved.settings.origin))
    return made


def _source(resolved: Resolved, name: str, arguments: Mapping[str, Any], found: list[Finding]) -> Source:
    path = ("inbox_items", name, "source", "kafka")
    known = {key: value for key, value in arguments.items() if key in SETTINGS_CHECKED}
    expected = (*SETTINGS_CHECKED, *OURS)
    unknown = f"unknown key; expected one of {', '.join(expected)}"
    found += [Finding((*path, key), unknown) for key in arguments if key not in expected]
    for key in ("batch_size", "max_payload_bytes"):
        value = arguments.get(key)
        if value is None:
            continue
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            found.append(Finding((*path, key), f"expected a whole number from 1 up, found {value!r}"))
        known[key] = value
    known |= _dead_letter(resolved, name, arguments.get("dead_letter"), found)
    return Source(box=resolved.pipelines[name].box, **known)


def _dead_letter(resolved: Resolved, name: str, value: Any, found: list[Finding]) -> dict[str, Any]:
    path = ("inbox_items", name, "source", "kafka", "dead_letter")
    match value:
        case None:
            return {}
        case {"topic": str(topic), **rest} if topic and not rest:
            return {"dead_letter_topic": topic}
        case {"box": str(box), **rest} if not rest:
            if box in resolved.pipelines and box != name:
                return {"dead_letter_box": resolved.pipelines[box].box}
            others = ", ".join(sorted(resolved.pipelines.keys() - {name})) or "none is configured"
            found.append(Finding((*path, "box"), f"expected another box, found {box!r}; known: {others}"))
        case _:
            found.append(Finding(path, "expected box: NAME or topic: NAME"))
    return {}
