"""When to look at which partition: the poller's agenda.

A partition lies idle until somebody says that it has work: a wake-up after a commit, a check of its whole box, or an
earlier poll of its own. So an idle box costs one cheap check now and then, whatever its number of partitions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from boxengine.domain.box import Box, StrictOrder
from boxengine.ports import Clock

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Task:
    """One partition of one box to be polled, or, with no partition, the box to be checked for partitions with work."""

    box: Box = field(compare=False)
    """Told apart by its name: the user's callables in it need be neither hashable nor comparable."""
    partition: int | None
    told: bool = False
    """Whether it need not be looked at: somebody said which of its buckets have work."""
    box_name: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "box_name", self.box.name)


class Schedule:
    """The agenda of all poller threads. A task is handed to one thread at a time."""

    def __init__(self, boxes: Sequence[Box], *, partitions: int, clock: Clock) -> None:
        """Args:
        partitions: per box; a box with fewer buckets has as many partitions as buckets.
        """
        self._clock = clock
        self._boxes = {box.name: box for box in boxes}
        self._partitions = {box.name: min(partitions, box.bucket_size) for box in boxes}
        self._changed = threading.Condition()
        self._stopped = False
        self._prompted: set[Task] = set()
        self._told: dict[Task, set[int]] = {}
        """Buckets that have work, by the tasks that are to queue them."""
        self._taken: dict[Task, float] = {}
        """Tasks under way, with the time for which they were asked for meanwhile."""
        start = clock.monotonic()
        # A box is checked at once when the worker starts; its partitions wait for what that finds.
        self._due: dict[Task, float] = {Task(box, None): start for box in boxes}
        self._due |= {Task(box, number): NEVER for box in boxes for number in range(self._partitions[box.name])}

    def partitions(self, box: Box) -> int:
        """How many partitions the box has."""
        return self._partitions[box.name]

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

    def take_one_told(self) -> Task | None:
        """As ``take``, without waiting: the first task that is due now because it was told something."""
        with self._changed:
            now = self._clock.monotonic()
            task = next((task for task in self._told if self._due.get(task, NEVER) <= now), None)
            return None if task is None or self._stopped else self._hand_out(task)

    def prompted(self, task: Task) -> bool:
        """Whether a wake-up asked for the task since it was last done: somebody committed, so it is worth a look."""
        with self._changed:
            return task in self._prompted

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
            if asked == NEVER:
                self._prompted.discard(task)
            self._changed.notify()

    def wake(
        self, box_name: str, buckets: Iterable[int] | None = None, *, within: float = 0.0, prompt: bool = True
    ) -> None:
        """Asks for the partitions of these buckets (all if None) to be polled ``within`` so many seconds."""
        box = self._boxes.get(box_name)
        if box is None:
            return
        count = self._partitions[box_name]
        numbers = range(count) if buckets is None else {bucket % count for bucket in buckets}
        tasks = [Task(box, number) for number in numbers]
        with self._changed:
            if prompt:
                self._prompted.update(tasks)
            self._ask_for(tasks, within=within)

    def tell(self, box_name: str, buckets: Iterable[int], *, within: float = 0.0) -> None:
        """Says that these buckets have rows that are due, and asks for them to be queued ``within`` so many seconds.

        Under strict order a new row may have to wait for one before it, so there its partition is looked at.
        """
        box = self._boxes.get(box_name)
        if box is None:
            return
        if box.strict_order is not StrictOrder.NONE:
            self.wake(box_name, buckets, within=within)
            return
        count = self._partitions[box_name]
        with self._changed:
            for bucket in buckets:
                if bucket in box.buckets:
                    task = Task(box, bucket % count, told=True)
                    self._told.setdefault(task, set()).add(bucket)
                    self._prompted.add(task)
                    self._ask_for([task], within=within)

    def take_told(self, task: Task) -> frozenset[int]:
        """The buckets of which the task was told, which it forgets: what is told from now on is told anew."""
        with self._changed:
            return frozenset(self._told.pop(task, ()))

    def check(self, box_name: str, *, within: float) -> None:
        """Asks for the box to be checked ``within`` so many seconds."""
        with self._changed:
            self._ask_for([Task(self._boxes[box_name], None)], within=within)

    def _hand_out(self, task: Task) -> Task:
        del self._due[task]
        self._taken[task] = NEVER
        return task

    def _ask_for(self, tasks: Iterable[Task], *, within: float) -> None:
        at = self._clock.monotonic() + within
        for task in tasks:
            if task in self._taken:
                self._taken[task] = min(self._taken[task], at)
            elif at < self._due.get(task, NEVER):
                self._due[task] = at
        self._changed.notify_all()

    def stop(self) -> None:
        """Lets every waiting ``take`` return None, now and from now on."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
