"""Whose turn it is, where some are to have more turns than others."""

from __future__ import annotations

from collections.abc import Mapping


class Rotation:
    """Gives turns in proportion to weights, and as evenly as they allow: of 3 to 1 every fourth goes to the second."""

    def __init__(self) -> None:
        self._owed: dict[str, float] = {}
        """By name, the turns that it should have had, less those that it had."""

    def next(self, weights: Mapping[str, float]) -> str | None:
        """Who is next; the weights may differ from call to call.

        Args:
            weights: by name, above zero, of those that want a turn. Whoever is missing begins anew when it is back.
        """
        if not weights:
            return None
        total = sum(weights.values())
        self._owed = {name: self._owed.get(name, 0.0) + weight / total for name, weight in weights.items()}
        chosen = max(self._owed, key=lambda name: self._owed[name])
        self._owed[chosen] -= 1
        return chosen
