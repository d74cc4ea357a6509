"""Which boxes people have paused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from boxengine.domain.box import Box


class Pauses(Protocol):
    """Which boxes people have paused."""

    def set(self, box: Box, *, polling_enabled: bool) -> None:
        """Remembers, for all workers, whether the box is polled or paused."""

    def forget(self, box: Box) -> None:
        """Forgets what people decided about the box: it follows the configuration again."""

    def polling_enabled(self, boxes: Sequence[Box]) -> Mapping[str, bool]:
        """The boxes that somebody paused or resumed, by name; the others follow the configuration."""
