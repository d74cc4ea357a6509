"""Detects items delivered after a later item of their key. It happens when ids do not follow the order of commits.

The engine cannot prevent it: the application must serialise the writers of a key. It can only report it. That costs a tenth
of a microsecond per item, because a batch whose ids are all higher than those its buckets delivered before needs no
comparison.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import REPLAY_OF, Item
from boxengine.domain.item_id import ItemId
from boxengine.errors import StoreUnavailable
from boxengine.ports import ItemFilter, ItemRow, ItemsStore, Observer, events

REMEMBERED = 20_000
"""How many items of a box to remember, at least. Writers overtake each other within moments, so few are enough."""
PAGE = 200
"""Items are remembered and forgotten in pages of about this many."""
_ID, _KEY, _BUCKET = (itemgetter(Item._fields.index(name)) for name in ("id", "event_key", "bucket"))


class OrderWatch:
    """Remembers the items that this process delivered last. Shared by the threads of one box."""

    def __init__(
        self,
        box: Box,
        *,
        items: ItemsStore,
        observer: Observer,
        losses: Callable[[], int] = lambda: 0,
        server: Callable[[], str | None] = lambda: None,
        remembered: int = REMEMBERED,
    ) -> None:
        """Args:
        items: where to look up items that came late, which is rare.
        losses: grows when connections to the database were lost. Another server may answer since. If it lacks the last commits,
            it gives their ids once more, to items that nothing has overtaken.
        server: what tells the database's server from others; asked once, and where an item seems late. Behind a pooler another
            one may answer although no connection was lost.
        remembered: how many items to remember, at least.
        """
        self._box = box
        self._strict = box.strict_order is not StrictOrder.NONE
        self._items = items
        self._observer = observer
        self._losses = losses
        self._lost = losses()
        self._server = server
        self._known_server: str | None = None
        self._forgotten = 0
        """How often remembered ids were forgotten."""
        self._remembered = remembered
        self._pages: deque[tuple[list[str], list[ItemId]]] = deque()
        """Keys and ids of delivered items, the latest last."""
        self._size = 0
        self._highest: dict[int, ItemId] = {}
        """By bucket, the highest id delivered so far."""
        self._lock = threading.Lock()

    def delivered(self, items: Sequence[Item], ids: Sequence[ItemId]) -> None:
        """Remembers the delivered items of a committed batch, and reports those that came late.

        Args:
            items: all items of the batch, in id order.
            ids: the ids of those that were delivered.
        """
        if len(ids) < len(items):
            chosen = set(ids)
            items = [item for item in items if item.id in chosen]
        forgotten = self._forgotten
        late = self._note(items)
        if (late or self._known_server is None) and not self._is_same_server(items, forgotten):
            return
        if late:
            late = self._promised(late)
        if late:
            self._observer.see(events.OrderViolated(self._box, items=late))

    @property
    def remembered(self) -> int:
        """How many items it remembers now."""
        return self._size

    def _note(self, items: Sequence[Item]) -> list[Item]:
        """Remembers the items and returns those for which a later item of their key is remembered."""
        ids, keys, buckets = list(map(_ID, items)), list(map(_KEY, items)), list(map(_BUCKET, items))
        # A dict keeps the last value of a key, and ids rise: the first dict holds the highest, the second the lowest.
        highest = dict(zip(buckets, ids, strict=True))
        lowest = dict(zip(reversed(buckets), reversed(ids), strict=True))
        with self._lock:
            if (lost := self._losses()) != self._lost:
                self._lost = lost
                self._forget()
            known = self._highest
            below = {bucket for bucket, lowest_id in lowest.items() if bucket in known and lowest_id < known[bucket]}
            late = self._late([item for item in items if item.bucket in below]) if below else []
            for bucket, highest_id in highest.items():
                if bucket not in known or highest_id > known[bucket]:
                    known[bucket] = highest_id
            self._remember(keys, ids)
        return late

    def _is_same_server(self, items: Sequence[Item], forgotten: int) -> bool:
        """Whether the server that answers is known to be the one that gave the remembered ids. If it is another one, they are
        forgotten, except for these items.

        Args:
            forgotten: how often ids had been forgotten before these items were compared with them.
        """
        try:
            server = self._server()
        except StoreUnavailable:
            return False
        with self._lock:
            known, self._known_server = self._known_server, server
            if known in (None, server):
                return forgotten == self._forgotten  # or another thread has met the other server
            self._forget()
        self._note(items)
        return False

    def _forget(self) -> None:
        self._forgotten += 1
        self._pages.clear()
        self._size = 0
        self._highest.clear()

    def _late(self, suspects: Sequence[Item]) -> list[Item]:
        wanted = set(map(_KEY, suspects))
        last: dict[str, ItemId] = {}
        for keys, ids in self._pages:
            if not wanted.isdisjoint(keys):
                for key, item_id in zip(keys, ids, strict=True):
                    if key in wanted and (key not in last or item_id > last[key]):
                        last[key] = item_id
        return [item for item in suspects if item.event_key in last and item.id < last[item.event_key]]

    def _remember(self, keys: list[str], ids: list[ItemId]) -> None:
        self._size += len(ids)
        if self._pages and len(self._pages[-1][1]) < PAGE:
            self._pages[-1][0].extend(keys)
            self._pages[-1][1].extend(ids)
        else:
            self._pages.append((keys, ids))
        while self._size - len(self._pages[0][1]) >= self._remembered:
            self._size -= len(self._pages.popleft()[1])

    def _promised(self, late: Sequence[Item]) -> list[Item]:
        """The late items that break a promise: without strict order, later items may pass one that failed or was delayed.

        One that a replay sends again was in order the first time.
        """
        late = [item for item in late if not _goes_out_again(item)]
        if self._strict:
            return late
        untried = {item.id: item for item in late if item.processed_at is None}
        if not untried:
            return []
        try:
            which = ItemFilter(ids=tuple(untried))
            rows = self._items.page(self._box, which, after=None, limit=len(untried))
        except StoreUnavailable:
            return []  # what cannot be judged is not reported; an audit finds it
        for row in rows:
            if may_wait(row):
                del untried[row.id]
        return list(untried.values())


def _goes_out_again(item: Item) -> bool:
    try:
        headers = item.options.get("headers")
    except (TypeError, ValueError):
        return False  # unreadable options; reported where they are needed
    original = headers.get(REPLAY_OF) if isinstance(headers, Mapping) else None
    return isinstance(original, str) and original.replace("-", "") == item.uuid.replace("-", "")


def may_wait(row: ItemRow) -> bool:
    """Whether later items of its key may overtake it when the order is not strict."""
    return row.errors_count > 0 or row.error_log is not None or row.available_at is not None
