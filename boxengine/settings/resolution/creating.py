"""Which values a process reads that creates items and delivers none."""

from __future__ import annotations

from boxengine.settings.origin import Path
from boxengine.settings.schema import Settings

_OF_ALL = frozenset({"app", "owner", "bucket_size", "max_payload_bytes", "wakeup"})
"""Keys of the top level that creators read, besides boxes, middlewares and perhaps Redis."""
_OF_THE_WORKER = frozenset({"transports", "subscriptions", "retry_strategies", "source"})
"""Keys of a box that they do not read."""


def read_by_creators(path: Path, settings: Settings) -> bool:
    """Whether a process that only creates items reads the value there."""
    match path:
        case ("redis", *_):
            return settings.wakes_by_redis
        case ("middlewares", kind, *_):
            return str(kind).startswith("create")
        case (("outbox_items" | "inbox_items" | "job_items"), _, key, *_):
            return key not in _OF_THE_WORKER
        case (section, *_):
            return section in _OF_ALL
        case _:
            return True
