"""Passes jobs between threads: from the claimer to the runners, and from the runners to the recorder."""

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

    That is one for each idle thread (or one batch), and as many ahead as ``Pace`` allows. While more ended jobs than may be
    claimed ahead wait to be recorded, fewer are claimed, so that a database that is slow to record is not asked for more.
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
        condition: makes the conditions that its threads wait on; all must share one lock.
        """
        self._own = threads
        self._visitors = 0
        self._rests = 0
        """How often a claim has found nothing more."""
        self._claiming = 0
        """Jobs that a claim is about to bring."""
        self._each = each
        self._idle = timing.idle
        made = partial(Condition, Lock()) if condition is None else condition
        self._room, self._work, self._over, self._held = made(), made(), made(), made()
        self._pace = Pace(threads, timing)
        self._given: deque[Run] = deque()
        self._ended: deque[Run] = deque()
        self._recording = 0
        self._busy = 0
        self._rung = False
        self._brought = False
        """Whether a claim has brought jobs since the keeper last waited."""
        self._stopping = False
        self._closed = False

    # ── the claimer ──────────────────────────────────────────────────────────────────────────────────

    def room(self, within: float) -> int:
        """How many jobs to claim. Waits up to ``within`` seconds until a claim is worthwhile; 0: it is not."""
        with self._room:
            self._room.wait_for(lambda: self._stopping or self._wanted() > 0, within)
            self._claiming = 0 if self._stopping else self._wanted()
            return self._claiming

    def give(self, runs: Sequence[Run]) -> None:
        """Hands over what a claim has brought, which may be nothing."""
        with self._work:
            self._claiming = 0
            self._given.extend(runs)
            self._work.notify(min(len(runs), self.threads))
            if runs:
                self._brought = True
                self._held.notify()

    def rest(self, seconds: float) -> bool:
        """Waits this long, or until ``ring`` is called; returns whether it was."""
        with self._room:
            if not self._rung and self._visitors:
                self._rests += 1
                self._work.notify_all()
            self._room.wait_for(lambda: self._stopping or self._rung, seconds)
            rung, self._rung = self._rung, False
            return rung

    def ring(self) -> None:
        """Says that there may be something to claim. Ends the current rest, or the next one."""
        with self._room:
            self._rung = True
            self._room.notify()

    def waiting_since(self, moment: float) -> list[Run]:
        """Takes out unbegun jobs that were claimed before this monotonic time. Fewer are claimed ahead from now on."""
        with self._room:
            if not self._given or self._given[0].claimed >= moment:
                return []
            late = [run for run in self._given if run.claimed < moment]
            self._given = deque(run for run in self._given if run.claimed >= moment)
            self._pace.hold_back()
            return late

    def left(self) -> list[Run]:
        """Takes out all unbegun jobs."""
        with self._room:
            left = list(self._given)
            self._given.clear()
            return left

    # ── the runners ──────────────────────────────────────────────────────────────────────────────────

    def take(self) -> Run | None:
        """Waits for the next job and returns it; None: there was none for long, or the worker is stopping."""
        with self._work:
            if not self._given:
                self._work.wait_for(lambda: self._stopping or bool(self._given), self._idle)
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
        """A thread has finished; the ends of these jobs are to be recorded.

        Args:
            seconds: how long each job took; None: some were lost, so their time says nothing about how long jobs take.
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
        """Returns a job for a thread of no box, which stays until ``end``. None: there is none, and the thread has left."""
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

    def ended(self, within: float | None = None) -> list[Run]:
        """Returns jobs whose ends are to be recorded; waits up to ``within`` seconds for the first, or until there are some."""
        with self._over:
            if not self._ended:
                self._over.wait_for(lambda: self._closed or bool(self._ended), self._idle if within is None else within)
            some = [self._ended.popleft() for _ in range(min(MOST_ENDS, len(self._ended)))]
            self._recording += len(some)
            return some

    def recorded(self, again: Sequence[Run], count: int) -> None:
        """Notes that ``count`` ends were written, except those in ``again``. Jobs that waited for these may be ready now."""
        with self._over:
            self._recording -= count
            self._ended.extendleft(reversed(again))
            self._rung = True
            self._room.notify()

    # ── the keeper ───────────────────────────────────────────────────────────────────────────────────

    def await_jobs(self) -> None:
        """Waits until a claim has brought jobs, since the last call or now."""
        with self._held:
            self._held.wait_for(lambda: self._closed or self._brought, self._idle)
            self._brought = False

    # ── others ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def threads(self) -> int:
        """How many take jobs from here at the moment."""
        return self._own + self._visitors

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` has been called."""
        return self._stopping

    @property
    def busy(self) -> int:
        """How many threads run a job."""
        return self._busy

    @property
    def waiting(self) -> int:
        """How many claimed jobs are not begun."""
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
            self._held.notify_all()

    def _found_none_since(self, rests: int) -> bool:
        return self._rests > rests and not self._claiming

    def _wanted(self) -> int:
        """How many jobs to claim; 0 while a claim would bring less than half of what may be claimed ahead."""
        ahead = self._pace.ahead
        unrecorded = max(0, len(self._ended) + self._recording - ahead)
        free = (self.threads - self._busy) * self._each + ahead - len(self._given) - unrecorded
        return free if 2 * free > ahead else 0
