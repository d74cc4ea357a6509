"""The settings under ``inbox_items.NAME.source.kafka``, with the boxes that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from boxengine.domain.box import Box
from boxengine.domain.message import ReceivedMessage
from boxengine.errors import ConfigurationError, UnknownBox
from boxengine.settings import Resolved
from boxengine.settings.diagnosis import Finding
from boxengine.settings.loading import problems_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Topics whose messages become items of one box."""

    box: Box
    topics: Sequence[str]
    group: str
    bootstrap_servers: str
    concurrency: int = 1
    """Consumers in one process, each with its own thread."""
    config: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 500
    """Messages in one transaction, at most."""
    max_payload_bytes: int | None = None
    """Larger messages are dead letters; None: no limit."""
    attributes: Mapping[str, Callable[[ReceivedMessage], Any]] = field(default_factory=dict)
    """The functions that compute some of the items' attributes."""
    dead_letter_box: Box | None = None
    dead_letter_topic: str | None = None
    """If neither is set, dead letters become failed rows of the box itself."""


def sources(resolved: Resolved, names: Sequence[str]) -> dict[str, Source]:
    """The sources of the named boxes, or of all if none is named.

    Raises:
        UnknownBox: no box with a source has that name.
        ConfigurationError: no box has a source.
    """
    for name in names:
        if name not in resolved.sources:
            raise UnknownBox(name, resolved.sources)
    if not resolved.sources:
        raise ConfigurationError(
            problems_of([Finding(("inbox_items",), "no box has a source")], resolved.settings.origin)
        )
    return {
        name: _source(resolved, name, **arguments)
        for name, arguments in resolved.sources.items()
        if not names or name in names
    }


def _source(resolved: Resolved, name: str, *, dead_letter: Mapping[str, str] | None = None, **arguments: Any) -> Source:
    where = dead_letter or {}
    return Source(
        box=resolved.pipelines[name].box,
        dead_letter_box=resolved.written[where["box"]].box if "box" in where else None,
        dead_letter_topic=where.get("topic"),
        **arguments,
    )
