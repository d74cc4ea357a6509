"""Where threads hand jobs on: from the claimer to the runners, and from those to the recorder."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Lock

from boxengine.engine.jobs.pace import Pace
from boxengine.engine.jobs.run import Run
from boxengine.engine.jobs.timing import JOB_TIMING, JobTiming

MOST_ENDS = 500
"""The most ends that are recorded together."""


class Handover:
    """Hands the claimed jobs of one box to its threads, and decides how many may be claimed.

    As many jobs are claimed as threads are idle, and beyond them as many as ``Pace`` allows. As many again may wait for their
    ends to be recorded; beyond these nothing is claimed, so that a database that is slow to record is not asked for more.
    """

    def __init__(
        self,
        threads: int,
        *,
        each: int = 1,
        timing: JobTiming = JOB_TIMING,
        condition: Callable[[], Condition] | None = None,
    ) -> None:
        """Args:
        each: how many jobs a thread takes at once, if its handler takes that many.
        condition: makes what its threads wait on; all share a lock.
        """
        self._own = threads
        self._visitors = 0
        self._rests = 0
        """How often the claimer has found nothing more."""
        self._claiming = 0
        """Jobs that a claim is about to bring."""
        self._each = each
        made = partial(Condition, Lock()) if condition is None else condition
        self._room, self._work, self._over = made(), made(), made()
        self._pace = Pace(threads, timing)
        self._given: deque[Run] = deque()
        self._ended: deque[Run] = deque()
        self._recording = 0
        self._busy = 0
        self._rung = False
        self._stopping = False
        self._closed = False

    # ── the claimer ──────────────────────────────────────────────────────────────────────────────────

    def room(self, within: float) -> int:
        """How many jobs to claim; waits until that is worthwhile, at most so many seconds. 0: it is not."""
        with self._room:
            self._room.wait_for(lambda: self._stopping or self._wanted() > 0, within)
            self._claiming = 0 if self._stopping else self._wanted()
            return self._claiming

    def give(self, runs: Sequence[Run]) -> None:
        """A claim has brought these, or none."""
        with self._work:
            self._claiming = 0
            self._given.extend(runs)
            self._work.notify(min(len(runs), self.threads))

    def rest(self, seconds: float) -> None:
        """Waits so long, or until somebody rings."""
        with self._room:
            if not self._rung and self._visitors:
                self._rests += 1
                self._work.notify_all()
            self._room.wait_for(lambda: self._stopping or self._rung, seconds)
            self._rung = False

    def ring(self) -> None:
        """There may be something to claim: ends a rest, or the next one."""
        with self._room:
            self._rung = True
            self._room.notify()

    def waiting_since(self, moment: float) -> list[Run]:
        """Takes out what was claimed before this monotonic time and nobody has begun. Less is claimed ahead from now on."""
        with self._room:
            if not self._given or self._given[0].claimed >= moment:
                return []
            late = [run for run in self._given if run.claimed < moment]
            self._given = deque(run for run in self._given if run.claimed >= moment)
            self._pace.hold_back()
            return late

    def left(self) -> list[Run]:
        """Takes out what nobody has begun."""
        with self._room:
            left = list(self._given)
            self._given.clear()
            return left

    # ── the runners ──────────────────────────────────────────────────────────────────────────────────

    def take(self, within: float) -> Run | None:
        """The next job; None: there was none, or the worker stops."""
        with self._work:
            if not self._given:
                self._work.wait_for(lambda: self._stopping or bool(self._given), within)
                if not self._given:
                    return None
            self._busy += 1
            return self._given.popleft()

    def take_alike(self, run: Run, most: int) -> list[Run]:
        """The next jobs of the same task, for the thread that has just taken this one."""
        with self._work:
            alike = [each for each in self._given if each.job.task == run.job.task][:most]
            taken = set(map(id, alike))
            self._given = deque(each for each in self._given if id(each) not in taken)
            return alike

    def end(self, runs: Sequence[Run], seconds: float | None, *, visitor: bool = False) -> None:
        """A thread is done with its work, which took it so long for each job. The ends of these are to be recorded.

        Args:
            seconds: None: some were lost. How soon that was says nothing of how long jobs take.
            visitor: the thread belongs to no box, and leaves.
        """
        with self._over:
            self._busy -= 1
            # In one step: nothing must be claimed for a thread that is about to leave.
            self._visitors -= visitor
            if seconds is None:
                self._pace.hold_back()
            else:
                self._pace.note(seconds)
            if runs:
                self._ended.extend(runs)
                self._over.notify()
            else:
                # The end of a job may have let another one go.
                self._rung = True
            if self._rung or self._wanted() > 0:
                self._room.notify()

    # ── threads of no box ────────────────────────────────────────────────────────────────────────────

    def visit(self, within: float) -> Run | None:
        """A job for a thread that has come for one; ``end`` lets it leave. None: there is none, and it has left."""
        with self._work:
            self._visitors += 1
            if not self._given:
                self._rung = True
                self._room.notify()
            rests = self._rests
            while not self._given:
                self._work.wait_for(
                    lambda: self._stopping or bool(self._given) or self._found_none_since(rests), within
                )
                # A claim that is under way may be for this thread.
                if not self._given and (self._stopping or not self._claiming):
                    self._visitors -= 1
                    return None
            self._busy += 1
            return self._given.popleft()

    # ── the recorder ─────────────────────────────────────────────────────────────────────────────────

    def ended(self, within: float) -> list[Run]:
        """Those whose ends are to be recorded; waits for the first of them, at most so many seconds."""
        with self._over:
            if not self._ended:
                self._over.wait_for(lambda: self._closed or bool(self._ended), within)
            some = [self._ended.popleft() for _ in range(min(MOST_ENDS, len(self._ended)))]
            self._recording += len(some)
            return some

    def recorded(self, again: Sequence[Run], count: int) -> None:
        """Notes that ``count`` ends were written, except those in ``again``. Other jobs may be free to go now."""
        with self._over:
            self._recording -= count
            self._ended.extendleft(reversed(again))
            self._rung = True
            self._room.notify()

    # ── others ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def threads(self) -> int:
        """How many take jobs from here at the moment."""
        return self._own + self._visitors

    @property
    def busy(self) -> int:
        """How many threads run a job."""
        return self._busy

    @property
    def waiting(self) -> int:
        """How many claimed jobs nobody has begun."""
        return len(self._given)

    def stop(self) -> None:
        """Nothing is claimed or begun any more."""
        with self._room:
            self._stopping = True
            self._room.notify_all()
            self._work.notify_all()

    def close(self) -> None:
        """Nothing will end any more."""
        with self._over:
            self._closed = True
            self._over.notify_all()

    def _found_none_since(self, rests: int) -> bool:
        return self._rests > rests and not self._claiming

    def _wanted(self) -> int:
        """0 as long as a claim would bring less than half of what may be claimed ahead."""
        ahead = self._pace.ahead
        unrecorded = max(0, len(self._ended) + self._recording - ahead)
        free = (self.threads - self._busy) * self._each + ahead - len(self._given) - unrecorded
        return free if 2 * free > ahead else 0
