"""The jobs as a handler of many at once sees them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from boxengine.engine.jobs.facts import A
from boxengine.engine.jobs.handle import HeldJob
from boxengine.engine.jobs.run import Run


@dataclass(frozen=True, slots=True)
class Retry:
    """A job's answer: another attempt after this pause."""

    pause: timedelta


class BatchJob(HeldJob[A]):
    """One of the jobs that ``handle_batch`` is called with: a ``Job`` without session and checkpoint.

    Example::

        class Thumbnails:
            def handle_batch(self, jobs: Sequence[BatchJob[Picture]]) -> list[object]:
                made = service.shrink([job.args["url"] for job in jobs])
                return [job.retry(in_=60) if each.busy else each.size for job, each in zip(jobs, made)]
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.retry_asked: Retry | None = None
        """The answer that the handler has asked for last, which counts also where it has forgotten to return it."""

    def retry(self, *, in_: timedelta | float | None = None) -> Retry:
        """The answer that asks for another attempt, whatever ``max_attempts`` says. Return it; it does not raise.

        Args:
            in_: a timedelta, or seconds; None: as after a failed attempt.

        Raises:
            InvalidItem: it is below zero, or longer than 100 years.
        """
        self.retry_asked = asked = Retry(self._pause(in_))
        return asked
