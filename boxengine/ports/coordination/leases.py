"""Named locks with a time limit."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol


class Leases(Protocol):
    """Named locks with a time limit. They save work; nothing depends on them for correctness."""

    def acquire(self, name: str, token: str, *, ttl: timedelta) -> bool:
        """True if nobody held it, or ``token`` already did; it then lasts for ``ttl`` from now."""

    def release(self, name: str, token: str) -> None:
        """Frees it if ``token`` holds it."""
