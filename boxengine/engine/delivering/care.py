"""Items that end the process that sends them: found within four deaths as a rule, and failed with a reason.

The first batch of a bucket whose holder died goes out whole, with the bucket noted outside the process: most workers die
of something else, and one by one is slow. Where the note was left open, the next worker sends that bucket's items one at
a time, and notes each. A worker that dies with a note open was ended by that item, or by somebody else at that moment: an
operator, a lack of memory. So one death accuses nobody; an item that was alone in hand at two of them is failed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.errors import QueueUnavailable
from boxengine.ports import InHand

ENDED = Failure("the worker ended while sending this item")
DEATHS = 2
"""Of workers that had nothing but this item in hand."""
ALONE_WITHIN = 10.0
"""Seconds for which a thread waits until no other sends with care. Two notes of one process would accuse an innocent item."""


class Care:
    """Which buckets need care, and one thread of the process at a time that sends one item with it. Shared by all threads."""

    def __init__(self, in_hand: InHand) -> None:
        self._in_hand = in_hand
        self._alone = threading.Lock()

    def suspects(self, box: Box, bucket: int) -> bool:
        """Whether a worker died in the first batch of the bucket; notes that this one begins it.

        Raises:
            QueueUnavailable: it cannot be noted, so nothing may be sent.
        """
        return self._in_hand.put(box, _bucket(bucket)) > 0

    def clear(self, box: Box, bucket: int) -> None:
        """The worker has survived the bucket."""
        with suppress(QueueUnavailable):
            self._in_hand.take_out(box, _bucket(bucket))

    @contextmanager
    def one(self) -> Iterator[Caution | None]:
        """For one item. None: another thread hangs with its own, and nothing can be noted now."""
        if not self._alone.acquire(timeout=ALONE_WITHIN):
            yield None
            return
        caution = Caution(self._in_hand)
        try:
            yield caution
        finally:
            caution.over()
            self._alone.release()


class Caution:
    """One item, from before it is sent until its outcome is recorded."""

    def __init__(self, in_hand: InHand) -> None:
        self._in_hand = in_hand
        self._noted: tuple[Box, str] | None = None

    def ends_workers(self, item: Item) -> bool:
        """Whether ``DEATHS`` workers that are gone noted it and never took it out; notes it for this one.

        Raises:
            QueueUnavailable: it cannot be noted, so it must not be sent.
        """
        # An id may be used again, after a restore or in another environment; a uuid is not.
        name = f"{item.id}:{item.uuid}"
        deaths = self._in_hand.put(item.box, name)
        self._noted = item.box, name
        return deaths >= DEATHS

    def over(self) -> None:
        """The worker has survived it."""
        if self._noted is not None:
            with suppress(QueueUnavailable):
                self._in_hand.take_out(*self._noted)


def _bucket(number: int) -> str:
    """What a bucket is noted as; an item's name ends in its uuid, never in a bucket's number."""
    return f"bucket:{number}"
