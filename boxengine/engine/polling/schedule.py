"""Decides which task is due when, for all poller threads.

A partition is idle until a wake-up after a commit, a check of its box, or one of its own earlier polls asks for
a poll. So an idle box costs one cheap check now and then, however many partitions it has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from boxengine.domain.box import Box, StrictOrder
from boxengine.engine.polling.tasks import Announce, Check, Key, Kind, Look, Task
from boxengine.ports import Clock

NEVER = float("inf")
AT_ONCE = float("-inf")
"""Before all that is due already. Where a server comes back, the checks of all boxes may be due, and take many seconds."""


class Schedule:
    """Hands each task to one thread at a time."""

    def __init__(self, boxes: Sequence[Box], *, partitions: int, clock: Clock) -> None:
        """Args:
        partitions: per box; a box with fewer buckets has as many partitions as buckets.
        """
        self._clock = clock
        self._boxes = {box.name: box for box in boxes}
        self._readers: dict[str, list[str]] = {}
        for box in boxes:
            self._readers.setdefault(box.source.name, []).append(box.name)
        self._partitions = {box.name: min(partitions, box.bucket_size) for box in boxes}
        self._changed = threading.Condition()
        self._stopped = False
        self._awaited = NEVER
        """Until when the thread waits that was the last to begin to wait in ``take``; NEVER if it has stopped waiting."""
        self._prompted: set[Key] = set()
        """Looks that wake-ups have asked for and no thread has begun."""
        self._named: dict[Key, set[int]] = {}
        """Buckets that writers have named, by the announcement that will queue them."""
        self._barren: dict[str, frozenset[int]] = {box.name: frozenset() for box in boxes}
        """Of boxes with strict order, the buckets whose last hold found nothing due: their rows wait for an earlier one."""
        self._taken: dict[Key, float] = {}
        """Tasks in progress, with the time for which they have been requested again meanwhile."""
        start = clock.monotonic()
        # Each box is checked as soon as the worker starts. Its partitions wait for the check's result.
        self._due: dict[Key, float] = {(Kind.CHECK, box.name, 0): start for box in boxes}
        self._due |= {
            (Kind.LOOK, box.name, number): NEVER for box in boxes for number in range(self._partitions[box.name])
        }

    def partitions(self, box: Box) -> int:
        """How many partitions the box has."""
        return self._partitions[box.name]

    def readers(self, name: str) -> Sequence[str]:
        """Names of the boxes that deliver what is created under this name; a subscription answers to its own name, too."""
        return self._readers.get(name) or ([name] if name in self._boxes else ())

    # ── what threads take and give back ──────────────────────────────────────────────────────────────

    def take(self, *, wait: float) -> Task | None:
        """The task that has been due longest; waits up to ``wait`` seconds for one. Give it back with ``done``."""
        until = self._clock.monotonic() + wait
        with self._changed:
            while not self._stopped:
                now = self._clock.monotonic()
                key = min(self._due, key=self._due.__getitem__, default=None)
                if key is not None and self._due[key] <= now:
                    return self._hand_out(key)
                if now >= until:
                    return None
                next_due = NEVER if key is None else self._due[key]
                self._awaited = min(until, next_due)
                self._changed.wait(self._awaited - now)
                self._awaited = NEVER
            return None

    def take_announcement(self) -> Announce | None:
        """As ``take``, without waiting and for announcements only."""
        with self._changed:
            now = self._clock.monotonic()
            key = next((key for key in self._named if self._due.get(key, NEVER) <= now), None)
            if key is None or self._stopped:
                return None
            self._begin(key)
            return self._announcement(key)

    def done(self, task: Task, *, next_in: float = NEVER, not_before: float = 0.0) -> None:
        """Puts the task back.

        Args:
            next_in: seconds until it is due again by itself.
            not_before: seconds for which even a wake-up must wait.
        """
        now = self._clock.monotonic()
        with self._changed:
            asked = self._taken.pop(task.key, NEVER)
            self._due[task.key] = due = max(now + not_before, min(now + next_in, asked))
            self._tell(due)

    # ── what asks for work ───────────────────────────────────────────────────────────────────────────

    def wake(
        self, box_name: str, buckets: Iterable[int] | None = None, *, within: float = 0.0, prompt: bool = True
    ) -> None:
        """Asks for a look at the partitions of these buckets (all if None) ``within`` so many seconds.

        Args:
            within: or ``AT_ONCE``. That is for what a check has found: each check asks once, so other checks have their turn.
            prompt: whether rows were committed there.
        """
        box = self._boxes.get(box_name)
        if box is None:
            return
        count = self._partitions[box_name]
        numbers = range(count) if buckets is None else {bucket % count for bucket in buckets}
        looks: list[Key] = [(Kind.LOOK, box_name, number) for number in numbers]
        with self._changed:
            if prompt:
                self._prompted.update(looks)
            self._ask_for(looks, within=within)

    def announce(self, box_name: str, buckets: Iterable[int], *, within: float = 0.0, quietly: bool = False) -> None:
        """Reports that these buckets have due rows, and asks for them to be queued ``within`` so many seconds.

        Under strict order a new row may have to wait for an earlier one. So where the last hold of a bucket found nothing due, it
        asks for a look at the partition instead.

        Args:
            quietly: no thread is woken, because the caller takes the announcements next, and calls ``rouse`` then.
        """
        box = self._boxes.get(box_name)
        if box is None:
            return
        count = self._partitions[box_name]
        doubtful = self._barren[box_name].intersection(buckets)
        if doubtful:
            self.wake(box_name, doubtful, within=within)
        with self._changed:
            for bucket in buckets:
                if bucket in box.buckets and bucket not in doubtful:
                    key = (Kind.ANNOUNCE, box_name, bucket % count)
                    self._named.setdefault(key, set()).add(bucket)
                    self._ask_for([key], within=within, quietly=quietly)

    def rouse(self) -> None:
        """Wakes threads for the announcements that nobody has taken."""
        if self._named:
            with self._changed:
                self._tell(min((self._due.get(key, NEVER) for key in self._named), default=NEVER))

    def found(self, box: Box, *, due: Iterable[int], nothing: Iterable[int]) -> None:
        """What the first batch of a hold found in its buckets."""
        if box.strict_order is not StrictOrder.NONE:
            with self._changed:
                self._barren[box.name] = self._barren[box.name].difference(due).union(nothing)

    def check(self, box_name: str, *, within: float) -> None:
        """Asks for the box to be checked ``within`` so many seconds, or ``AT_ONCE``."""
        with self._changed:
            self._ask_for([(Kind.CHECK, box_name, 0)], within=within)

    def check_all(self, *, unless: Callable[[Box], bool]) -> None:
        """Asks for a check of all boxes now, unless this is true of them."""
        with self._changed:
            self._ask_for([(Kind.CHECK, box.name, 0) for box in self._boxes.values() if not unless(box)], within=0.0)

    def stop(self) -> None:
        """Makes every ``take`` return None, those that wait now and all later ones."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    # ── under the lock ───────────────────────────────────────────────────────────────────────────────

    def _hand_out(self, key: Key) -> Task:
        """Completes the task with what has been reported for it, and clears that: later reports are for its next run."""
        self._begin(key)
        kind, box_name, partition = key
        match kind:
            case Kind.CHECK:
                return Check(self._boxes[box_name])
            case Kind.LOOK:
                prompted = key in self._prompted
                self._prompted.discard(key)
                return Look(self._boxes[box_name], partition, prompted=prompted)
            case Kind.ANNOUNCE:
                return self._announcement(key)
            case _:
                assert_never(kind)

    def _begin(self, key: Key) -> None:
        del self._due[key]
        self._taken[key] = NEVER

    def _announcement(self, key: Key) -> Announce:
        _, box_name, partition = key
        return Announce(self._boxes[box_name], partition, frozenset(self._named.pop(key, ())))

    def _ask_for(self, keys: Iterable[Key], *, within: float, quietly: bool = False) -> None:
        at = self._clock.monotonic() + within
        for key in keys:
            if key in self._taken:
                self._taken[key] = min(self._taken[key], at)
            elif at < self._due.get(key, NEVER):
                self._due[key] = at
        if not quietly:
            self._tell(at)

    def _tell(self, due: float) -> None:
        """Wakes the threads that would come late. A thread that woke for nothing would compete with those that deliver."""
        if due < self._awaited:
            self._changed.notify_all()
