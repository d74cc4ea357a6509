"""A shop on FastAPI: an order and its event commit together, the worker runs inside the application."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from httpx import AsyncClient, ConnectError
from pydantic import BaseModel
from sqlalchemy import String
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import boxengine.web
from boxengine import Item, OutboxItem
from boxengine.errors import Unavailable
from boxengine.integrations.fastapi import BoundBoxes, bound_to, lifespan, probes

engine = create_async_engine(os.environ["DATABASE_URL"])
sessions = async_sessionmaker(engine)


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(String(100))


class OrderOutboxItem(OutboxItem, Base):
    __tablename__ = "order_outbox_items"


class TellBilling:
    """A webhook of our own."""

    def __init__(self, *, url: str) -> None:
        self._client = AsyncClient(base_url=url, timeout=10)

    async def __call__(self, item: Item, payload: bytes) -> None:
        try:
            answer = await self._client.post("/orders", content=payload, headers={"Idempotency-Key": item.uuid})
        except ConnectError as error:
            raise Unavailable(f"billing cannot be reached: {error}") from error
        answer.raise_for_status()

    async def aclose(self) -> None:
        await self._client.aclose()


class NewOrder(BaseModel):
    title: str


async def session_of_request() -> AsyncGenerator[AsyncSession, None]:
    async with sessions() as session, session.begin():
        yield session


# Committed before the answer goes out: who gets a 201 may rely on it.
Session = Annotated[AsyncSession, Depends(session_of_request, scope="function")]
Outbox = Annotated[BoundBoxes, Depends(bound_to(Session))]


@asynccontextmanager
async def database(_app: FastAPI) -> AsyncGenerator[None, None]:
    yield
    await engine.dispose()


def who_asks(request: Request) -> str | None:
    return "operator" if request.headers.get("x-staff") == os.environ.get("STAFF_TOKEN", "letmein") else None


boxes = boxengine.load("outbox.yml")
app = FastAPI(lifespan=lifespan(boxes, around=database))
app.include_router(probes())
app.mount("/boxengine", boxengine.web.app(boxes, authenticate=who_asks))


@app.post("/orders", status_code=201)
async def place_order(new: NewOrder, session: Session, outbox: Outbox) -> dict[str, Any]:
    order = Order(title=new.title)
    session.add(order)
    await session.flush()
    placed = {"id": order.id, "title": order.title}
    await outbox.create_outbox_item(
        OrderOutboxItem, event_key=order.id, event_name="order_placed", payload=new.model_dump_json()
    )
    return placed
