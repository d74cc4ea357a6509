"""Mistakes that a type checker finds: the lines that say so and no other. Never run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from boxengine import (
    Boxes,
    Failure,
    Item,
    OutboxItem,
    Payload,
    acreate_inbox_item,
    acreate_outbox_batch,
    acreate_outbox_item,
    configure,
    create_inbox_item,
    create_outbox_batch,
    create_outbox_item,
)
from boxengine.integrations.sqlalchemy import emits
from boxengine.protocols import (
    BatchTransport,
    CreateMiddleware,
    DecodingTransport,
    Handler,
    ItemMiddleware,
    PartitionStrategy,
    RetryContext,
    RetryStrategy,
    Transport,
)
from tests.types.models import Base, Order, OrderOutboxItem, Payment, PaymentInboxItem, PlainOutboxItem


def one(session: Session, asynchronous: AsyncSession, engine: Engine, boxes: Boxes) -> None:
    create_outbox_item(session, PlainOutboxItem, event_kye=1, payload=b"")  # expect: a name that is misspelt
    create_outbox_item(session, PlainOutboxItem, event_key=1)  # expect: no payload
    create_outbox_item(session, PlainOutboxItem, payload=b"")  # expect: no event key
    create_outbox_item(session, PlainOutboxItem, event_key=1, payload=3)  # expect: a number, and no codec
    create_outbox_item(session, PlainOutboxItem, event_key=1.5, payload=b"")  # expect: a key that would be rounded
    create_outbox_item(session, PlainOutboxItem, event_key=None, payload=b"")  # expect: a key that is none
    create_outbox_item(session, PlainOutboxItem, event_key=1, payload=None)  # expect: a payload that is none
    create_outbox_item(session, PlainOutboxItem, event_key=1, payload=b"", color="red")  # expect: no such attribute
    create_outbox_item(session, PlainOutboxItem, event_key=1, payload=b"", event_name=7)  # expect: a name is text
    create_outbox_item(session, PlainOutboxItem, event_key=1, payload=b"", options=["x"])  # expect: a mapping
    create_outbox_item(session, PlainOutboxItem, event_key=1, payload=b"", uuid=5)  # expect: a UUID or its text
    create_outbox_item(session, PlainOutboxItem, event_key=1, payload=b"", available_at="noon")  # expect: a datetime
    create_outbox_item(session, PlainOutboxItem, event_key=1, payload=b"", dedup_key=b"k")  # expect: text
    create_outbox_item(session, PlainOutboxItem, 1, b"")  # expect: attributes are given by name
    create_outbox_item(engine, PlainOutboxItem, event_key=1, payload=b"")  # expect: an engine has no transaction
    create_outbox_item(asynchronous, PlainOutboxItem, event_key=1, payload=b"")  # expect: acreate_ for this session
    create_outbox_item(session, PaymentInboxItem, event_key=1, payload=b"")  # expect: an inbox's model
    create_inbox_item(session, PlainOutboxItem, event_key=1, payload=b"")  # expect: an outbox's model
    create_outbox_item(session, Order, event_key=1, payload=b"")  # expect: no model of a box
    create_outbox_item(session, PlainOutboxItem(), event_key=1, payload=b"")  # expect: an instance, not the class
    boxes.create_outbox_item(session, PlainOutboxItem, event_key=1)  # expect: no payload, by way of Boxes
    row: PlainOutboxItem = create_outbox_item(session, PlainOutboxItem, event_key=1, payload=b"")  # expect: it is an id
    print(row)


def many(session: Session) -> None:
    create_outbox_batch(session, PlainOutboxItem, [{"event_key": 1}])  # expect: no payload
    create_outbox_batch(session, PlainOutboxItem, [{"event_kye": 1, "payload": b""}])  # expect: misspelt
    create_outbox_batch(session, PlainOutboxItem, [{"event_key": 1, "payload": 3}])  # expect: a number
    create_outbox_batch(session, PlainOutboxItem, {"event_key": 1, "payload": b""})  # expect: not a list
    create_outbox_batch(session, PlainOutboxItem, [], partition_by=3)  # expect: for a batch, a callable


async def asynchronously(session: Session, asynchronous: AsyncSession) -> None:
    await acreate_outbox_item(session, PlainOutboxItem, event_key=1, payload=b"")  # expect: not an AsyncSession
    await acreate_outbox_item(asynchronous, PlainOutboxItem, event_kye=1, payload=b"")  # expect: misspelt
    await acreate_inbox_item(asynchronous, PlainOutboxItem, event_key=1, payload=b"")  # expect: an outbox's model
    await acreate_outbox_batch(asynchronous, PlainOutboxItem, [{"event_key": 1}])  # expect: no payload
    number: int = acreate_outbox_item(asynchronous, PlainOutboxItem, event_key=1, payload=b"")  # expect: no await
    print(number)


def payloads(session: Session) -> None:
    create_outbox_item(session, OrderOutboxItem, event_key=1, payload=Payment("x"))  # expect: not an Order
    create_outbox_item(session, OrderOutboxItem, event_key=1, payload={"id": 1})  # expect: not an Order either
    create_outbox_batch(session, OrderOutboxItem, [{"event_key": 1, "payload": Payment("x")}])  # expect: not an Order


class Confused(OutboxItem[Order], Base):
    __tablename__ = "confused"
    __payload__ = Payload.pydantic(Payment)  # expect: the codec of another type


class Undeclared(OutboxItem, Base):
    __tablename__ = "undeclared"
    __payload__ = Payload.pydantic(Order)  # expect: OutboxItem[Order]


class Takes:
    def __call__(self, item: Item) -> None: ...


class OneAnswer:
    def call_batch(self, items: Sequence[Item]) -> bool:
        return bool(items)


class OfPayments:
    def __call__(self, item: Item, payload: bytes, *, decoded: Payment) -> None: ...


class NoNext:
    def __call__(self, item: Item) -> None: ...


class NoModel:
    def __call__(self, attributes: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        return call_next()


def always(item: Item, context: RetryContext) -> bool:
    return item.id > 0


def letters(key: object, bucket_size: int) -> str:
    return str(key)[:bucket_size]


def shapes() -> None:
    transport: Transport = Takes()  # expect: no payload
    batch: BatchTransport = OneAnswer()  # expect: one result per item
    handler: Handler[Session] = Takes()  # expect: no session
    decoding: DecodingTransport[Order] = OfPayments()  # expect: another payload
    middleware: ItemMiddleware = NoNext()  # expect: no call_next
    create: CreateMiddleware = NoModel()  # expect: no model
    retry: RetryStrategy = always  # expect: PROCESS, SKIP or DISCARD
    partition: PartitionStrategy = letters  # expect: a number
    print(transport, batch, handler, decoding, middleware, create, retry, partition)


def others() -> None:
    configure(path=3)  # expect: a path
    emits(PlainOutboxItem, on=["insert"])  # expect: no payload
    Failure(42)  # expect: a reason in words
