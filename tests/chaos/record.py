"""What the workers' transports received, read back from their common file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.chaos.recorder import END


class Attempt(NamedTuple):
    """One item that reached a transport."""

    at: float
    """Monotonic seconds, the same clock for all processes."""
    pid: int
    box: str
    id: int
    bucket: int
    key: str
    taken: bool
    """Whether the transport took it; else it was refused, and is to be tried again."""


def read(path: Path) -> list[Attempt]:
    """All attempts in the order in which they were received."""
    if not path.exists():
        return []
    lines = path.read_text(errors="replace").splitlines()
    return [_attempt(line.split(" ")) for line in lines if line.endswith(f" {END}")]


def _attempt(fields: list[str]) -> Attempt:
    at, pid, box, id_, bucket, key, taken, _end = fields
    return Attempt(float(at), int(pid), box, int(id_), int(bucket), key, taken == "1")
