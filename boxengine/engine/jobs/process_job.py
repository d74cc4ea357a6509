"""The job as a handler sees it that runs in a process of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

from boxengine import errors
from boxengine.domain.jobs import ClaimedJob
from boxengine.engine.jobs.facts import A, JobFacts
from boxengine.engine.jobs.handle import checked_pause, demand_json
from boxengine.errors import BoxError, JobLost, JobRetry
from boxengine.ports.contracts import ArgsCodec
from boxengine.ports.job_processes import Answer, Asked, Call

NO_SESSION = (
    "job.session: a handler in a process of its own has none, because no two processes can share a transaction; return what "
    "is to be kept, put it into job.checkpoint(...), or open a connection of your own"
)


class ProcessJob(JobFacts[A]):
    """The argument of a handler in a box with ``executor: process``: a ``Job`` without ``session``.

    Each method asks the worker, which holds the job, and raises ``JobLost`` once the job belongs to another worker.

    Example::

        def render(job: ProcessJob[Video]) -> dict[str, int]:
            frames = job.state or 0
            while frames < job.args["frames"]:
                if job.cancelled:
                    break
                render_some(job.args["path"], frames)
                frames += 100
                job.checkpoint(frames)
                job.progress(frames=frames)
            return {"frames": frames}
    """

    def __init__(
        self, box_name: str, job: ClaimedJob, *, codec: ArgsCodec | None, ask: Callable[[Call], Answer]
    ) -> None:
        """Args:
        codec: of the arguments; None: they are as they are stored.
        ask: sends the worker a call, and returns the answer.
        """
        super().__init__(box_name, job)
        self._codec = codec
        self._args: Any = None
        self._send = ask
        self._lock = threading.Lock()
        self._over = False
        self._state = job.checkpoint

    @property
    def args(self) -> A:
        """The arguments that the job was created with."""
        if self._args is None:
            self._args = self._job.args if self._codec is None else self._codec.decode(self._job.args)
        args: A = self._args
        return args

    @property
    def state(self) -> Any:
        """The last checkpoint, of this attempt or an earlier one; None: there is none."""
        return self._state

    @property
    def cancelled(self) -> bool:
        """Whether somebody has asked to cancel the job. If a handler reads ``True`` and then returns, the job is canceled.

        A wake-up tells the worker of the request within half a second; if none arrives, the next heartbeat does.
        """
        return bool(self._ask("cancelled"))

    @property
    def stopping(self) -> bool:
        """Whether the worker is about to stop. A handler may make a checkpoint then, and ``retry()``."""
        return bool(self._ask("stopping"))

    @property
    def session(self) -> NoReturn:
        """Not available in a process of its own.

        Raises:
            BoxError: always; says what to do instead.
        """
        raise BoxError(NO_SESSION)

    def ensure_held(self) -> None:
        """To be called before an effect elsewhere that must not happen twice at once.

        Raises:
            JobLost: the lease has no time left, or somebody else has the job.
        """
        self._ask("ensure_held")

    def progress(self, **values: Any) -> None:
        """How far it has come, for people: any JSON values, in place of those before. It goes out with a heartbeat, two
        seconds later at most.

        Raises:
            InvalidItem: a value cannot be JSON.
        """
        demand_json(values, "progress")
        self._ask("progress", values)

    def checkpoint(self, state: Any) -> None:
        """Keeps ``state`` for later attempts.

        Args:
            state: any JSON value; ``job.state`` of the next attempt.

        Raises:
            JobLost: nothing was written.
            InvalidItem: the state cannot be JSON.
            StoreUnavailable: the database did not answer.
        """
        demand_json(state, "checkpoint")
        self._ask("checkpoint", state)
        self._state = state

    def retry(self, *, in_: timedelta | float | None = None) -> NoReturn:
        """Ends this attempt and asks for another one, whatever ``max_attempts`` says.

        Args:
            in_: a timedelta, or seconds; None: as after a failed attempt.

        Raises:
            InvalidItem: it is below zero, or longer than 100 years.
        """
        self._ask("retry", None if in_ is None else checked_pause(in_).total_seconds())
        raise JobRetry  # the worker's answer has raised it

    def close(self) -> None:
        """The handler has ended. Threads that it has left behind cannot use the job any more."""
        with self._lock:
            self._over = True

    def _ask(self, what: Asked, value: Any = None) -> bool | None:
        # One thread of the handler at a time, so that each gets the answer to its own question.
        with self._lock:
            if self._over:
                raise JobLost(f"job {self.id} of {self.box_name}: its handler has ended")
            answer = self._send(Call(what, json.dumps(value)))
        if answer.error is not None:
            raise getattr(errors, answer.error)(answer.text)
        return answer.value
