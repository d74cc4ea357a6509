"""One attempt's writes: the handler's session, its checkpoints, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from boxengine.adapters.sql.connecting.engine import limit_lock_wait
from boxengine.adapters.sql.connecting.errors import blaming_the_row, translated
from boxengine.adapters.sql.jobs import writes
from boxengine.adapters.sql.jobs.ends import Ends
from boxengine.adapters.sql.jobs.rows import SILENCE, JobRows, limit_silence, short
from boxengine.adapters.sql.jobs.session import JobSession
from boxengine.adapters.sql.sessions.aborted import demanding_transaction
from boxengine.adapters.sql.sessions.async_session import awaited
from boxengine.domain.jobs import ClaimedJob, Ending, JobOutcome, Succeeded
from boxengine.errors import CheckpointLost


class SqlUnit:
    """``JobUnit``. A connection is taken when the session is first asked for; else each write takes one for a moment."""

    def __init__(self, engine: Engine, rows: JobRows, job: ClaimedJob, ends: Ends) -> None:
        self._engine = engine
        self._rows = rows
        self._job = job
        self._ends = ends
        self._checkpoints = 0
        self._session: JobSession | None = None
        self._awaited: Any = None
        """The ``AsyncSession`` over it, where a coroutine asked for one."""

    @property
    def session(self) -> JobSession:
        if self._session is None:
            self._session = JobSession(self._engine)
        return self._session

    def awaited_session(self, visit: Any) -> Any:
        session = self.session
        if self._awaited is None or session.visit is not visit:
            self._awaited = awaited(session, visit)
            session.visit = visit
        return self._awaited

    @property
    def in_use(self) -> bool:
        return self._session is not None

    def checkpoint(self, state: Any) -> bool:
        number = self._checkpoints + 1
        written = self._with_session(
            lambda connection: writes.checkpoint(connection, self._rows, self._job.held, state, number=number)
        )
        if written:
            self._checkpoints = number
        return written

    def end(self, ending: Ending, *, progress: Mapping[str, Any] | None = None) -> bool:
        def write(connection: Connection) -> bool:
            return bool(self._ends.write(connection, [JobOutcome(self._job, ending, progress)], waits=True))

        if isinstance(ending, Succeeded):
            return self._with_session(write)
        self.close()
        return self._alone(write)

    def close(self) -> None:
        session, self._session, self._awaited = self._session, None, None
        if session is not None:
            with suppress(SQLAlchemyError):  # what is not committed is undone with the connection at the latest
                session.give_up()

    def _with_session(self, write: Callable[[Connection], bool]) -> bool:
        session = self._session
        if session is None:
            return self._alone(write)
        with translated(self._engine), blaming_the_row(), demanding_transaction(session):
            session.flush()
            connection = session.connection()
            limit_silence(connection, timedelta(seconds=SILENCE))
            limit_lock_wait(connection)
            # A server that took over may lack it, and with it what the session had written. Nobody would write that again.
            try:
                writes.demand_checkpoints(connection, self._rows, self._job.held, self._checkpoints)
            except CheckpointLost:
                session.rollback()
                raise
            written = write(connection)
            if written:
                session.commit_fenced()
            else:
                session.rollback()
        return written

    def _alone(self, write: Callable[[Connection], bool]) -> bool:
        with short(self._engine) as connection, blaming_the_row():
            return write(connection)
