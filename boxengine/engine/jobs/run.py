"""The jobs that this process has claimed, and how long it may assume that it still holds each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from boxengine.domain.jobs import Beat, ClaimedJob, Ending, JobBox
from boxengine.engine.jobs.interrupting import Interrupt
from boxengine.engine.jobs.timing import JobTiming
from boxengine.errors import InvalidItem, JobLost, JobTimeout
from boxengine.ports import Clock
from boxengine.ports.contracts import ArgsCodec


class Run:
    """One claimed job, from its claim to its end. The runner's thread works on it; keeper and watchdog look after it."""

    def __init__(
        self,
        box: JobBox,
        job: ClaimedJob,
        *,
        sent: float,
        clock: Clock,
        timing: JobTiming,
        codec: ArgsCodec | None = None,
    ) -> None:
        """Args:
        sent: monotonic time before the claim was sent; the lease began no earlier.
        codec: of the task's arguments; None: they are used as stored.
        """
        self._codec = codec
        self._args: Any = None
        self.box = box
        self.job = job
        self.claimed = sent
        self.began = sent
        """When a thread took it."""
        self.canceled = False
        """Whether somebody wants it canceled, as of the last heartbeat."""
        self.saw_cancel = False
        """Whether the handler knows."""
        self.stopping = False
        """Whether this process is about to stop."""
        self.ending: Ending | None = None
        """How the handler ended, once it has."""
        self.refused = False
        """Whether its end could not be stored as it was."""
        self.over = False
        """Whether its end is recorded, or never will be."""
        self.interrupt: Interrupt = _nothing
        """Stops the handler. Set while it runs."""
        self.progress_refused: InvalidItem | None = None
        """Why the database could not store the progress that was told last."""
        self.timed_out = False
        """Whether the handler was stopped because it took too long."""
        self._stop_at: float | None = None
        self._cancel: Callable[[], None] | None = None
        """Tells the handler of a cancel; None: it looks by itself, or knows."""
        self._clock = clock
        self._timing = timing
        self._lease = job.lease_ttl.total_seconds()
        self._lost = False
        self._left = False
        self._progress: Mapping[str, Any] | None = None
        self._progress_told = sent
        self._beaten = sent
        self._until = sent + timing.usable(self._lease)

    # ── the handler's side ───────────────────────────────────────────────────────────────────────────

    def args(self) -> Any:
        """The arguments, decoded when the handler first asks for them, so that what cannot be decoded fails the attempt."""
        if self._codec is None:
            return self.job.args
        if self._args is None:
            self._args = self._codec.decode(self.job.args)
        return self._args

    def may_begin(self) -> bool:
        """Whether its handler may be called: it has not waited for too long."""
        return not self.is_lost()

    def demand(self) -> None:
        """Raises ``JobLost`` unless the lease has time left, and the handler has not ended."""
        if self._left:
            raise JobLost(f"job {self.job.id} of {self.box.name}: its handler has ended")
        if self.is_lost():
            raise JobLost(f"job {self.job.id} of {self.box.name}: its lease is over or was given to another worker")

    def begin(self, interrupt: Interrupt, *, cancel: Callable[[], None] | None = None, limited: bool = True) -> None:
        """The handler runs. These stop it, from any thread, and tell it that somebody wants the job canceled.

        Args:
            limited: whether the box's time limit holds.
        """
        self.interrupt, self._cancel, self._left = interrupt, cancel, False
        if limited and self.box.timeout is not None:
            self._stop_at = self.now() + self.box.timeout.total_seconds()

    def leave(self) -> None:
        """The handler has ended. Threads that it has left behind cannot use the job any more."""
        self.interrupt, self._cancel, self._stop_at, self._left = _nothing, None, None, True

    @property
    def until(self) -> float:
        """Monotonic time until which the handler may go on, unless a later heartbeat prolongs it."""
        return self._until

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    def tell(self, progress: Mapping[str, Any]) -> None:
        """Progress, to go out with a later heartbeat."""
        self._progress = progress

    def take_progress(self) -> Mapping[str, Any] | None:
        """The progress that has not been sent yet."""
        progress, self._progress = self._progress, None
        return progress

    @property
    def is_at_work(self) -> bool:
        """Whether a thread has taken it, and its handler has not ended."""
        return self.began > self.claimed and self.ending is None

    # ── keeper and watchdog ──────────────────────────────────────────────────────────────────────────

    def is_lost(self) -> bool:
        """Whether the lease is over. Once true, it stays true: another worker may have the job by now."""
        if not self._lost and self._clock.monotonic() >= self._until:
            self._lost = True
        return self._lost

    def lose(self) -> None:
        """The store says that another worker has the job."""
        self._lost = True

    def pass_on_cancel(self) -> None:
        """Tells the handler once of a cancel, unless it looks by itself."""
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            self.saw_cancel = True
            cancel()

    def stop_if_late(self) -> None:
        """Stops the handler if it has taken longer than its box allows."""
        if self._stop_at is not None and self.now() >= self._stop_at:
            self.timed_out = True
            self._stop_at = self.now() + self._timing.stop_again
            self.interrupt(JobTimeout)

    def is_due(self, now: float) -> bool:
        """Whether a heartbeat is due at this monotonic time."""
        untold = self._progress is not None and now - self._progress_told >= self._timing.progress
        return untold or now - self._beaten >= self._timing.beat_every(self._lease)

    def beat(self, now: float) -> Beat:
        """The sign of life to send now."""
        progress = self.take_progress()
        if progress is not None:
            self._progress_told = now
        return Beat(self.job.held, progress)

    def not_sent(self, beat: Beat) -> None:
        """The store did not answer: the beat's progress goes out later, unless there is newer."""
        if self._progress is None:
            self._progress = beat.progress

    def prolonged(self, sent: float) -> None:
        """The store has extended the lease. ``sent``: monotonic time before it was asked."""
        self._beaten = max(self._beaten, sent)
        self._until = max(self._until, sent + self._timing.usable(self._lease))


def _nothing(_error: type[BaseException] = JobLost) -> None: ...


class Runs:
    """All jobs that this process has claimed and whose ends are not recorded. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[int, Run] = {}
        self._latest: dict[tuple[str, int], Run] = {}
        """By box and job, the run that was claimed last."""
        self._stopping = False

    def add(self, runs: Iterable[Run]) -> None:
        """They were just claimed. Whoever runs one of these jobs in this process since an earlier claim has lost it."""
        with self._lock:
            for run in runs:
                run.stopping = self._stopping
                self._runs[id(run)] = run
                earlier = self._latest.get((run.box.name, run.job.id))
                if earlier is not None:
                    # The answer to a heartbeat names jobs, and this one is held: by the new claim.
                    earlier.lose()
                self._latest[run.box.name, run.job.id] = run

    def remove(self, run: Run) -> None:
        with self._lock:
            del self._runs[id(run)]
            if self._latest.get((run.box.name, run.job.id)) is run:
                del self._latest[run.box.name, run.job.id]

    def all(self) -> list[Run]:
        with self._lock:
            return list(self._runs.values())

    def of(self, box: JobBox) -> list[Run]:
        with self._lock:
            return [run for run in self._runs.values() if run.box.name == box.name]

    def stop(self) -> None:
        """From now on handlers see that the process is about to stop."""
        with self._lock:
            self._stopping = True
            for run in self._runs.values():
                run.stopping = True
