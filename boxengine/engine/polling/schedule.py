"""Decides which task is due when, for all poller threads.

A partition is idle until a wake-up after a commit, a check of its box, or one of its own earlier polls asks for
a poll. So an idle box costs one cheap check now and then, however many partitions it has.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import assert_never

from boxengine.domain.box import Box, StrictOrder
from boxengine.engine.polling.tasks import Announce, Check, Look, Task
from boxengine.ports import Clock

NEVER = float("inf")


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
        self._prompted: set[Look] = set()
        """Looks that wake-ups have asked for and no thread has begun."""
        self._named: dict[Announce, set[int]] = {}
        """Buckets that writers have named, by the announcement that will queue them."""
        self._barren: dict[str, frozenset[int]] = {box.name: frozenset() for box in boxes}
        """Of boxes with strict order, the buckets whose last hold found nothing due: their rows wait for an earlier one."""
        self._taken: dict[Task, float] = {}
        """Tasks in progress, with the time for which they have been requested again meanwhile."""
        start = clock.monotonic()
        # Each box is checked as soon as the worker starts. Its partitions wait for the check's result.
        self._due: dict[Task, float] = {Check(box): start for box in boxes}
        self._due |= {Look(box, number): NEVER for box in boxes for number in range(self._partitions[box.name])}

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
                task = min(self._due, key=self._due.__getitem__, default=None)
                if task is not None and self._due[task] <= now:
                    return self._hand_out(task)
                if now >= until:
                    return None
                next_due = NEVER if task is None else self._due[task]
                self._changed.wait(min(until, next_due) - now)
            return None

    def take_announcement(self) -> Announce | None:
        """As ``take``, without waiting and for announcements only."""
        with self._changed:
            now = self._clock.monotonic()
            task = next((task for task in self._named if self._due.get(task, NEVER) <= now), None)
            if task is None or self._stopped:
                return None
            self._begin(task)
            return self._with_buckets(task)

    def done(self, task: Task, *, next_in: float = NEVER, not_before: float = 0.0) -> None:
        """Puts the task back.

        Args:
            next_in: seconds until it is due again by itself.
            not_before: seconds for which even a wake-up must wait.
        """
        now = self._clock.monotonic()
        with self._changed:
            asked = self._taken.pop(task, NEVER)
            self._due[task] = max(now + not_before, min(now + next_in, asked))
            self._changed.notify()

    # ── what asks for work ───────────────────────────────────────────────────────────────────────────

    def wake(
        self, box_name: str, buckets: Iterable[int] | None = None, *, within: float = 0.0, prompt: bool = True
    ) -> None:
        """Asks for a look at the partitions of these buckets (all if None) ``within`` so many seconds.

        Args:
            prompt: whether rows were committed there.
        """
        box = self._boxes.get(box_name)
        if box is None:
            return
        count = self._partitions[box_name]
        numbers = range(count) if buckets is None else {bucket % count for bucket in buckets}
        looks = [Look(box, number) for number in numbers]
        with self._changed:
            if prompt:
                self._prompted.update(looks)
            self._ask_for(looks, within=within)

    def announce(self, box_name: str, buckets: Iterable[int], *, within: float = 0.0) -> None:
        """Reports that these buckets have due rows, and asks for them to be queued ``within`` so many seconds.

        Under strict order a new row may have to wait for an earlier one. So where the last hold of a bucket found nothing due, it
        asks for a look at the partition instead.
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
                    task = Announce(box, bucket % count)
                    self._named.setdefault(task, set()).add(bucket)
                    self._ask_for([task], within=within)

    def found(self, box: Box, *, due: Iterable[int], nothing: Iterable[int]) -> None:
        """What the first batch of a hold found in its buckets."""
        if box.strict_order is not StrictOrder.NONE:
            with self._changed:
                self._barren[box.name] = self._barren[box.name].difference(due).union(nothing)

    def check(self, box_name: str, *, within: float) -> None:
        """Asks for the box to be checked ``within`` so many seconds."""
        with self._changed:
            self._ask_for([Check(self._boxes[box_name])], within=within)

    def stop(self) -> None:
        """Makes every ``take`` return None, those that wait now and all later ones."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    # ── under the lock ───────────────────────────────────────────────────────────────────────────────

    def _hand_out(self, task: Task) -> Task:
        """Completes the task with what has been reported for it, and clears that: later reports are for its next run."""
        self._begin(task)
        match task:
            case Check():
                return task
            case Look():
                prompted = task in self._prompted
                self._prompted.discard(task)
                return Look(task.box, task.partition, prompted=prompted)
            case Announce():
                return self._with_buckets(task)
            case _:
                assert_never(task)

    def _begin(self, task: Task) -> None:
        del self._due[task]
        self._taken[task] = NEVER

    def _with_buckets(self, task: Announce) -> Announce:
        return Announce(task.box, task.partition, frozenset(self._named.pop(task, ())))

    def _ask_for(self, tasks: Iterable[Task], *, within: float) -> None:
        at = self._clock.monotonic() + within
        for task in tasks:
            if task in self._taken:
                self._taken[task] = min(self._taken[task], at)
            elif at < self._due.get(task, NEVER):
                self._due[task] = at
        self._changed.notify_all()
