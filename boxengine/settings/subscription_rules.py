"""What the keys of a box with subscriptions must be to one another."""

from __future__ import annotations

import re
from collections.abc import Iterator

from boxengine.domain.box import Storage
from boxengine.settings.boxes import BoxSettings
from boxengine.settings.diagnosis import Finding
from boxengine.settings.durations import format_iso
from boxengine.settings.origin import Path

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TABLES = ("log", "positions", "readers")
"""How names of tables beside a box's own end."""


def check(path: Path, box: BoxSettings) -> Iterator[Finding]:
    """All contradictions between ``subscriptions`` and the keys beside it."""
    if not box.subscriptions:
        if box.retain_at_most is not None:
            message = "has a meaning only beside subscriptions: what a box has not delivered is never deleted"
            yield Finding((*path, "retain_at_most"), message, frozenset({(*path, "subscriptions")}))
        return
    here = (*path, "subscriptions")
    beside = {name: frozenset({(*path, name)}) for name in ("storage", "transports", "subscriptions")}
    if box.storage is not Storage.LOG:
        yield Finding(here, "needs storage: log: a row of a table is delivered once", beside["storage"])
    if box.transports:
        message = "contradicts subscriptions; expected each transport under the subscription that it serves"
        yield Finding((*path, "transports"), message, beside["subscriptions"])
    if path[0] == "inbox_items":
        message = "are for outbox boxes: a message that cannot be stored would have failed for none of them"
        yield Finding(here, message)
    for name in box.subscriptions:
        if not _NAME.fullmatch(name):
            yield Finding((*here, name), "not a name of a subscription; expected lower case with underscores")
        ending = next(filter(name.endswith, _TABLES), None)
        if ending is not None:
            message = f"would name a table as boxengine names its own; expected a name that does not end in {ending}"
            yield Finding((*here, name), message)
    yield from _limit(path, box)


def _limit(path: Path, box: BoxSettings) -> Iterator[Finding]:
    if box.retain_at_most is not None and box.retain_at_most < box.delivered_retention:
        message = (
            f"{format_iso(box.retain_at_most)} is shorter than delivered items stay "
            f"({format_iso(box.delivered_retention)}); expected at least that"
        )
        yield Finding((*path, "retain_at_most"), message, frozenset({(*path, "retention_delivered_items")}))
