"""Buckets whose last holder died: the items that it may have been sending go first, and with care."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.care import Care
from boxengine.engine.delivering.holds.drain import Drain
from boxengine.engine.delivering.holds.sizing import CAREFUL_ITEMS
from boxengine.engine.delivering.work import NO_CAUTION


def drained_with_care(drain: Drain, care: Care, *, until: float, must_stop: Callable[[], bool]) -> bool:
    """Sends the items that dead holders may have been sending; returns whether it finished.

    It goes bucket by bucket, and one item at a time where a second holder died in the bucket's first batch. If it does not
    finish, all leases run out, and the next holder of these buckets is careful too.
    """
    doubtful = dict.fromkeys(sorted(drain.orphaned), CAREFUL_ITEMS)
    """By bucket, how many items may still be sent one by one."""
    while doubtful:
        if must_stop():
            drain.holding.leave_all()
            return False
        bucket, left = next(iter(doubtful.items()))
        whole = left == CAREFUL_ITEMS and not care.note(drain.box, bucket)
        try:
            with nullcontext(NO_CAUTION) if whole else care.one() as caution:
                report = drain.careful_step(bucket, caution, until=until)
        except BaseException as error:
            if not ends_the_worker(error):
                care.clear(drain.box, bucket)  # the database was away, and this worker is alive
            raise
        left = 0 if whole else left - 1
        if not left or bucket in report.exhausted:
            care.clear(drain.box, bucket)
        del doubtful[bucket]
        if left and report.claimed:
            doubtful[bucket] = left  # behind the others
        doubtful = {each: number for each, number in doubtful.items() if each in drain.buckets}
    return True
