"""The job as a coroutine sees it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from boxengine.engine.awaiting.visit import Visit
from boxengine.engine.jobs.facts import A
from boxengine.engine.jobs.handle import JobHandle
from boxengine.engine.jobs.run import Run
from boxengine.ports.jobs import JobUnit


class AsyncJob(JobHandle[A]):
    """The argument of an ``async def`` handler: a ``Job`` whose calls to the database are awaited.

    The coroutine is cancelled once the job is to be canceled, or is no longer this worker's.

    Example::

        async def import_orders(job: AsyncJob[ImportArgs]) -> dict[str, int]:
            done = job.state or 0
            async for chunk in download(job.args["url"], after=done):
                job.session.add_all(orders_in(chunk))
                done += len(chunk)
                await job.checkpoint(done)
                job.progress(done=done)
            return {"imported": done}
    """

    def __init__(self, run: Run, unit: JobUnit, visit: Visit) -> None:
        super().__init__(run, unit)
        self.visit = visit
        """The coroutine, and the thread that writes for it."""

    def checkpoint(self, state: Any) -> Coroutine[Any, Any, None]:
        """``await job.checkpoint(state)``: keeps ``state`` for later attempts, and commits what ``session`` has written with it.

        Args:
            state: any JSON value; ``job.state`` of the next attempt.

        Raises:
            JobLost: nothing was written.
            InvalidItem: the state cannot be JSON.
            StoreUnavailable: the database did not answer; what ``session`` wrote since the last checkpoint may be undone.
        """
        return self.visit.note(self.visit.errand(self._keep, state), "job.checkpoint")

    @property
    def session(self) -> Any:
        """A SQLAlchemy ``AsyncSession``. What it writes commits with the next checkpoint or with the job's success.

        Leave out ``begin()``, ``commit()`` and ``close()``. From its first statement to the next checkpoint a transaction is
        open.
        """
        self.ensure_held()
        return self._unit.awaited_session(self.visit)
