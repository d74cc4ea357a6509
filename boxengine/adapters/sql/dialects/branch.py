"""Reads rows of many buckets in one statement, for databases without ``LATERAL``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.dialects.base import Row


class Branch(NamedTuple):
    """The query of one bucket's rows, one branch of a ``UNION ALL``."""

    text: str
    order: tuple[str, ...]
    """The names of the placeholders' values, in their order."""

    @classmethod
    def of(cls, text: str) -> Branch:
        """Parses a text with ``:bucket``, ``:after`` and ``:share``, which are left alone inside quoted names."""
        order: list[str] = []

        def place(found: re.Match[str]) -> str:
            if found[1] is None:
                return found[0]
            order.append(found[1])
            return "%s"

        return cls(re.sub(r"`(?:[^`]|``)*`|:(bucket|after|share)\b", place, text), tuple(order))

    def rows(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> Sequence[Row]:
        if not buckets:
            return ()
        cursor.execute(*self.of_all(buckets, share))
        rows: Sequence[Row] = cursor.fetchall()
        return rows

    def of_all(self, buckets: Mapping[int, int], share: int) -> tuple[str, list[int]]:
        """The query of all these buckets, at least one, and its values."""
        values: list[int] = []
        for bucket, after in buckets.items():
            own = {"bucket": bucket, "after": after, "share": share}
            values += [own[name] for name in self.order]
        if len(buckets) == 1:
            return self.text, values
        return " UNION ALL ".join([f"({self.text})"] * len(buckets)), values
