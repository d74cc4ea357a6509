"""The job as handlers see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

from boxengine.domain.json_values import json_text
from boxengine.engine.jobs.facts import A, JobFacts
from boxengine.engine.jobs.run import Run
from boxengine.engine.jobs.spans import span
from boxengine.errors import InvalidItem, JobLost, JobRetry
from boxengine.ports.jobs import JobUnit


class HeldJob(JobFacts[A]):
    """The part of a job that handlers of all kinds see. Each method raises ``JobLost`` once the job belongs to another worker."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.box.name, run.job)
        self._run = run
        self._state = run.job.checkpoint

    @property
    def args(self) -> A:
        """The arguments that the job was created with."""
        args: A = self._run.args()
        return args

    # ── what happens to it ───────────────────────────────────────────────────────────────────────────

    @property
    def cancelled(self) -> bool:
        """Whether somebody has asked to cancel the job. If a handler reads ``True`` and then returns, the job is canceled.

        A wake-up tells the worker of the request within half a second; if none arrives, the next heartbeat does.
        """
        self.ensure_held()
        self._run.saw_cancel = self._run.saw_cancel or self._run.canceled
        return self._run.canceled

    @property
    def stopping(self) -> bool:
        """Whether the worker is about to stop. A handler may make a checkpoint then, and ``retry()``.

        This attempt does not count then.
        """
        return self._run.stopping

    def ensure_held(self) -> None:
        """To be called before an effect elsewhere that must not happen twice at once.

        Raises:
            JobLost: the lease has no time left, or somebody else has the job.
        """
        self._run.demand()

    # ── what the handler tells ───────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> Any:
        """The last checkpoint, of this attempt or an earlier one; None: there is none."""
        return self._state

    def progress(self, **values: Any) -> None:
        """How far it has come, for people: any JSON values, in place of those before. Costs nothing: it goes out with a
        heartbeat, two seconds later at most.

        Raises:
            InvalidItem: a value cannot be JSON, or the database has refused the last progress.
        """
        self.ensure_held()
        if self._run.progress_refused is not None:
            raise InvalidItem(f"progress: the database refused the last values: {self._run.progress_refused}")
        # What the handler gave may change before the heartbeat.
        self._run.tell(json.loads(demand_json(values, "progress")))

    def _pause(self, in_: timedelta | float | None) -> timedelta:
        return self._run.box.pause_after(self.attempt) if in_ is None else checked_pause(in_)


class JobHandle(HeldJob[A]):
    """Adds what the handler of a single job may do: write, and end its attempt."""

    def __init__(self, run: Run, unit: JobUnit) -> None:
        super().__init__(run)
        self._unit = unit
        self.retry_asked: timedelta | None = None
        """How long to wait before the attempt that the handler has asked for."""

    def retry(self, *, in_: timedelta | float | None = None) -> NoReturn:
        """Ends this attempt and asks for another one, whatever ``max_attempts`` says.

        Args:
            in_: a timedelta, or seconds; None: as after a failed attempt.
        """
        self.retry_asked = pause = self._pause(in_)
        raise JobRetry(f"job {self.id} of {self.box_name}: another attempt in {pause}")

    def _keep(self, state: Any) -> None:
        self.ensure_held()
        demand_json(state, "checkpoint")
        sent = self._run.now()
        if not self._unit.checkpoint(state):
            self._run.lose()
            raise JobLost(f"job {self.id} of {self.box_name}: it was given to another worker")
        self._run.prolonged(sent)
        self._state = state


class Job(JobHandle[A]):
    """The argument of a handler. Each method raises ``JobLost`` once the job belongs to another worker.

    Example::

        def import_orders(job: Job[ImportArgs]) -> dict[str, int]:
            done = job.state or 0
            for chunk in chunks_of(job.args["file"], after=done):
                if job.cancelled:
                    return {"imported": done}
                job.session.add_all(orders_in(chunk))
                done += len(chunk)
                job.checkpoint(done)
                job.progress(done=done)
            return {"imported": done}
    """

    def checkpoint(self, state: Any) -> None:
        """Keeps ``state`` for later attempts, and commits what ``session`` has written with it: both, or neither.

        Args:
            state: any JSON value; ``job.state`` of the next attempt.

        Raises:
            JobLost: nothing was written.
            InvalidItem: the state cannot be JSON.
            StoreUnavailable: the database did not answer; what ``session`` wrote since the last checkpoint may be undone.
        """
        self._keep(state)

    @property
    def session(self) -> Any:
        """A SQLAlchemy session. What it writes commits with the next checkpoint or with the job's success, else not at all.

        Leave out ``begin()``, ``commit()`` and ``close()``. From its first statement to the next checkpoint a transaction is
        open.
        """
        self.ensure_held()
        return self._unit.session


Handler = Callable[[Any], object]
"""A user's function of a job: plain, or ``async def``."""


def checked_pause(in_: timedelta | float) -> timedelta:
    """Raises ``InvalidItem`` unless it can be a pause before another attempt."""
    try:
        return span(in_)
    except ValueError as error:
        raise InvalidItem(f"retry: in_: {error}") from None


def demand_json(value: Any, what: str) -> str:
    """The value as JSON; raises ``InvalidItem`` if it cannot be that."""
    try:
        return json_text(value)
    except ValueError as error:
        # People read an error with its causes, and would read the same twice.
        raise InvalidItem(f"{what}: expected what JSON can hold: {error}") from None
