"""A shop: an order and its event commit together, and a worker inside the application delivers the event."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from boxengine import Item, OutboxItem
from boxengine.integrations.fastapi import BoundBoxes, bound_to, lifespan, probes
from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel
from sqlalchemy import String
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(String(100))


class OrderOutboxItem(OutboxItem, Base):
    __tablename__ = "order_outbox_items"


class Announce:
    """Where events go. Call your own service here, or name `kafka` or `http` in outbox.yml in its place."""

    async def __call__(self, item: Item, payload: bytes) -> None:
        print(item.event_name, item.event_key, payload.decode(), flush=True)


class NewOrder(BaseModel):
    title: str


@asynccontextmanager
async def database(app: FastAPI) -> AsyncIterator[None]:
    engine = create_async_engine(os.environ["DATABASE_URL"])
    app.state.sessions = async_sessionmaker(engine)
    yield
    await engine.dispose()


async def session_of_request(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session, session.begin():
        yield session


# scope="function": the transaction commits before the answer goes out.
Session = Annotated[AsyncSession, Depends(session_of_request, scope="function")]
Outbox = Annotated[BoundBoxes, Depends(bound_to(Session))]


def build(*, worker: bool = True) -> FastAPI:
    """The application. Without a worker, `boxengine start` delivers, in a process of its own."""
    app = FastAPI(lifespan=lifespan("outbox.yml", around=database, worker=worker))
    app.include_router(probes())
    app.post("/orders", status_code=201)(place_order)
    return app


async def place_order(new: NewOrder, session: Session, outbox: Outbox) -> dict[str, int]:
    order = Order(title=new.title)
    session.add(order)
    await session.flush()
    event = json.dumps({"id": order.id, "title": order.title})
    await outbox.create_outbox_item(OrderOutboxItem, event_key=order.id, event_name="order_placed", payload=event)
    return {"id": order.id}
