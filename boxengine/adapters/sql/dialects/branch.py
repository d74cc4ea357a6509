"""Rows of many buckets in one statement, for databases without ``LATERAL``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from boxengine.adapters.sql.dialects.base import Cursor, Row


class Branch(NamedTuple):
    """The query of one bucket's rows, to be joined with those of others."""

    text: str
    order: tuple[str, ...]
    """Which values the placeholders stand for, one after the other."""

    @classmethod
    def of(cls, text: str) -> Branch:
        """From a text with ``:bucket``, ``:after`` and ``:share``, which inside of quoted names mean nothing."""
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
