"""The effects that handlers left, read back from their common file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.chaos.jobs.handlers import NO_KEY
from tests.chaos.recorder import END


class Effect(NamedTuple):
    """What an outsider saw of a job at one moment. Times are monotonic seconds, the same clock for all processes."""

    asked: float
    """Before the handler asked whether the job is its own."""
    at: float
    """After the answer, just before the effect."""
    pid: int
    job: int
    token: int
    key: str | None
    """The ``lock_key``."""


def read(path: Path) -> list[Effect]:
    """All effects in the order in which they were written."""
    if not path.exists():
        return []
    lines = path.read_text(errors="replace").splitlines()
    return [_effect(line.split(" ")) for line in lines if line.endswith(f" {END}")]


def _effect(fields: list[str]) -> Effect:
    asked, at, pid, job, token, key, _end = fields
    return Effect(float(asked), float(at), int(pid), int(job), int(token), None if key == NO_KEY else key)
