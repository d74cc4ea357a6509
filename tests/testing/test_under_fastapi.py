"""An application on FastAPI under test: it uses the test's boxes, and starts no worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from boxengine.app.boxes import Boxes
from boxengine.errors import BoxError, InvalidItem
from boxengine.integrations.fastapi import BoundBoxes, InjectedBoxes, bound_to, lifespan, probes
from boxengine.settings import Resolved
from boxengine.testing import MemoryBoxes
from boxengine.testing.plugin import TestServers
from tests.testing.shop import Base, OrderOutboxItem, ReportJob


async def _session() -> AsyncIterator[AsyncSession]:
    async with AsyncSession() as session, session.begin():
        yield session


Bound = Annotated[BoundBoxes, Depends(bound_to(Annotated[AsyncSession, Depends(_session, scope="function")]))]


def _plain_session() -> Session:
    return Session()


PlainBound = Annotated[BoundBoxes, Depends(bound_to(Annotated[Session, Depends(_plain_session)]))]


def _application(resolved: Resolved) -> FastAPI:
    app = FastAPI(lifespan=lifespan(Boxes(resolved)))
    app.include_router(probes())

    @app.post("/injected")
    async def injected(boxes: InjectedBoxes) -> None:
        boxes.create_outbox_item(Session(), OrderOutboxItem, event_key="injected", payload=b"")

    @app.post("/bound")
    async def bound(outbox: Bound) -> int:
        return await outbox.create_outbox_item(OrderOutboxItem, event_key="bound", payload=b"")

    return app


@pytest.mark.parametrize("way", ["injected", "bound"])
def test_requests_write_into_the_boxes_of_the_test(boxengine_resolved: Resolved, boxes: MemoryBoxes, way: str) -> None:
    app = _application(boxengine_resolved)
    with TestClient(app) as client:
        assert client.post(f"/{way}").status_code == 200
        assert client.get("/readiness/outbox").text == "ok\n", "as in an application without a worker"
    assert not hasattr(app.state, "boxengine_worker")
    assert boxes.emitted(OrderOutboxItem) == [{"event_key": way}]


def test_jobs_are_created_in_the_session_of_the_request(
    boxengine_resolved: Resolved, boxengine_servers: TestServers
) -> None:
    async def create() -> list[str]:
        engine = create_async_engine(boxengine_servers.database_url)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with AsyncSession(engine) as session:
            bound = BoundBoxes(Boxes(boxengine_resolved), session)
            await bound.create_job(ReportJob, task="export")
            await session.rollback()
            await bound.create_job(ReportJob, task="export")
            await bound.create_jobs(ReportJob, [{"task": "export"}])
            await session.commit()
            tasks = list(await session.scalars(select(ReportJob.task)))
        await engine.dispose()
        return tasks

    assert asyncio.run(create()) == ["export", "export"]


def test_a_client_that_runs_no_lifespan_needs_none(boxengine_resolved: Resolved, boxes: MemoryBoxes) -> None:
    TestClient(_application(boxengine_resolved)).post("/injected")
    assert boxes.emitted(OrderOutboxItem) == [{"event_key": "injected"}]


def test_without_boxes_of_a_test_the_lifespan_is_still_needed(boxengine_resolved: Resolved) -> None:
    with pytest.raises(BoxError, match=r"no boxes: make the application with lifespan=.* mounted in another"):
        TestClient(_application(boxengine_resolved)).post("/injected")


@pytest.mark.parametrize("path", ["/readiness/outbox", "/liveness/outbox"])
def test_probes_that_know_of_no_worker_do_not_say_that_all_is_well(boxengine_resolved: Resolved, path: str) -> None:
    inner = FastAPI(lifespan=lifespan(Boxes(boxengine_resolved)))
    inner.include_router(probes())
    outer = FastAPI()
    outer.mount("/inner", inner)
    with TestClient(outer) as client:
        answer = client.get(f"/inner{path}")
    assert answer.status_code == 503
    assert answer.text.startswith("make the application with lifespan=")


def test_a_lifespan_that_was_not_called_is_told_to_be() -> None:
    uncalled: Any = lifespan
    with (
        pytest.raises(TypeError, match=r"^give the application what lifespan returns: lifespan=lifespan\(\), not "),
        TestClient(FastAPI(lifespan=uncalled)),
    ):
        pass


def test_a_plain_session_cannot_be_bound(boxengine_resolved: Resolved, boxes: MemoryBoxes) -> None:
    app = _application(boxengine_resolved)

    @app.post("/plain")
    def plain_path(outbox: PlainBound) -> None:
        outbox.create_outbox_item(OrderOutboxItem, event_key=1, payload=b"").close()  # nobody can await it here

    with pytest.raises(InvalidItem, match="for a Session take InjectedBoxes"):
        TestClient(app).post("/plain")
    assert boxes.emitted(OrderOutboxItem) == []
