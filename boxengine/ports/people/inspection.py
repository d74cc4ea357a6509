"""Questions about a box's rows, asked by a person who waits for the answer.

Each is answered in milliseconds on a table of millions of rows. If no index leads to the answer, a limited number of rows is
searched, and the result says how far; the caller may continue from there.
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
    """In which direction a page extends from the id that it starts at."""

    OLDER = "older"
    NEWER = "newer"


class Found(NamedTuple):
    """The result of one look."""

    rows: Sequence[ItemRow]
    """The highest id first, without payloads; at most ``limit``."""
    searched_to: int | None
    """The id up to which rows were searched, and where the next search continues; None: there are no more rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The state of a box's table on disk, from the database's statistics; None: not known."""

    bytes: int | None
    """The size with all indexes."""
    dead_rows: int | None
    live_rows: int | None
    vacuumed_at: datetime | None
    """The last vacuum, automatic or not."""


class Inspector(Protocol):
    """Every method raises ``StoreUnavailable`` if the database does not answer in time."""

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
        """The matching rows nearest to ``start`` on one side of it, without ``start`` itself. None: from the end of the table
        opposite to ``towards``.

        It may return fewer rows than there are, and then says how far it searched.

        Args:
            enough: asked whether to stop, after each searched part of the table that did not fill the page.
        """

    def count(self, box: Box, which: ItemFilter, *, limit: int) -> Count:
        """How many rows match, as far as one search can tell; counts at most ``limit``."""

    def tried(self, box: Box, *, limit: int) -> list[ItemRow]:
        """Pending rows with failed attempts, among the first of each bucket; the lowest id first."""

    def holding_back(self, box: Box, row: ItemRow) -> ItemRow | None:
        """The first row before this one that failed and keeps it waiting under the box's strict order; None: none does."""

    def ahead(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        """Pending rows of the same bucket with a smaller id."""

    def followers(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        """Pending rows that strict order keeps behind this one. At most ``limit`` rows of its bucket are examined."""

    def neighbours(self, box: Box, row: ItemRow, *, limit: int) -> tuple[list[ItemRow], list[ItemRow]]:
        """Rows of the same key just before and just after this one; each list has the highest id first."""

    def table(self, box: Box) -> TableState:
        """The table as the database's statistics describe it."""
