"""FastAPI and Starlette: a worker that runs as long as the application, and dependencies for requests.

Example::

    boxes = boxengine.load("outbox.yml")
    app = FastAPI(lifespan=lifespan(boxes))
    app.include_router(probes())
    app.mount("/boxengine", boxengine.web.app(boxes, authenticate=...))

    @app.post("/orders")
    async def place_order(order: NewOrder, session: SessionOfRequest, boxes: InjectedBoxes) -> None: ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.requests import HTTPConnection
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session
from starlette.applications import Starlette

from boxengine.app.boxes import Boxes, default, load
from boxengine.app.running.in_application import running
from boxengine.engine.running.health import HealthVerdict
from boxengine.errors import BoxError, InvalidItem

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
_BOXES = "boxengine_boxes"
_WORKER = "boxengine_worker"
_NO_LIFESPAN = (
    "make the application with lifespan=boxengine.integrations.fastapi.lifespan(...). One that is mounted in another has no "
    "lifespan"
)


def lifespan(
    config: Boxes | str | Path | Sequence[str | Path] | None = None,
    *,
    worker: bool = True,
    boxes: Sequence[type | str] | type | str = (),
    env: str | None = None,
    threads: int | None = None,
    around: Lifespan | None = None,
) -> Lifespan:
    """The application's ``lifespan``: a worker starts with the application, and stops with it.

    In a test with the fixture ``boxes`` or ``database_boxes`` no worker starts: ``drain()`` delivers.

    Args:
        config: a configuration file, several of them, or what ``boxengine.load()`` returned; None: found as usual.
        worker: False: this process only creates items; ``boxengine start`` delivers them.
        boxes: the worker's boxes, as model classes or names, or a single one; all if none is named.
        env: environment section of the file.
        threads: how many threads the worker has; as configured if None.
        around: the application's own lifespan. It begins first and ends last, so that the worker may use what it sets up;
            the state it yields becomes the application's state.

    Raises:
        ConfigurationError: when the application starts, with every problem that was found.
        BoxError: likewise; see ``boxengine.running``.
        TypeError: ``config`` is the application, because ``lifespan`` itself was given to it, and not what it returns.
    """
    if isinstance(config, Starlette):
        raise TypeError("give the application what lifespan returns: lifespan=lifespan(), not lifespan=lifespan")

    @asynccontextmanager
    async def combined(app: Starlette) -> AsyncIterator[Mapping[str, Any] | None]:
        async with AsyncExitStack() as stack:
            state = None if around is None else await stack.enter_async_context(around(app))
            if worker and default.stand_in() is None:
                started = await stack.enter_async_context(running(config, boxes=boxes, env=env, threads=threads))
                setattr(app.state, _WORKER, started)
                setattr(app.state, _BOXES, started.boxes)
            else:
                loaded = config if isinstance(config, Boxes) else load(config, env)
                default.offer(loaded)
                setattr(app.state, _BOXES, loaded)
            yield state

    return combined


def boxes_of(connection: HTTPConnection) -> Boxes:
    """A dependency: the configuration of the application's lifespan, or the test's boxes, to create items with.

    Raises:
        BoxError: the application has no ``lifespan(...)`` of boxengine's.
    """
    found = _found(connection)
    if found is None:
        raise BoxError(
            f"no boxes: {_NO_LIFESPAN}: use include_router, or boxengine.acreate_outbox_item(session, ...) and its relatives"
        )
    return found


def _found(connection: HTTPConnection) -> Boxes | None:
    found = default.stand_in() or getattr(connection.app.state, _BOXES, None)
    return found if isinstance(found, Boxes) else None


InjectedBoxes = Annotated[Boxes, Depends(boxes_of)]
"""For parameters of a path operation: ``boxes: InjectedBoxes``."""


class BoundBoxes:
    """The boxes, bound to one request's session: created items and jobs commit with the rest of the request."""

    def __init__(self, boxes: Boxes, session: AsyncSession) -> None:
        self.boxes = boxes
        self.session = session

    async def create_outbox_item(self, model: Any, **attributes: Any) -> int:
        """``Boxes.acreate_outbox_item`` with the request's session."""
        return await self.boxes.acreate_outbox_item(self.session, model, **attributes)

    async def create_inbox_item(self, model: Any, **attributes: Any) -> int:
        """``Boxes.acreate_inbox_item`` with the request's session."""
        return await self.boxes.acreate_inbox_item(self.session, model, **attributes)

    async def create_outbox_batch(self, model: Any, items: Sequence[Any], **options: Any) -> list[int]:
        """``Boxes.acreate_outbox_batch`` with the request's session."""
        return await self.boxes.acreate_outbox_batch(self.session, model, items, **options)

    async def create_inbox_batch(self, model: Any, items: Sequence[Any], **options: Any) -> list[int]:
        """``Boxes.acreate_inbox_batch`` with the request's session."""
        return await self.boxes.acreate_inbox_batch(self.session, model, items, **options)

    async def create_job(self, model: Any, **attributes: Any) -> int:
        """``Boxes.acreate_job`` with the request's session."""
        return await self.boxes.acreate_job(self.session, model, **attributes)

    async def create_jobs(self, model: Any, jobs: Sequence[Any]) -> list[int]:
        """``Boxes.acreate_jobs`` with the request's session."""
        return await self.boxes.acreate_jobs(self.session, model, jobs)


