"""A command that goes through many boxes goes on with the others where one fails, and names each failure at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from boxengine.errors import BoxError

if TYPE_CHECKING:
    from boxengine.ports import HistoryStore

T = TypeVar("T")


class BoxByBox:
    """Collects the failures of boxes."""

    def __init__(self, database: HistoryStore) -> None:
        self._database = database
        self._failed: dict[str, BoxError] = {}

    @property
    def failed(self) -> frozenset[str]:
        """Names of the boxes at which something failed."""
        return frozenset(self._failed)

    def at(self, box: str, do: Callable[[], T]) -> T | None:
        """What it returns; None if it failed, or something before it did at this box.

        Raises:
            Unavailable: the database is gone, so no other box is worth a try.
        """
        if box in self._failed:
            return None
        try:
            return do()
        except BoxError as error:
            self._database.now()
            self._failed[box] = error
            return None

    def end(self) -> None:
        """Raises:
        BoxError: what failed, a line for each box; a single failure as it is.
        """
        if len(self._failed) == 1:
            raise next(iter(self._failed.values()))
        if self._failed:
            raise BoxError("\n".join(f"box {name}: {_bare(name, error)}" for name, error in self._failed.items()))


def _bare(box: str, error: BoxError) -> str:
    """The message without its own mention of the box."""
    return str(error).removeprefix(f"box {box}: ")
