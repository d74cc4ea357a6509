"""Where new items are written: the caller's own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from boxengine.domain.item_id import ItemId

Attributes = dict[str, Any]


class Inserted(NamedTuple):
    """The result of an insertion."""

    ids: list[ItemId]
    """In the order given. For a row whose ``dedup_key`` is known: the id of the existing row."""
    known: frozenset[ItemId] = frozenset()
    """The ids of rows that existed already."""


class NewRows(Protocol):
    """Inserts rows of one box into the caller's open transaction."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns a caller may set."""

    def insert(self, session: Any, rows: Sequence[Attributes]) -> Inserted:
        """Inserts the rows that do not exist yet."""


class CreateBatch(Protocol):
    """Inserts items of one box and returns their ids in the order given (``Creator.create_batch``)."""

    def __call__(
        self, session: Any, batch: Sequence[Mapping[str, Any]], /, *, known: set[ItemId] | None = None
    ) -> list[ItemId]:
        """Args:
        known: a set to which the ids of items that existed already are added.
        """
