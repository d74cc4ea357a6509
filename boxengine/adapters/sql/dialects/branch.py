"""Reads rows of many buckets in one statement, for databases without ``LATERAL``.

InnoDB passes index entries of rows that were delivered without looking where the range ends. Beside an old snapshot, a search
behind an id of one bucket so walks over all such entries of all buckets that follow. A search for a whole bucket ends with
the bucket, and the primary key has no such entries. So a branch has up to three texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.dialects.base import Row

NEAR = 10_000
"""Behind the bounds, the last so many ids are searched by primary key: for all buckets at once, in a few milliseconds."""


class Branch(NamedTuple):
    """The query of one bucket's rows, one branch of a ``UNION ALL``."""

    text: str
    order: tuple[str, ...]
    """The names of the placeholders' values, in their order."""
    start: Branch | None = None
    """The same from the start, without the condition on the id."""
    near: Callable[[int, str, int], str] | None = None
    """The text by primary key, of an id after which to read, a list of buckets, and how many rows of each."""

    @classmethod
    def of(cls, text: str, *, start: str | None = None, near: Callable[[int, str, int], str] | None = None) -> Branch:
        """Parses texts with ``:bucket``, ``:after`` and ``:share``, which are left alone inside quoted names."""
        order: list[str] = []

        def place(found: re.Match[str]) -> str:
            if found[1] is None:
                return found[0]
            order.append(found[1])
            return "%s"

        parsed = re.sub(r"`(?:[^`]|``)*`|:(bucket|after|share)\b", place, text)
        return cls(parsed, tuple(order), None if start is None else cls.of(start), near)

    def rows(
        self, cursor: Cursor, buckets: Mapping[int, int], share: int, *, newest: int | None = None
    ) -> Sequence[Row]:
        if not buckets:
            return ()
        cursor.execute(*self.of_all(buckets, share, newest=newest))
        rows: Sequence[Row] = cursor.fetchall()
        return rows

    def of_all(self, buckets: Mapping[int, int], share: int, *, newest: int | None = None) -> tuple[str, list[int]]:
        """The query of all these buckets, at least one, and its values.

        Args:
            newest: the highest id, if delivered rows have left many index entries behind; otherwise None.
        """
        texts: list[str] = []
        values: list[int] = []
        near: dict[int, list[int]] = {}
        for bucket, after in buckets.items():
            if newest is not None and self.near is not None and newest - after <= NEAR:
                near.setdefault(after, []).append(bucket)
                continue
            one = self if after or self.start is None else self.start
            own = {"bucket": bucket, "after": after, "share": share}
            texts.append(one.text)
            values += [own[name] for name in one.order]
        if self.near is not None:
            texts += [self.near(after, ", ".join(map(str, some)), share) for after, some in near.items()]
        if len(texts) == 1:
            return texts[0], values
        return " UNION ALL ".join(f"({text})" for text in texts), values
