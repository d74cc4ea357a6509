"""Questions about the rows of a box that a person waits for.

Each is answered in milliseconds on a table of millions. Where no index leads to the answer, a question looks at a limited
number of rows and says how far it came; the caller may go on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from boxengine.domain.box import Box
from boxengine.ports.people.census import Count
from boxengine.ports.people.items import ItemFilter, ItemRow


class Towards(StrEnum):
    """Which way a page lies from the id that it starts at."""

    OLDER = "older"
    NEWER = "newer"


class Found(NamedTuple):
    """The result of one look."""

    rows: Sequence[ItemRow]
    """The highest id first, without payloads, at most as many as were asked for."""
    searched_to: int | None
    """The id up to which rows were looked at and after which a next look goes on; None: there are no more rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """How a box's table lies on disk, as the database's statistics know it; None where they do not."""

    bytes: int | None
    """The size with all indexes."""
    dead_rows: int | None
    live_rows: int | None
    vacuumed_at: datetime | None
    """The last time, by whomever."""


class Inspector(Protocol):
    """Every method raises ``StoreUnavailable`` where the database does not answer, or not in time."""

    def find(
        self,
        box: Box,
        which: ItemFilter,
        *,
        start: int | None,
        towards: Towards,
        limit: int,
        enough: Callable[[], bool] = lambda: True,
    ) -> Found:
        """The rows that are meant on one side of ``start``, itself not among them, the nearest of them; None: from the end
        that lies opposite of ``towards``.

        It may come back with fewer rows than there are, and then says how far it searched.

        Args:
            enough: asked after each part of the table that was searched and did not fill the page: whether to leave it at that.
        """

    def count(self, box: Box, which: ItemFilter, *, limit: int) -> Count:
        """How many rows are meant, as far as one look tells; at most ``limit`` are counted."""

    def troubled(self, box: Box, *, limit: int) -> list[ItemRow]:
        """Rows whose attempts failed: those that failed for good, the newest first, then those that will be tried again."""

    def holding_back(self, box: Box, row: ItemRow) -> ItemRow | None:
        """The first row before this one that failed and keeps it waiting under the box's strict order; None: none does."""

    def ahead(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        """Pending rows of the same bucket with a smaller id."""

    def followers(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        """Pending rows that strict order keeps behind this one; of no more than ``limit`` rows of its bucket it is asked whether
        they do."""

    def neighbours(self, box: Box, row: ItemRow, *, limit: int) -> tuple[list[ItemRow], list[ItemRow]]:
        """Rows of the same key close to this one, before and after, each list the highest id first."""

    def table(self, box: Box) -> TableState:
        """The table as the database's statistics describe it."""
