"""Finds items that kill the process that sends them, usually within five deaths, and fails them with a reason.

Most workers die of something else, and sending one by one is slow. So after a worker's death the first batch of its bucket
goes out whole, with a note about the bucket kept outside the process. If that worker dies too, its note stays, and the next
worker sends the bucket's items one at a time, with a note for each. A worker that dies with a note in place was killed by
that item, or by chance at that moment (an operator, a lack of memory). One death therefore proves nothing, and two do not prove
enough where workers are killed every few seconds; an item that was alone in hand at three deaths is failed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.delivering.work import NO_CAUTION, Caution
from boxengine.errors import QueueUnavailable
from boxengine.ports import InHand

ENDED = Failure("the worker ended while sending this item")
DEATHS = 3
"""Deaths of workers that had only this item in hand, after which it is failed."""
ALONE_WITHIN = 10.0
"""Seconds to wait until no other thread sends with care. Two notes of one process could accuse an innocent item."""


class Care:
    """Knows which buckets need care, and lets one thread at a time send an item with it. Shared by all threads."""

    def __init__(self, in_hand: InHand) -> None:
        self._in_hand = in_hand
        self._alone = threading.Lock()

    def note(self, box: Box, bucket: int) -> bool:
        """Notes that this worker begins the bucket's first batch; returns whether another worker died in it.

        Raises:
            QueueUnavailable: the note cannot be made, so nothing may be sent.
        """
        return self._in_hand.put(box, _bucket(bucket)) > 0

    def clear(self, box: Box, bucket: int) -> None:
        """Removes the note: the worker survived the bucket."""
        with suppress(QueueUnavailable):
            self._in_hand.take_out(box, _bucket(bucket))

    @contextmanager
    def one(self) -> Iterator[Caution]:
        """The caution for one item; none while another thread hangs with its own, as two notes could accuse an innocent item."""
        if not self._alone.acquire(timeout=ALONE_WITHIN):
            yield NO_CAUTION
            return
        caution = OneNoted(self._in_hand)
        try:
            yield caution
        finally:
            caution.over()
            self._alone.release()


class OneNoted:
    """A batch of one item, with a note from before it is sent until its outcome is recorded."""

    def __init__(self, in_hand: InHand) -> None:
        self._in_hand = in_hand
        self._noted: tuple[Box, str] | None = None

    def rows(self, usual: int) -> int:
        """See ``Caution.rows``."""
        return min(1, usual)

    def condemned(self, items: Sequence[Item]) -> Sequence[Item]:
        """The item, if ``DEATHS`` workers died with a note about it. Makes this worker's note.

        Raises:
            QueueUnavailable: the note cannot be made, so the item must not be sent.
        """
        (item,) = items
        # Ids repeat after a restore and in other environments; uuids do not.
        name = f"{item.id}:{item.uuid}"
        # Known before it is made: if the answer is lost, the note may be there, and would count as this worker's death.
        self._noted = item.box, name
        deaths = self._in_hand.put(item.box, name)
        return items if deaths >= DEATHS else ()

    def over(self) -> None:
        """Removes the note: the worker survived the item."""
        if self._noted is not None:
            with suppress(QueueUnavailable):
                self._in_hand.take_out(*self._noted)


def _bucket(number: int) -> str:
    """What a bucket is noted as; an item's name ends in its uuid, never in a bucket's number."""
    return f"bucket:{number}"
