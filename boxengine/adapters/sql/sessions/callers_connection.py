"""Finds the connection of the open transaction in what a caller passes as its session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Engine, Table, inspect, update
from sqlalchemy.orm import Mapper, Session, scoped_session, sessionmaker
from sqlalchemy.util import ScopedRegistry

from boxengine.errors import InvalidItem


def bind_arguments(model: type | None, table: Table) -> Mapping[str, Any]:
    """By what a session that has several engines chooses one of them: the same as for rows of its own in this table.

    Sessions that route reads to replicas know writes by their statements. An UPDATE is one to all of them: SQLAlchemy's example
    takes no account of an INSERT, which it expects in a flush.
    """
    mapper: Mapper[Any] | None = None if model is None else inspect(model, raiseerr=False)
    return {"clause": update(table)} | ({} if mapper is None else {"mapper": mapper})


def callers_connection(session: Any, arguments: Mapping[str, Any]) -> Connection:
    """The connection of the caller's open transaction. Flushes what the session has pending to it first.

    Args:
        arguments: see ``bind_arguments``.

    Raises:
        InvalidItem: it is neither a ``Session`` nor a ``Connection``; says what to pass instead.
    """
    if isinstance(session, scoped_session):
        session = session()
    match session:
        case Session():
            if not session._flushing:  # noqa: SLF001 - a listener may create items in a flush, as it may send statements
                session.flush()
            return session.connection(bind_arguments={**arguments})
        case Connection():
            return session
        case _:
            raise InvalidItem(advice(session))


def advice(given: Any) -> str:
    """What is said of something that is neither a ``Session`` nor a ``Connection``."""
    package, kind = type(given).__module__.partition(".")[0], type(given).__name__
    kind = "None" if given is None else kind if package == "builtins" else f"{package}.{kind}"
    needed = f"a SQLAlchemy Session or Connection is needed, not {kind}"
    if hasattr(given, "run_sync") or isinstance(getattr(given, "registry", None), ScopedRegistry):
        return f"{needed}; with an AsyncSession use acreate_outbox_item, acreate_job and so on, or session.run_sync"
    if isinstance(given, Engine | sessionmaker):
        return f"{needed}; open one: with Session(engine) as session, session.begin()"
    if hasattr(given, "cursor"):
        return f"{needed}: that is the driver's own connection; open one through an Engine: with engine.begin() as connection"
    return needed
