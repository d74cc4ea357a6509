"""The sessions of boxes in memory: what their create functions are given, and what handlers get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest.mock import NonCallableMock

from sqlalchemy import Connection
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session

from boxengine.adapters.memory.claims import MemorySession
from boxengine.adapters.sql.sessions.callers_connection import advice
from boxengine.errors import BoxError, InvalidItem

_NO_DATABASE = (
    "a handler that writes through session= needs a database, and these boxes are in memory: use the fixture database_boxes, "
    "whose handlers write into your test database"
)


class CreatingSession(MemorySession):
    """What a handler gets as its session: good for the create functions, and for nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.undo: list[Callable[[], None]] = []
        """How to take back what was created through it."""

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Takes back what is created inside if the block raises."""
        before = len(self.undo)
        try:
            yield
        except BaseException:
            while len(self.undo) > before:
                self.undo.pop()()
            raise

    def add(self, _effect: object) -> NoReturn:
        raise BoxError(_NO_DATABASE)

    def __getattr__(self, _name: str) -> NoReturn:
        raise BoxError(_NO_DATABASE)


def is_mock(session: Any) -> bool:
    """Whether it only imitates a session: it passes for an instance of its class, and its transactions have no end."""
    return isinstance(session, NonCallableMock)


def is_asynchronous(session: Any) -> bool:
    """Whether it runs plain code itself. A mock seems to, but would not call the code."""
    return hasattr(session, "run_sync") and not is_mock(session)


def demand_plain(session: Any) -> None:
    """Refuses what only a test could use. None, mocks and the test's own fakes are not SQLAlchemy's.

    Raises:
        InvalidItem: it is something else of SQLAlchemy's than a ``Session`` or a ``Connection``, such as an ``AsyncSession``
            without ``await``, or an ``Engine``.
    """
    if is_mock(session) or isinstance(session, Session | Connection | scoped_session):
        return
    if any(each.__module__.partition(".")[0] == "sqlalchemy" for each in session.__class__.__mro__):
        raise InvalidItem(advice(session))


def flush(session: Any) -> None:
    """Writes what the session has pending, as before an item in a database, so that it gets its keys or is refused."""
    if is_mock(session):
        return
    if isinstance(session, scoped_session):
        flush(session())
    elif isinstance(session, Session) and not session._flushing and _has_database(session):  # noqa: SLF001 - see callers_connection
        session.flush()


def _has_database(session: Session) -> bool:
    try:
        session.get_bind()
    except UnboundExecutionError:
        return False
    return True