def bound_to(session: Any) -> Callable[..., BoundBoxes]:
    """A dependency that gives ``BoundBoxes``.

    Args:
        session: the annotation with which path operations declare the request's ``AsyncSession``. Use the same annotation in
            both places, or FastAPI makes two sessions.

    The dependency raises ``InvalidItem`` if a request's session is a plain ``Session``: use ``InjectedBoxes`` with it.

    Example::

        Session = Annotated[AsyncSession, Depends(session_of_request, scope="function")]
        Outbox = Annotated[BoundBoxes, Depends(bound_to(Session))]

        @app.post("/orders")
        async def place_order(order: NewOrder, session: Session, outbox: Outbox) -> None:
            session.add(order.row())
            await outbox.create_outbox_item(OrderOutboxItem, event_key=order.id, payload=order.model_dump_json())
    """

    def bound(boxes: Boxes, session: Any) -> BoundBoxes:
        if isinstance(session, Session | scoped_session | Connection):
            # A plain path operation cannot await what BoundBoxes returns, and would lose the event.
            raise InvalidItem(
                "bound_to needs the annotation of an AsyncSession, not of a Session: for a Session take InjectedBoxes, and call "
                "boxes.create_outbox_item(session, ...)"
            )
        return BoundBoxes(boxes, session)

    # FastAPI needs annotations as objects: as text they would refer to a local name that FastAPI cannot resolve.
    bound.__annotations__ = {"boxes": InjectedBoxes, "session": session, "return": BoundBoxes}
    return bound


def probes(*, readiness: str = "/readiness/outbox", liveness: str = "/liveness/outbox") -> APIRouter:
    """Routes for the worker's probes, which answer as the worker's own port does: 200, or 503 with the reasons.

    In an application whose ``lifespan(...)`` starts no worker both answer 200. Without boxengine's lifespan both answer 503, as
    nobody knows how the worker is: in an application that is mounted in another, or whose own lifespan starts the worker.
    """
    router = APIRouter(tags=["boxengine"])

    @router.get(readiness)
    def ready(request: Request) -> Response:
        return _answer(request, lambda worker: worker.ready())

    @router.get(liveness)
    def alive(request: Request) -> Response:
        return _answer(request, lambda worker: worker.alive())

    return router


def _answer(request: Request, ask: Callable[[running], HealthVerdict]) -> Response:
    worker: running | None = getattr(request.app.state, _WORKER, None)
    if worker is not None:
        verdict = ask(worker)
        return _told(() if verdict.ok else verdict.reasons)
    return _told(() if _found(request) is not None else (_NO_LIFESPAN,))


def _told(reasons: Collection[str]) -> Response:
    if not reasons:
        return Response("ok\n", media_type="text/plain")
    return Response("\n".join(reasons) + "\n", status_code=503, media_type="text/plain")
