"""Tunes Python's cyclic garbage collector for a process that delivers for months."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

CONTAINERS_AT_ONCE = 10_000
"""How many surviving lists, tuples and dicts trigger a collection of the youngest generation. Python's own 700 is less than
one batch creates, and what a batch makes of its items is never part of a cycle: collecting took one of the eight microseconds
per item. With a number far above that of all threads' batches together, cycles left by drivers would hold memory for long."""


@contextmanager
def put_off() -> Iterator[None]:
    """Suspends collection while modules are imported and the configuration is read: all of that stays, and searching it for
    garbage again and again takes a tenth of a start. Afterwards collection works as before, but skips those objects.
    Can be nested: the outermost one decides.
    """
    outermost = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if outermost:
            gc.freeze()
            gc.enable()


def set_up_for_batches() -> None:
    """Call it once everything is imported and assembled: what exists then stays, so it is never searched again.

    Otherwise a full collection stops all threads for about 60 ms, now and then in the middle of a delivery.
    """
    gc.freeze()
    gc.set_threshold(CONTAINERS_AT_ONCE, 10, 10)
