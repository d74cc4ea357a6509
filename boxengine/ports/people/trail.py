"""The trail of what people did to boxes and items."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """Something that a person did to a box or its items."""

    at: datetime
    who: str
    action: str
    box: str
    what: str
    """Which items, in words; empty where the whole box is meant."""
    outcome: str


class Trail(Protocol):
    """Remembers the latest deeds of people. Raises ``QueueUnavailable`` where the server does not answer."""

    def add(self, deed: Deed) -> None:
        """Remembers it."""

    def latest(self, limit: int) -> list[Deed]:
        """The latest first."""
