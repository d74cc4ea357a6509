"""Where new items are written: the caller's own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from boxengine.domain.item_id import ItemId

Attributes = dict[str, Any]


class Inserted(NamedTuple):
    """What came of an insertion."""

    ids: list[ItemId]
    """In the order given; of a row with a known ``dedup_key`` that of the first."""
    known: frozenset[ItemId] = frozenset()
    """Those of rows that were there already."""


class NewRows(Protocol):
    """Inserts rows of one box into the caller's open transaction."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns a caller may set."""

    def insert(self, session: Any, rows: Sequence[Attributes]) -> Inserted:
        """Inserts the rows, as far as they are not there already."""


class CreateBatch(Protocol):
    """Inserts items of one box and returns their ids in the order given (``Creator.create_batch``)."""

    def __call__(
        self, session: Any, batch: Sequence[Mapping[str, Any]], /, *, known: set[ItemId] | None = None
    ) -> list[ItemId]:
        """Args:
        known: takes in the ids of items that were there already.
        """
