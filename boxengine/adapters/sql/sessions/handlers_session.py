"""The session through which handlers write in a claim's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, NestedTransaction, RootTransaction

from boxengine.adapters.sql.sessions.aborted import ADVICE, conflict, is_aborted, is_lost, note_errors, undid_everything
from boxengine.adapters.sql.sessions.constraints import CHECK_AT_ONCE
from boxengine.engine.attempt import ends_the_worker
from boxengine.errors import BoxError, StoreConflict, TransactionLost, TransactionUndone

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class HandlersSession:
    """A ``Session`` on the claim's connection, made when the first handler asks for it. Used by one thread.

    Handlers may commit and roll back as they like, and catch errors or not: the savepoint around an item is the engine's, and
    what was written for an item that fails is undone. No savepoint is made for an item whose handler sends no statement.
    """

    def __init__(
        self, connection: Connection, *, sentence: Callable[[BaseException], str] = str, checks: bool = False
    ) -> None:
        """Args:
        sentence: what an error of the driver says to people.
        checks: whether deferred constraints are checked at the end of each block, and not at the commit alone.
        """
        self.failure: BaseException | None = None
        self.undone = False
        self._connection = connection
        self._sentence = sentence
        self._checks = checks
        self._session: Any = None
        """A ``ClaimSession``, once somebody has asked for it."""
        self._transaction: RootTransaction | None = None
        """The claim's, once somebody has asked for the session."""
        self._parts = [_Part(connection)]
        """The innermost last. The first is of the whole claim, for statements outside of all others."""

    @property
    def in_use(self) -> bool:
        """Whether a handler has asked for the session."""
        return self._session is not None

    def get(self) -> Session:
        """The session. The connection must be in a transaction that SQLAlchemy knows of."""
        if self._session is None:
            note_errors(self._connection, self)
            self._transaction = self._connection.get_transaction()
            self._session = _class()(self._connection, self._parts)
        session: Session = self._session
        return session

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Keeps what is written inside, or undoes it if the block raises.

        Raises:
            BoxError: a statement failed, and the block went on in the transaction that had failed with it.
            StoreConflict: a statement failed because of another transaction, and the block with it.
            TransactionLost: the claim's transaction is gone.
        """
        if self._session is not None and self._session.in_transaction():
            self._session.commit()  # what was written before the block belongs to the part around it
        part = _Part(self._connection)
        self._parts.append(part)
        try:
            yield
            if self._session is not None:
                if not self._is_lost():
                    self._keep(self._session, part)
                if self._is_lost():  # perhaps by what was kept
                    raise self._loss()  # noqa: TRY301 - as where a statement has shown it
        except BaseException as error:
            if self._is_lost():
                if ends_the_worker(error):
                    raise  # Ctrl-C in the middle of a statement is what the connection was lost to
                raise self._loss() from error
            met = None if ends_the_worker(error) else conflict(self._connection, self, error)
            if self._session is not None:
                self._session.rollback()
            part.undo()
            if met is not None:
                raise StoreConflict(self._sentence(met)) from error
            raise
        finally:
            self._parts.pop()
            self.failure = None

    def begin_parts(self) -> None:
        """Makes the savepoints of the open blocks now, so that one that somebody else makes lies inside them."""
        if self._parts[1:]:
            self.get()
        for part in self._parts[1:]:
            part.begin()

    def finish(self) -> None:
        """Moves what the handlers wrote into the transaction."""
        if self._session is not None:
            self._keep(self._session, self._parts[0])
            self._session.give_up()

    def _is_lost(self) -> bool:
        return is_lost(self._connection, self) or self._is_ended()

    def _is_ended(self) -> bool:
        """Whether a handler has ended the claim's transaction, as with ``session.connection().commit()``."""
        return self._session is not None and self._connection.get_transaction() is not self._transaction

    def _loss(self) -> TransactionLost:
        if self._is_ended():
            return TransactionLost(TransactionLost.BY_A_HANDLER)
        cause = getattr(self.failure, "orig", None)
        if cause is None:
            return TransactionLost("the database: the connection of the handlers' session is lost")
        return (TransactionUndone if undid_everything(cause) else TransactionLost)(self._sentence(cause))

    def _keep(self, session: Session, part: _Part) -> None:
        # Flushes: an error in the handler's rows must surface here, where it can still be undone.
        session.commit()
        session.expunge_all()
        if is_aborted(self._connection):
            # Not after the savepoint's release has failed: then SQLAlchemy would not return to it.
            raise BoxError(ADVICE) from self.failure
        if self._checks and part.is_begun:
            self._check()
        part.keep()

    def _check(self) -> None:
        check = self._connection.begin_nested()
        try:
            self._connection.exec_driver_sql(CHECK_AT_ONCE)
        finally:
            # Constraints are deferred again as they were, and checked once more at the commit.
            check.rollback()


class _Part:
    """A part of the claim's transaction that can be undone: a savepoint, made when something is written."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._savepoints: list[NestedTransaction] = []
        """The engine's first; then one for what follows each ``commit()`` or ``rollback()`` of a handler."""
        self._closed = True
        """Whether the next statement begins another one."""

    @property
    def is_begun(self) -> bool:
        """Whether there was a statement."""
        return bool(self._savepoints)

    def begin(self) -> None:
        """Before a statement."""
        while self._savepoints and not self._savepoints[-1].is_active:
            self._savepoints.pop()
            self._closed = True
        if self._closed:
            self._savepoints.append(self._connection.begin_nested())
            self._closed = False

    def committed(self) -> None:
        """The handler has committed: a later ``rollback()`` must not undo what was written so far."""
        self._closed = True

    def keep(self) -> None:
        while self._savepoints:
            savepoint = self._savepoints.pop()
            if savepoint.is_active:
                savepoint.commit()

    def undo(self) -> None:
        while self._savepoints:
            savepoint = self._savepoints.pop()
            if savepoint.is_active:
                savepoint.rollback()


@cache
def _class() -> Any:
    """The class of these sessions, made when the first is needed: a command that only looks does without the ORM."""
    from sqlalchemy.orm import Session  # noqa: PLC0415 - the same

    class ClaimSession(Session):
        """A handler's commit ends no savepoint of the engine's, and never the engine's transaction."""

        def __init__(self, connection: Connection, parts: list[_Part]) -> None:
            super().__init__(connection, join_transaction_mode="rollback_only", expire_on_commit=False)
            self._parts = parts

        def get_bind(self, *arguments: Any, **options: Any) -> Any:
            """Asked before each statement: the session joins the innermost savepoint."""
            for part in self._parts[1:] or self._parts:
                part.begin()
            return super().get_bind(*arguments, **options)

        def commit(self) -> None:
            super().commit()
            self._parts[-1].committed()

        def close(self) -> None:
            """Leaves it open, for it is the engine's: a handler that tidies up, or a ``with`` block, means to keep its writes."""

        def give_up(self) -> None:
            """What ``close`` is elsewhere. Only for the session's owner."""
            super().close()

    return ClaimSession
