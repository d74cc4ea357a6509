"""What became of the items of one batch, gathered so that it is written in as few statements as possible."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from boxengine.domain.item import Status


class Verdict(Enum):
    """What a retry strategy says about an item that was tried before."""

    PROCESS = "process"
    SKIP = "skip"
    DISCARD = "discard"


PROCESS, SKIP, DISCARD = Verdict.PROCESS, Verdict.SKIP, Verdict.DISCARD


@dataclass(frozen=True, slots=True)
class Failure:
    """Returned by a transport: the attempt failed, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One item whose attempt failed, as its row will be written."""

    id: int
    status: Status
    """PENDING while retries are left, else FAILED."""
    errors_count: int
    error_log: str


@dataclass(slots=True)
class Settlement:
    """The outcomes of one batch. Items in none of the lists keep their rows untouched."""

    delivered: list[int] = field(default_factory=list)
    discarded: list[int] = field(default_factory=list)
    failed: list[FailedAttempt] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.delivered or self.discarded or self.failed)
