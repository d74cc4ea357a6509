"""Uses that a type checker has nothing to say about. Never run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from boxengine import (
    DISCARD,
    PROCESS,
    BatchAttributes,
    Boxes,
    Failure,
    Item,
    OutboxItem,
    Payload,
    acreate_outbox_batch,
    acreate_outbox_item,
    configure,
    create_inbox_batch,
    create_inbox_item,
    create_outbox_batch,
    create_outbox_item,
    load,
)
from boxengine.integrations.sqlalchemy import emits
from boxengine.protocols import (
    AsyncBatchTransport,
    AsyncTransport,
    BatchHandler,
    BatchMiddleware,
    BatchTransport,
    BatchUnderWay,
    CreateBatchMiddleware,
    CreateMiddleware,
    DecodingBatchTransport,
    DecodingTransport,
    Handler,
    ItemMiddleware,
    PartitionStrategy,
    PollMiddleware,
    PollTask,
    RetryContext,
    RetryStrategy,
    Transport,
    Verdict,
)
from tests.types.models import Base, Order, OrderOutboxItem, Payment, PaymentInboxItem, PlainOutboxItem


class JsonOutboxItem(OutboxItem[Mapping[str, object]], Base):
    __tablename__ = "json_outbox_items"
    __payload__ = Payload.json()


@emits(PlainOutboxItem, payload=lambda order: str(order.id), on=["insert"])
class Changed(Base):
    __tablename__ = "changed"


def one(session: Session, connection: Connection, scoped: scoped_session[Session], boxes: Boxes) -> None:
    number: int = create_outbox_item(session, PlainOutboxItem, event_key=1, payload=b"")
    create_outbox_item(connection, PlainOutboxItem, event_key="a", payload="text", event_name="order_placed")
    create_outbox_item(scoped, PlainOutboxItem, event_key=uuid4(), payload=b"", own_columns={"tenant": "acme"})
    create_outbox_item(session, "plain_outbox_item", event_key=1, payload=memoryview(b""), partition_by=number)
    create_outbox_item(
        session,
        PlainOutboxItem,
        event_key=1,
        payload=b"",
        options={"key": "1", "headers": {"Tenant": "acme"}},
        uuid=uuid4(),
        available_at=datetime.now(UTC),
        dedup_key="k",
    )
    create_outbox_item(session, OrderOutboxItem, event_key=1, payload=Order(1, 12))
    create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b'{"id": 1, "total": 12}')
    create_outbox_item(session, JsonOutboxItem, event_key=1, payload={"id": 1})
    create_inbox_item(session, PaymentInboxItem, event_key=1, payload=Payment("x"), uuid=str(uuid4()))
    boxes.create_outbox_item(session, OrderOutboxItem, event_key=1, payload=Order(1, 12))


def many(session: Session, orders: Sequence[Order]) -> None:
    ids: list[int] = create_outbox_batch(
        session, OrderOutboxItem, [{"event_key": order.id, "payload": order} for order in orders]
    )
    rows: list[BatchAttributes] = [{"event_key": number, "payload": b"", "partition_by": number} for number in ids]
    create_outbox_batch(session, PlainOutboxItem, rows, partition_by=lambda row: row["event_key"])
    typed: list[BatchAttributes[Payment]] = [{"event_key": 1, "payload": Payment("x")}]
    create_inbox_batch(session, PaymentInboxItem, typed)


async def asynchronously(session: AsyncSession, connection: AsyncConnection) -> None:
    number: int = await acreate_outbox_item(session, OrderOutboxItem, event_key=1, payload=Order(1, 12))
    await acreate_outbox_item(connection, PlainOutboxItem, event_key=number, payload=b"", partition_by="a")
    await acreate_outbox_batch(session, PlainOutboxItem, [{"event_key": 1, "payload": b""}])


class Webhook:
    def __call__(self, item: Item, payload: bytes) -> Failure | None:
        return None if payload else Failure(f"item {item.id} is empty")


class Bulk:
    def call_batch(self, items: Sequence[Item]) -> list[bool]:
        return [bool(item.payload) for item in items]


class Books:
    def __call__(self, item: Item, payload: bytes, *, session: Session) -> None:
        session.add(PlainOutboxItem(event_key=item.event_key, payload=payload))


class BulkBooks:
    def call_batch(self, items: Sequence[Item], *, session: Session) -> list[None]:
        session.flush()
        return [None for _ in items]


class Reads:
    def __call__(self, item: Item, payload: bytes, *, decoded: Order) -> None:
        print(item.event_key, decoded.total)


class ReadsBulk:
    def call_batch(self, items: Sequence[Item], *, decoded: Sequence[Order]) -> list[bool]:
        return [order.total > 0 for order in decoded]


class Later:
    async def __call__(self, item: Item, payload: bytes) -> None:
        print(item.event_key, payload)


class BulkLater:
    async def call_batch(self, items: Sequence[Item]) -> list[bool]:
        return [True for _ in items]


class Timed:
    def __call__(self, item: Item, call_next: Callable[[], Any]) -> None:
        call_next()


class Around:
    def __call__(self, batch: BatchUnderWay, call_next: Callable[[], Any]) -> Any:
        print(batch.box.name, len(batch.items))
        return call_next()


class Now:
    def __call__(self, task: PollTask, call_next: Callable[[], Any]) -> Any:
        return call_next() if task.partition is not None else None


class Stamp:
    def __call__(self, model: type | str, attributes: dict[str, Any], call_next: Callable[[], Any]) -> None:
        attributes["options"] = {"tenant": "acme"}
        call_next()


class StampAll:
    def __call__(self, model: type | str, attributes: list[dict[str, Any]], call_next: Callable[[], Any]) -> None:
        call_next()


def not_for_ever(item: Item, context: RetryContext) -> Verdict:
    return DISCARD if context.later_delivered(item) else PROCESS


def by_length(key: object, bucket_size: int) -> int:
    return len(str(key)) % bucket_size


def shapes() -> None:
    transports: list[Transport] = [Webhook(), lambda item, payload: None]
    batches: list[BatchTransport] = [Bulk()]
    handler: Handler[Session] = Books()
    batch_handler: BatchHandler[Session] = BulkBooks()
    decoding: DecodingTransport[Order] = Reads()
    decoding_batch: DecodingBatchTransport[Order] = ReadsBulk()
    asynchronous: AsyncTransport = Later()
    asynchronous_batch: AsyncBatchTransport = BulkLater()
    item: ItemMiddleware = Timed()
    batch: BatchMiddleware = Around()
    poll: PollMiddleware = Now()
    create: CreateMiddleware = Stamp()
    create_batch: CreateBatchMiddleware = StampAll()
    retry: RetryStrategy = not_for_ever
    partition: PartitionStrategy = by_length
    print(transports, batches, handler, batch_handler, decoding, decoding_batch, asynchronous, asynchronous_batch)
    print(item, batch, poll, create, create_batch, retry, partition)


def reads(item: Item, send: Callable[[str], Awaitable[None]]) -> Awaitable[None]:
    order: Order = item.decoded
    return send(f"{item.event_name} {order.total} {item.headers['Idempotency-Key']}")


def configuration() -> Boxes:
    return configure(load("outbox.yml", env="production"))
