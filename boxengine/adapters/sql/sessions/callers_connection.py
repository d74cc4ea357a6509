"""Finds the connection of the open transaction in what a caller passes as its session."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from boxengine.errors import InvalidItem


def callers_connection(session: Any) -> Connection:
    """The connection of the caller's open transaction. Flushes what the session has pending to it first.

    Raises:
        InvalidItem: it is neither a ``Session`` nor a ``Connection``; says what to pass instead.
    """
    if isinstance(session, scoped_session):
        session = session()
    match session:
        case Session():
            session.flush()
            return session.connection()
        case Connection():
            return session
        case _:
            raise InvalidItem(_advice(session))


def _advice(given: Any) -> str:
    package, kind = type(given).__module__.partition(".")[0], type(given).__name__
    kind = "None" if given is None else kind if package == "builtins" else f"{package}.{kind}"
    needed = f"a SQLAlchemy Session or Connection is needed, not {kind}"
    if hasattr(given, "run_sync"):
        return f"{needed}; with an AsyncSession use acreate_outbox_item, acreate_job and so on, or session.run_sync"
    if isinstance(given, Engine | sessionmaker):
        return f"{needed}; open one: with Session(engine) as session, session.begin()"
    if hasattr(given, "cursor"):
        return f"{needed}: that is the driver's own connection; open one through an Engine: with engine.begin() as connection"
    return needed
