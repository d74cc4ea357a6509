"""The trail of what people did to boxes and items."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """An action of a person on a box or its items."""

    at: datetime
    who: str
    action: str
    box: str
    what: str
    """Which items, in words; empty: the whole box."""
    outcome: str


class Trail(Protocol):
    """Remembers the latest deeds of people. Raises ``QueueUnavailable`` if the server does not answer."""

    def add(self, deed: Deed) -> None:
        """Remembers the deed."""

    def latest(self, limit: int) -> list[Deed]:
        """The remembered deeds, the latest first."""
