"""Many jobs in one call of their handler."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from boxengine.domain.jobs import Canceled, Ending, Requeued
from boxengine.domain.words import plural
from boxengine.engine.answers import discard
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.jobs.batch_handle import BatchJob, Retry
from boxengine.engine.jobs.batch_handler import BatchHandler
from boxengine.engine.jobs.endings import Endings
from boxengine.engine.jobs.forking import ending_children
from boxengine.engine.jobs.run import Run
from boxengine.engine.jobs.ways import Interruptible
from boxengine.errors import InvalidItem, JobLost, JobTimeout


class BatchRunner:
    """Calls one handler with many jobs at a time. Threads share it."""

    def __init__(self, handler: BatchHandler, *, endings: Endings, interruptible: Interruptible) -> None:
        self._handler = handler
        self._endings = endings
        self._interruptible = interruptible

    def attempt(self, runs: Sequence[Run]) -> None:
        """Gives each run its ``ending``, except lost ones."""
        runs = [run for run in runs if self._decode(run)]
        if runs:
            self._attempt(runs)

    def _decode(self, run: Run) -> bool:
        """Decodes its arguments, or has its attempt fail and returns False: the handler could not tell whose they are."""
        try:
            run.args()
        except Exception as error:  # a contract's
            run.ending = self._endings.failure(run, error)
            return False
        return True

    def _attempt(self, runs: Sequence[Run]) -> None:
        jobs: list[BatchJob[Any]] = [BatchJob(run) for run in runs]
        try:
            answers = self._answers(self._call(runs, jobs), runs)
        except BaseException as error:
            if ends_the_worker(error):
                raise
            self._raised(runs, error)
            return
        for run, job, answer in zip(runs, jobs, answers, strict=True):
            # A handler may have forgotten to return what retry() returned, and None would mean success.
            given = job.retry_asked if answer is None else answer
            run.ending = None if run.is_lost() else self._ending(run, given)

    def _call(self, runs: Sequence[Run], jobs: list[BatchJob[Any]]) -> object:
        with self._interruptible() as interrupt:
            for number, run in enumerate(runs):
                # Only one run has the time limit, or the handler would be stopped once for each.
                run.begin(interrupt, limited=number == 0)
            try:
                with ending_children():
                    return self._handler.call(jobs)
            finally:
                for run in runs:
                    run.leave()

    def _answers(self, answers: object, runs: Sequence[Run]) -> Sequence[object]:
        if answers is None:
            return [None] * len(runs)
        if not isinstance(answers, list | tuple):
            discard(answers)
            raise InvalidItem(
                f"handle_batch returned {type(answers).__name__}; expected a list with an answer for each job, or None"
            )
        if len(answers) != len(runs):
            returned, given = plural(len(answers), "answer"), plural(len(runs), "job")
            raise InvalidItem(
                f"handle_batch returned {returned} for {given}; expected one for each job, in their order"
            )
        return answers

    def _ending(self, run: Run, answer: object) -> Ending:
        if run.saw_cancel:
            return Canceled()
        if isinstance(answer, Retry):
            return Requeued(pause=answer.pause, counts=not run.stopping)
        return self._endings.answered(run, answer)

    def _raised(self, runs: Sequence[Run], error: BaseException) -> None:
        held = [run for run in runs if not run.is_lost()]
        if isinstance(error, JobLost) and len(held) < len(runs):
            # The handler was stopped because of the lost ones. For the others this attempt does not count.
            for run in held:
                run.ending = Canceled() if run.saw_cancel else Requeued(pause=timedelta(0), counts=False)
            return
        if runs[0].timed_out and isinstance(error, JobTimeout):
            error = self._endings.overdue()
        if held:
            self._endings.track_together(held, error)
        for run in held:
            run.ending = self._endings.failure(run, error)
