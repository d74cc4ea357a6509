"""Notices coroutines that a handler has made and not awaited: a forgotten ``await`` writes nothing, and says nothing."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

_C = TypeVar("_C", bound=Coroutine[Any, Any, Any])
FEW = 16
"""Coroutines that are kept without a look at whether they have begun."""


class Unawaited:
    """The coroutines of one visit. Keeps those that have not begun, and few others."""

    def __init__(self) -> None:
        self._made: list[tuple[str, Coroutine[Any, Any, Any]]] = []
        self._look_at = FEW

    def note(self, coroutine: _C, name: str) -> _C:
        """Keeps an eye on it, and returns it.

        Args:
            name: as its author knows it, ``session.execute``.
        """
        if len(self._made) >= self._look_at:
            self._made = [each for each in self._made if _not_begun(each[1])]
            # In proportion to what is left, so that many coroutines made ahead are not gone through for each of them.
            self._look_at = FEW + 2 * len(self._made)
        self._made.append((name, coroutine))
        return coroutine

    def close(self) -> list[str]:
        """Gives up those that nobody has awaited; returns their names, each once, in order."""
        left = [(name, each) for name, each in self._made if _not_begun(each)]
        self._made = []
        for _, each in left:
            each.close()
        return list(dict.fromkeys(name for name, _ in left))


def _not_begun(coroutine: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
