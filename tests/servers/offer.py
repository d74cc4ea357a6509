"""What a test session knows about one server."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class How(enum.Enum):
    """How the session gets a server."""

    GIVEN = "given"
    EMBEDDED = "embedded"
    STARTED = "started"
    MOCK = "mock"
    ABSENT = "absent"
    BROKEN = "broken"  # it exists but did not start: a failure, never a skip


@dataclass(frozen=True, slots=True)
class Offer:
    """One server: how it is obtained, what it is, and where it answers once it runs."""

    server: str
    how: How
    detail: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.server}: {self.how.value} ({self.detail})"
