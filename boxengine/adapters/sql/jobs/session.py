"""The session of a handler, plain or lent to a coroutine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NoReturn, cast

from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session, SessionTransaction

from boxengine.adapters.sql.jobs.rows import limit_silence
from boxengine.adapters.sql.sessions.aborted import note_errors
from boxengine.adapters.sql.sessions.async_session import Visit, route
from boxengine.errors import BoxError

ADVICE = (
    "job.session is committed by job.checkpoint(...) and by the end of the job: leave out begin(), commit() and close(); "
    "begin_nested() makes savepoints, and rollback() undoes what is not committed"
)


class JobSession(Session):
    """A handler's. Only a checkpoint and the end commit it, because only they carry the fence.

    Used by a coroutine, it leaves to the thread of the visit whatever waits for the server: connecting, statements, rollbacks.
    """

    def __init__(self, engine: Engine) -> None:
        # A thread that outlives its handler would begin a transaction that nobody ends.
        super().__init__(engine, expire_on_commit=False, close_resets_only=False)
        self.visit: Visit | None = None
        """Whose coroutine uses it; None: a plain handler does."""
        self.connected = False
        """Whether it has a connection."""
        self.failure: BaseException | None = None
        self.undone = False
        event.listen(self, "after_begin", _connected)
        event.listen(self, "after_transaction_end", _disconnected)

    def begin(self, nested: bool = False) -> SessionTransaction:  # noqa: FBT001, FBT002 - SQLAlchemy's own signature
        """Only a savepoint, which ``begin_nested()`` makes here: the block of any other transaction commits at its end."""
        if not nested:
            raise BoxError(ADVICE)
        return super().begin(nested=True)

    def commit(self) -> NoReturn:
        raise BoxError(ADVICE)

    def commit_fenced(self) -> None:
        """Commits. Only for a caller that has just written under the fence."""
        super().commit()

    def get_bind(self, *arguments: Any, **options: Any) -> Any:
        """Asked before each use of the connection, so that a coroutine's first one has it made in the thread."""
        if not self.connected:
            self._in_thread(self.connection)
        return super().get_bind(*arguments, **options)

    def rollback(self) -> None:
        if not self._in_thread(super().rollback):
            super().rollback()

    def close(self) -> NoReturn:
        """SQLAlchemy's undoes without a word what is not committed, which a handler that tidies up does not mean."""
        raise BoxError(ADVICE)

    def __exit__(self, *_error: object) -> None:
        """Leaves it open: whoever writes ``with job.session as session`` means to keep what the block has written."""

    def give_up(self) -> None:
        """Undoes what is not committed, and gives the connection back. Only for the session's owner."""
        super().close()

    def _in_thread(self, call: Any) -> bool:
        """Has the visit's thread do it; False: nobody has to, for this is the thread."""
        if self.visit is None or self.visit.in_thread:
            return False
        from sqlalchemy.util import await_only  # noqa: PLC0415 - needs greenlet, which a coroutine's session has

        await_only(self.visit.errand(call))
        return True


def _connected(session: Session, _transaction: SessionTransaction, connection: Connection) -> None:
    # However long a handler stays silent between two statements, the lease decides whether it is alive.
    limit_silence(connection, timedelta(0))
    own = cast("JobSession", session)
    own.connected = True
    note_errors(connection, own)
    if own.visit is not None:
        route(connection, own.visit)


def _disconnected(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        own = cast("JobSession", session)
        own.connected, own.failure, own.undone = False, None, False
