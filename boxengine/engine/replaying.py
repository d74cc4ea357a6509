"""Replays delivered items: as copies behind all items of their keys, each with a header that names its original.

A copy is an item like any other: it is retried, it may fail, and it overtakes no item that was there before it, except, in a box
without strict order, one that waits for its retry.
A replay that is to overtake makes no copy: the item itself goes out again, from its old place before all live items of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from boxengine.domain.box import Box, Storage
from boxengine.domain.item import ONLY_TO, Status
from boxengine.domain.item_id import ItemId
from boxengine.engine.id_batches import id_batches, passed_over
from boxengine.errors import BadUsage, BoxError
from boxengine.ports import Copying, ItemFilter, ItemsStore, Overtaking, Replay

BATCH = 500
"""Items per transaction."""


class Contradiction(BoxError):
    """The options of a replay exclude each other, or the box cannot do what they say."""


def chosen(
    *,
    transports: Sequence[str],
    transport: str | None = None,
    event_name: str | None = None,
    options: Mapping[str, str] | None = None,
    same_identity: bool = False,
    overtaking: bool = False,
) -> Replay:
    """The replay that these options choose.

    Args:
        transports: the name of each that the box has.

    Raises:
        Contradiction: the options exclude each other, or the box does not have exactly one transport of that name.
    """
    reserved = {"headers", ONLY_TO} & set(options or ())
    if reserved:
        raise Contradiction(f"a replay cannot set the option {min(reserved)}")
    if transport is not None and transport not in transports:
        raise Contradiction(f"the box has no transport {transport!r}; it has {', '.join(transports) or 'none'}")
    if transports.count(transport or "") > 1:
        raise Contradiction(
            f"the box has {transports.count(transport or '')} transports {transport!r}, and a replay would go to all of them; "
            "configure transports as a mapping, in which each has a name of its own (name: {class: ...})"
        )
    if not overtaking:
        return Copying(
            transport=transport,
            event_name=event_name,
            options=options or {},
            same_identity=same_identity,
        )
    if event_name is not None or options:
        raise Contradiction(
            "what overtakes is the item itself, which keeps its event name and its options; replay a copy to change them"
        )
    return Overtaking(transport=transport, same_identity=same_identity)


class Replays:
    """Puts delivered items of a box into it once more."""

    def __init__(self, store: ItemsStore) -> None:
        self._store = store

    def count(self, box: Box, which: ItemFilter) -> int:
        """How many items would be replayed."""
        return self._store.count(box, narrowed(which))

    def passed_over(self, box: Box, which: ItemFilter) -> Mapping[ItemId, Status | None]:
        """Of the ids that the filter names, those that are not delivered, with their status; None: no such item."""
        return passed_over(self._store, box, which, [narrowed(which)])

    def run(
        self,
        box: Box,
        which: ItemFilter,
        how: Replay,
        *,
        limit: int | None = None,
        progress: Callable[[int, ItemId], None] = lambda _items, _last_id: None,
    ) -> int:
        """Replays the items that exist when it begins, in the order of the ids; returns how many items.

        Args:
            limit: so many at most, the oldest first; None: all.
            progress: told after each batch how many items it held, and the last of their ids.

        Raises:
            BoxError: the filter names no item, key or time, or the table could not mark copies.
            StoreUnavailable: the batches before are done, and doing it again would do them twice: go on after their last id.
                Items that overtake are pending until they are delivered, and are not taken twice before that.
        """
        which, last_id = narrowed(which), self._store.last_id(box)
        if last_id is None:
            return 0
        # Copies are rows of the same box: without an end, those that are delivered meanwhile would be copied too.
        which = replace(which, up_to=last_id)
        replayed = 0
        for ids in id_batches(self._store, box, [which], size=BATCH, limit=limit):
            replayed += self._store.replay(box, which, ids, how)
            progress(len(ids), ids[-1])
        return replayed


def refuse_log(box: Box) -> None:
    """Raises:
    BadUsage: the box has a log.
    """
    if box.storage is Storage.LOG:
        raise BadUsage(
            f"box {box.name} has storage: log, and its items cannot be replayed: its rows do not record what was delivered; "
            f"to deliver them again, use: boxengine subscriptions rewind {box.name}"
        )


def narrowed(which: ItemFilter) -> ItemFilter:
    """The filter as a replay understands it: delivered items, and never all that there are.

    Raises:
        BadUsage: it names another status, or neither items nor a key nor a time.
    """
    if which.statuses - {Status.DELIVERED}:
        raise BadUsage("replay is for delivered items; others are retried")
    if not (which.ids or which.event_key is not None or which.created_from or which.created_before):
        raise BadUsage("replay needs ids, an event key, or a time: everything that was ever delivered is too much")
    return replace(which, statuses=frozenset({Status.DELIVERED}))
