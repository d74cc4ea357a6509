"""Python's collector of reference cycles, set for a process that delivers for months."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

CONTAINERS_AT_ONCE = 10_000
"""New lists, tuples, dicts that are left before the youngest are looked through. Python's own 700 is less than one
batch has, and what a batch makes of its items is never part of a cycle: one microsecond of eight per item went into
looking. Many more than all threads' batches together, and what drivers leave behind in cycles takes up memory for long."""


@contextmanager
def put_off() -> Iterator[None]:
    """While modules are imported and the configuration is read: all of that stays, and looking for garbage in it again and
    again takes a tenth of a start. Afterwards it is looked for as ever, only no longer there.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def set_up_for_batches() -> None:
    """Once all is imported and assembled: what is there now stays, so it is never looked through again.

    Without it a full collection stops all threads for some 60 ms, now and then in mid-delivery.
    """
    gc.freeze()
    gc.set_threshold(CONTAINERS_AT_ONCE, 10, 10)
