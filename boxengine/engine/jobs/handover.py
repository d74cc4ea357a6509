"""Where one thread puts claimed jobs and others take them. There is never more here than threads are idle."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Condition

from boxengine.engine.jobs.run import Run


class Handover:
    """Between the claimer of a box and its runners."""

    def __init__(self, threads: int, *, condition: Condition | None = None) -> None:
        """Args:
        condition: what its threads wait on; one of its own if None.
        """
        self.threads = threads
        self._changed = Condition() if condition is None else condition
        self._given: deque[Run] = deque()
        self._busy = 0
        self._rung = False
        self._stopping = False

    # ── the claimer ──────────────────────────────────────────────────────────────────────────────────

    def idle(self, within: float) -> int:
        """How many threads are idle; waits for the first of them, at most so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._idle() > 0, within)
            return 0 if self._stopping else self._idle()

    def give(self, runs: Sequence[Run]) -> None:
        with self._changed:
            self._given.extend(runs)
            self._changed.notify_all()

    def rest(self, seconds: float) -> None:
        """Waits so long, or until somebody rings."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._rung, seconds)
            self._rung = False

    def ring(self) -> None:
        """There may be something to claim: ends a rest, or the next one."""
        with self._changed:
            self._rung = True
            self._changed.notify_all()

    # ── the runners ──────────────────────────────────────────────────────────────────────────────────

    def take(self, within: float) -> Run | None:
        """The next job; None: there was none, or the worker stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or bool(self._given), within)
            if not self._given:
                return None
            self._busy += 1
            return self._given.popleft()

    def put_back(self, run: Run) -> None:
        """Its end could not be recorded; the next turn tries again."""
        with self._changed:
            self._busy -= 1
            self._given.appendleft(run)

    def done(self) -> None:
        with self._changed:
            self._busy -= 1
            # The end of a job may have let another one go.
            self._rung = True
            self._changed.notify_all()

    # ── others ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def busy(self) -> int:
        """How many threads run a job."""
        return self._busy

    def stop(self) -> None:
        """Nobody waits here any more."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def left(self) -> list[Run]:
        """Takes out what nobody has begun."""
        with self._changed:
            left = list(self._given)
            self._given.clear()
            return left

    def _idle(self) -> int:
        return self.threads - self._busy - len(self._given)
