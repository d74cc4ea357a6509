"""Decides whose turn it is when some should have more turns than others."""

from __future__ import annotations

from collections.abc import Mapping


class Rotation:
    """Gives turns in proportion to weights, spread evenly: with weights 3 and 1, every fourth turn is the second's."""

    def __init__(self) -> None:
        self._owed: dict[str, float] = {}
        """By name, how many turns it is behind its share; negative if it is ahead."""

    def next(self, weights: Mapping[str, float]) -> str | None:
        """Returns who is next. The weights may change from call to call.

        Args:
            weights: by name, above zero, of those that want a turn. A name that is left out starts afresh when it returns.
        """
        if not weights:
            return None
        total = sum(weights.values())
        self._owed = {name: self._owed.get(name, 0.0) + weight / total for name, weight in weights.items()}
        chosen = max(self._owed, key=lambda name: self._owed[name])
        self._owed[chosen] -= 1
        return chosen
