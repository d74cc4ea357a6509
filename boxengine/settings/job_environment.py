"""What environment variables say of long jobs, where no file does: the names are those of services whose queue is a table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from boxengine.settings.diagnosis import Finding
from boxengine.settings.origin import ENVIRONMENT, Path, Source

DSN, LEASE, WORKERS = "DL_DB_DSN", "DL_DEFAULT_LEASE_TTL_SEC", "WORKERS_JSON"
OF_ALL: Mapping[str, str] = MappingProxyType({"heartbeat": "DL_HEARTBEAT_SEC", "reaper_period": "DL_REAPER_PERIOD_SEC"})
"""Keys of ``jobs``."""
_SHAPE = 'expected a list such as [{"queue": "report_job", "concurrency": 2}]'


def add_job_defaults(data: dict[str, Any], sources: dict[Path, Source], environ: Mapping[str, str]) -> list[Finding]:
    """Puts in what the environment says for keys that no file has, in place; returns what is wrong with it.

    A configuration without boxes of jobs is left alone.
    """
    boxes = data.get("job_items")
    if not isinstance(boxes, dict) or not boxes:
        return []
    defaults = _Defaults(data, sources)
    if environ.get(DSN):
        defaults.add(("database", "url"), environ[DSN], DSN)
    for key, variable in OF_ALL.items():
        if environ.get(variable):
            defaults.add(("jobs", key), _number(environ[variable]), variable)
    if environ.get(LEASE):
        for name in boxes:
            defaults.add(("job_items", name, "lease_ttl"), _number(environ[LEASE]), LEASE)
    found = []
    for entry in _workers(environ.get(WORKERS)):
        if isinstance(entry, Finding):
            found.append(entry)
        elif entry[0] not in boxes:
            known = ", ".join(map(str, boxes))
            found.append(Finding(("job_items",), f"${WORKERS} names the queue {entry[0]!r}; expected one of {known}"))
        else:
            defaults.add(("job_items", entry[0], "concurrency"), entry[1], WORKERS)
    return found


class _Defaults:
    def __init__(self, data: dict[str, Any], sources: dict[Path, Source]) -> None:
        self._data = data
        self._sources = sources

    def add(self, path: tuple[str, ...], value: Any, variable: str) -> None:
        """Unless a file says otherwise, or something stands there that is refused later on."""
        inner: Any = self._data
        for part in path[:-1]:
            if inner.get(part) is None:
                inner[part] = {}
            inner = inner[part]
            if not isinstance(inner, dict):
                return
        if inner.get(path[-1]) is None:
            inner[path[-1]] = value
            self._sources.pop(path[:-1], None)
            self._sources[path] = Source(ENVIRONMENT, (variable,))


def _workers(text: str | None) -> Iterator[tuple[str, Any] | Finding]:
    """Queues and how many of their jobs run at once."""
    if not text:
        return
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        yield Finding(("job_items",), f"${WORKERS}: {_SHAPE}")
        return
    for entry in entries:
        if (
            not isinstance(entry, dict)
            or entry.keys() != {"queue", "concurrency"}
            or not isinstance(entry["queue"], str)
        ):
            yield Finding(("job_items",), f"${WORKERS}: {_SHAPE}; got {json.dumps(entry)[:80]}")
        else:
            yield entry["queue"], entry["concurrency"]


def _number(text: str) -> float | str:
    """Seconds; what is no number is refused later on, where it stands."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
