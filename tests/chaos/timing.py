"""How long items waited: read from when they were committed and when they were received."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from tests.chaos.checker import Injection
from tests.chaos.record import Attempt

Bucket = tuple[str, int]
"""Box and number: the unit that one worker holds at a time."""
Commits = Mapping[tuple[str, int], float]
"""Box and id of each item, and the monotonic time of its commit."""


def longest_stall(attempts: Sequence[Attempt], commits: Commits) -> float:
    """Seconds for which items of one bucket were waiting and none of them was sent, the longest such time."""
    longest = 0.0
    for sent in _by_bucket(attempts).values():
        arrivals = sorted((commits.get((each.box, each.id), each.at), each.at) for each in sent if each.taken)
        longest = max(longest, _longest_wait(arrivals, [each.at for each in sent]))
    return longest


def recovery(attempts: Sequence[Attempt], commits: Commits, injections: Sequence[Injection]) -> float | None:
    """Seconds from the end of a fault to the next attempt in a bucket with waiting items: the longest of all.

    An item that was committed after the fault counts from its commit. What is waited after the next fault is that one's.
    """
    ends = [*(injection.begin for injection in injections[1:]), float("inf")]
    waits = [
        wait
        for sent in _by_bucket(attempts).values()
        for injection, until in zip(injections, ends, strict=True)
        if (wait := _wait_after(injection.end, sent, commits, until=until)) is not None
    ]
    return max(waits, default=None)


def _by_bucket(attempts: Sequence[Attempt]) -> Mapping[Bucket, list[Attempt]]:
    """In order; one that was refused is progress too, for what keeps the item back then is its receiver."""
    buckets: dict[Bucket, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        buckets[attempt.box, attempt.bucket].append(attempt)
    return buckets


def _longest_wait(arrivals: Sequence[tuple[float, float]], sendings: Sequence[float]) -> float:
    """The longest time between two attempts, counted from when the first of the items that waited had come.

    Args:
        arrivals: when each item was committed and delivered, by commit.
    """
    longest = max(0.0, sendings[0] - arrivals[0][0]) if arrivals else 0.0
    place = 0
    for before, after in pairwise(sendings):
        # Items delivered by then do not wait any more.
        while place < len(arrivals) and arrivals[place][1] <= before:
            place += 1
        if place < len(arrivals):
            longest = max(longest, after - max(before, arrivals[place][0]))
    return longest


def _wait_after(moment: float, sent: Sequence[Attempt], commits: Commits, *, until: float) -> float | None:
    following = next((each for each in sent if each.at > moment), None)
    if following is None:
        return None
    committed = commits.get((following.box, following.id), following.at)
    since = max(moment, committed)
    return max(0.0, min(following.at, until) - since) if since < until else None
