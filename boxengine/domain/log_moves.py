"""Where a reader's position goes when a person sends it back or ahead in its log.

Both use a batch: rows up to its place need not go out, whichever transactions wrote them. A transaction that is still open
is in no snapshot yet, so its items are neither passed nor delivered twice.
"""

from __future__ import annotations

from dataclasses import replace

from boxengine.domain.log_progress import Position


def sent_back(position: Position, to: int, *, now: str, began: int, waiting: int | None) -> Position:
    """The position from which every item of the bucket with this id or a higher one goes out again.

    Args:
        now: the snapshot of this moment.
        began: the lowest transaction number among those items; the first to be read again.
        waiting: the lowest id that has not been passed; None: all have.
    """
    first = to if waiting is None else min(to, waiting)
    passed = _before(position.passed, began)
    return replace(position, passed=passed, batch=now, place=first - 1, floor=None, ceiling=None)


def sent_ahead(position: Position, to: int | None, *, now: str, highest: int) -> Position | None:
    """The position that has passed what waits below this id; None if it stays.

    Args:
        to: the lowest id of those that must still go out; None: nothing must.
        now: the snapshot of this moment.
        highest: the highest id of the bucket.
    """
    if to is None:
        return replace(
            position, passed=now, batch=None, place=0, floor=None, ceiling=None, high=max(position.high, highest)
        )
    if position.batch is not None and to <= position.place:
        # Items that were committed late, with ids below the place, can be passed only together with those they follow.
        return None
    high = max(position.high, to - 1)
    return replace(position, batch=now, place=to - 1, floor=None, ceiling=None, high=high)


def _before(snapshot: str, number: int) -> str:
    """The same snapshot without the transactions from this number on."""
    _, beyond, running = snapshot.split(":")
    end = min(int(beyond), number)
    still = sorted(each for each in map(int, filter(None, running.split(","))) if each < end)
    return f"{still[0] if still else end}:{end}:{','.join(map(str, still))}"
