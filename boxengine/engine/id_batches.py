"""Walks through the rows that a filter selects, in batches of ids, for actions on many items; says which ids it passes over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.ports import ItemFilter, ItemsStore


def id_batches(
    store: ItemsStore, box: Box, filters: Iterable[ItemFilter], *, size: int, limit: int | None
) -> Iterator[list[ItemId]]:
    """Filter after filter, each in the order of its ids. The next batch is looked for once the one before has been dealt with.

    Args:
        size: ids of a batch, at most.
        limit: ids in all, at most; None: every one.
    """
    remaining = limit
    for which in filters:
        after = None
        while remaining is None or remaining > 0:
            ids = store.ids(box, which, after=after, limit=size if remaining is None else min(size, remaining))
            if not ids:
                break
            yield ids
            after = ids[-1]
            remaining = None if remaining is None else remaining - len(ids)


def passed_over(
    store: ItemsStore, box: Box, which: ItemFilter, takes: Iterable[ItemFilter]
) -> Mapping[ItemId, Status | None]:
    """Of the ids that ``which`` names, those that no filter of ``takes`` means, with their status; None: no such item."""
    if not which.ids:
        return {}
    limit = len(which.ids)
    taken = {each for part in takes for each in store.ids(box, part, after=None, limit=limit)}
    rest = tuple(each for each in which.ids if each not in taken)
    rows = store.page(box, ItemFilter(ids=rest), after=None, limit=limit) if rest else ()
    found = {row.id: Status(row.status) for row in rows}
    return {each: found.get(each) for each in rest}
