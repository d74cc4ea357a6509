"""An ``AsyncSession`` on a claim's transaction, for handlers that are coroutines.

It is SQLAlchemy's own class, over the same session that a plain handler gets: same connection, same savepoints. SQLAlchemy runs
a session's work in a greenlet, which may await something in the middle of a call. Here the greenlet awaits each statement while
the claim's thread executes it. So a statement does not block the event loop, and the connection stays in one thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, Protocol, cast

from sqlalchemy import Connection, Engine, event

from boxengine.errors import BoxError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

_VISIT = "boxengine_visit"
"""The key in a connection's ``info`` that names the visit which executes its statements now."""


class Visit(Protocol):
    """A running coroutine, and the thread that executes its blocking calls."""

    @property
    def in_thread(self) -> bool:
        """Whether the caller is that thread."""

    async def errand(self, function: Any, /, *arguments: Any) -> Any:
        """Calls the function in the visit's thread and awaits the result."""

    def settled(
        self, call: Callable[..., Awaitable[Any]], /, *arguments: Any, **options: Any
    ) -> Coroutine[Any, Any, Any]:
        """Awaits the call, and at its end raises the ``CancelledError`` that errands kept from the caller."""

    def note(self, coroutine: Coroutine[Any, Any, Any], name: str) -> Coroutine[Any, Any, Any]:
        """Returns the coroutine, after whose name the call fails if nobody awaits it."""


@contextmanager
def lend(session: Session, visit: Visit) -> Iterator[AsyncSession]:
    """Lends the session to this visit's coroutine until the coroutine ends.

    Raises:
        BoxError: greenlet is not installed, or the delivery has no SQLAlchemy session.
    """
    # Not ``session.connection()``, which begins a transaction: the handler may mean to, with ``async with session.begin()``.
    connection = cast("Connection", session.get_bind())
    lent = awaited(session, visit)
    route(connection, visit)
    try:
        yield lent
    finally:
        connection.info.pop(_VISIT, None)
        # A task that outlives its handler must not write into the next one's savepoint.
        lent.sync_session = lent._proxied = cast("Session", _Over())  # noqa: SLF001 - AsyncSession works through both


def route(connection: Connection, visit: Visit) -> None:
    """Has the thread of the visit execute what the coroutine sends over this connection, until the pool gets it back."""
    _listen(connection.engine)
    connection.info[_VISIT] = visit


class _Over:
    """Replaces a session that has been given back, so that later use of it fails."""

    def __getattr__(self, name: str) -> Any:
        raise BoxError("this session belongs to a call that is over")


def awaited(session: Session, visit: Visit) -> AsyncSession:
    """An ``AsyncSession`` over this session, whose connection is routed. The visit is told of each coroutine that it makes.

    Raises:
        BoxError: greenlet is not installed.
    """
    made: AsyncSession = _claim_session()(sync_session_class=lambda **_options: session)
    made.__dict__[_VISIT] = visit
    return made


@cache
def _claim_session() -> Any:
    """The class of these sessions, made when the first is needed: it needs greenlet."""
    try:
        import greenlet  # noqa: F401, PLC0415 - an optional dependency
        from sqlalchemy.ext.asyncio import AsyncResult  # noqa: PLC0415 - which needs it
        from sqlalchemy.ext.asyncio import AsyncSession as Base  # noqa: PLC0415
    except ImportError as error:
        raise BoxError(
            f"the session of an async handler needs greenlet: pip install 'boxengine[asyncio]' ({error})"
        ) from error

    class ClaimSession(Base):
        """Buffers streamed results at once: rows fetched later would be fetched outside the claim's thread."""

        async def __aexit__(self, *_error: object) -> None:
            """Leaves it open, for it is the engine's: whoever writes ``async with`` means to keep what the block has written."""

        async def connection(self, *_arguments: Any, **_options: Any) -> Any:
            raise BoxError(
                "the session of a handler has no AsyncConnection, which needs an asynchronous driver: "
                "use session.execute(), or session.run_sync() and in it session.connection()"
            )

        async def execute(self, statement: Any, params: Any = None, **options: Any) -> Any:
            # Not the base's: since SQLAlchemy 2.1 it expects rows of plain SQL in an asynchronous driver's cursor.
            return await self.run_sync(lambda plain: plain.execute(statement, params, **options))

        async def stream(self, statement: Any, params: Any = None, **options: Any) -> AsyncResult[Any]:
            return AsyncResult(await self.execute(statement, params, **options))

        async def stream_scalars(self, statement: Any, params: Any = None, **options: Any) -> Any:
            return (await self.stream(statement, params, **options)).scalars()

    for name, method in inspect.getmembers(ClaimSession, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            setattr(ClaimSession, name, _noted(method))
    return ClaimSession


def _noted(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """A method that tells the visit of its coroutine."""

    @wraps(method)
    def noted(self: Any, *arguments: Any, **options: Any) -> Coroutine[Any, Any, Any]:
        visit: Visit = self.__dict__[_VISIT]
        return visit.note(visit.settled(method, self, *arguments, **options), f"session.{method.__name__}")

    return noted


def _listen(engine: Engine) -> None:
    """Routes this engine's statements to the visit that their connection's ``info`` names, if any."""
    for name, listener in _LISTENERS.items():
        if not event.contains(engine, name, listener):
            event.listen(engine, name, listener)
    if not event.contains(engine, "checkin", _forget):
        event.listen(engine, "checkin", _forget)


def _forget(_driver: Any, record: Any) -> None:
    """The next one to take this connection from the pool is somebody else."""
    record.info.pop(_VISIT, None)


def _elsewhere(name: str, *arguments: Any) -> bool:
    """Executes the statement in the claim's thread, if a visit is on; returns whether it did."""
    context = arguments[-1]
    visit = context.root_connection.info.get(_VISIT)
    if visit is None or visit.in_thread:
        return False
    from sqlalchemy.util import await_only  # noqa: PLC0415 - needs greenlet, as who gets here has it

    await_only(visit.errand(getattr(context.dialect, name), *arguments))
    return True


_LISTENERS = {name: partial(_elsewhere, name) for name in ("do_execute", "do_executemany", "do_execute_no_params")}
