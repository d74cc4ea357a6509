"""The session through which handlers write in a claim's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class HandlersSession:
    """A ``Session`` on the claim's connection, made when the first handler asks for it. Used by one thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: Session | None = None

    @property
    def in_use(self) -> bool:
        """Whether a handler has asked for the session."""
        return self._session is not None

    def get(self) -> Session:
        """The session. The connection must be in a transaction that SQLAlchemy knows of."""
        if self._session is None:
            from sqlalchemy.orm import Session  # noqa: PLC0415 - a command that only looks does without the ORM

            # A handler's commit() ends its own savepoint, never the engine's transaction.
            self._session = Session(
                self._connection, join_transaction_mode="create_savepoint", expire_on_commit=False, autoflush=True
            )
        return self._session

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Keeps what is written inside, or undoes it if the block raises."""
        try:
            yield
            if self._session is not None:
                # Flushes: an error in the handler's rows must surface here, where it can still be undone.
                self._session.commit()
                self._session.expunge_all()
        except BaseException:
            if self._session is not None:
                self._session.rollback()
            raise

    def finish(self) -> None:
        """Moves what the handlers wrote out of the session's savepoint and into the transaction."""
        if self._session is not None:
            self._session.commit()
            self._session.close()
