"""One attempt's writes: the handler's session, its checkpoints, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, SessionTransaction

from boxengine.adapters.sql.errors import blaming_the_row, translated
from boxengine.adapters.sql.jobs import writes
from boxengine.adapters.sql.jobs.rows import SILENCE, JobRows, limit_silence, short
from boxengine.domain.jobs import ClaimedJob, Ending, Succeeded
from boxengine.errors import BoxError


class JobSession(Session):
    """A handler's. Only a checkpoint and the end commit it, because only they carry the fence."""

    def commit(self) -> NoReturn:
        raise BoxError("job.session is committed by job.checkpoint(...) and by the end of the job: leave out commit()")

    def commit_fenced(self) -> None:
        """For whoever has just written under the fence."""
        super().commit()


class SqlUnit:
    """``JobUnit``. A connection is taken when the session is first asked for; else each write takes one for a moment."""

    def __init__(self, engine: Engine, rows: JobRows, job: ClaimedJob) -> None:
        self._engine = engine
        self._rows = rows
        self._job = job
        self._session: JobSession | None = None

    @property
    def session(self) -> Session:
        if self._session is None:
            self._session = JobSession(self._engine, expire_on_commit=False)
            event.listen(self._session, "after_begin", _let_it_think)
        return self._session

    @property
    def in_use(self) -> bool:
        return self._session is not None

    def checkpoint(self, state: Any) -> bool:
        return self._with_session(lambda connection: writes.checkpoint(connection, self._rows, self._job.held, state))

    def end(self, ending: Ending, *, progress: Mapping[str, Any] | None = None) -> bool:
        def write(connection: Connection) -> bool:
            return writes.end(connection, self._rows, self._job, ending, progress)

        if isinstance(ending, Succeeded):
            return self._with_session(write)
        self.close()
        return self._alone(write)

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(SQLAlchemyError):  # what is not committed is undone with the connection at the latest
                session.close()

    def _with_session(self, write: Callable[[Connection], bool]) -> bool:
        session = self._session
        if session is None:
            return self._alone(write)
        with translated(self._engine), blaming_the_row():
            session.flush()
            connection = session.connection()
            limit_silence(connection, timedelta(seconds=SILENCE))
            written = write(connection)
            if written:
                session.commit_fenced()
            else:
                session.rollback()
        return written

    def _alone(self, write: Callable[[Connection], bool]) -> bool:
        with short(self._engine) as connection, blaming_the_row():
            return write(connection)


def _let_it_think(_session: Session, _transaction: SessionTransaction, connection: Connection) -> None:
    """However long a handler is silent between two statements: the lease tells whether it lives."""
    limit_silence(connection, timedelta(0))
