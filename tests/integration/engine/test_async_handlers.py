"""Handlers that are coroutines write through the engine's transaction, with an ``AsyncSession``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession

from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Failure
from boxengine.engine.delivering.calls.pipeline import TransportSpec
from boxengine.errors import BoxError
from tests.integration.engine.models import Base, Order
from tests.integration.engine.receivers import BatchReceiver
from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import MakeRig

Work = Callable[[AsyncSession, Item], Any]


class Handler:
    def __init__(self, work: Work) -> None:
        self._work = work
        self.raised: list[BaseException] = []

    async def __call__(self, item: Item, payload: Any, *, session: AsyncSession) -> Any:
        assert isinstance(session, AsyncSession)
        try:
            return await self._work(session, item)
        except BaseException as error:
            self.raised.append(error)
            raise


async def book(session: AsyncSession, item: Item) -> None:
    await session.execute(sa.text("INSERT INTO bookings (item_id) VALUES (:id)"), {"id": item.id})


async def book_or_fail(session: AsyncSession, item: Item) -> Any:
    await book(session, item)
    return Failure("no money") if item.event_key == "poor" else None


async def book_or_raise(session: AsyncSession, item: Item) -> None:
    await book(session, item)
    if item.event_key == "poor":
        raise ValueError("no money")


async def book_or_break_the_rules(session: AsyncSession, item: Item) -> None:
    await book(session, item)
    if item.event_key == "poor":
        await book(session, item)  # no money: twice the same


async def book_or_never_end(session: AsyncSession, item: Item) -> None:
    await book(session, item)
    if item.event_key == "poor":
        await asyncio.Event().wait()


async def book_or_forget(session: AsyncSession, item: Item) -> None:
    if item.event_key == "poor":
        session.execute(sa.text("INSERT INTO bookings (item_id) VALUES (:id)"), {"id": item.id})  # type: ignore[unused-coroutine] # the mistake that is meant
    else:
        await book(session, item)


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    rig = make_rig(box={"bucket_size": 1})
    rig.execute("CREATE TABLE bookings (item_id bigint PRIMARY KEY)")
    return rig


def booked(rig: Rig) -> list[int]:
    return [row.item_id for row in rig.ask("SELECT item_id FROM bookings ORDER BY item_id")]


def test_what_a_handler_writes_commits_with_the_items_status(rig: Rig) -> None:
    rig.carry(Handler(book))
    ids = rig.create(*range(20))
    rig.deliver(20)
    assert booked(rig) == ids
    assert set(rig.statuses()) == {Status.DELIVERED}


@pytest.mark.parametrize(
    "work", [book_or_fail, book_or_raise, book_or_break_the_rules, book_or_never_end, book_or_forget]
)
def test_a_handler_that_fails_leaves_no_trace_and_its_neighbours_stay(rig: Rig, work: Work) -> None:
    rig.carry(TransportSpec(name="bank", build=lambda: Handler(work), timeout=timedelta(seconds=2)))
    rich, poor, also_rich = rig.create("rich", "poor", "rich")
    rig.deliver(3)
    assert booked(rig) == [rich, also_rich]
    assert rig.row(poor).status == Status.FAILED
    reason: dict[Work, str] = {
        book_or_never_end: "no answer within 2 s (timeout)",
        book_or_break_the_rules: "IntegrityError",
        book_or_forget: "session.execute(...): was not awaited",
    }
    assert reason.get(work, "no money") in rig.row(poor).error_log


class BatchHandler:
    async def call_batch(self, items: Sequence[Item], *, session: AsyncSession) -> list[None]:
        await session.execute(
            sa.text("INSERT INTO bookings (item_id) VALUES (:id)"), [{"id": item.id} for item in items]
        )
        return [None] * len(items)


def test_what_a_batch_handler_wrote_for_an_item_that_a_second_transport_refuses_is_undone(rig: Rig) -> None:
    shop = BatchReceiver(lambda item: Failure("no stock") if item.event_key == "poor" else None)
    rig.carry(handler=BatchHandler(), shop=shop)
    rich, poor, also_rich = rig.create("rich", "poor", "rich")
    rig.deliver(3)
    assert booked(rig) == [rich, also_rich]
    assert rig.row(poor).status == Status.FAILED
    assert shop.ids == [rich, poor, also_rich]


def test_everything_that_an_async_session_can_do_works(rig: Rig) -> None:
    async def work(session: AsyncSession, item: Item) -> None:
        session.add(Order(id=1, title="bicycle"))
        await session.flush()
        order = await session.get_one(Order, 1)
        order.title = "tandem"
        await session.commit()  # its own savepoint, never the engine's transaction
        session.add_all([Order(id=2, title="bell"), Order(id=3, title="bell")])
        async with session.begin_nested() as nested:
            session.add(Order(id=4, title="lock"))
            await session.flush()
            await nested.rollback()
        await session.refresh(order)
        assert order.title == "tandem"
        titles = await session.scalars(sa.select(Order.title).order_by(Order.id))
        assert titles.all() == ["tandem", "bell", "bell"]
        streamed = [row.id async for row in await session.stream(sa.select(Order).order_by(Order.id)) for row in row]
        assert streamed == [1, 2, 3]
        count = await session.run_sync(lambda sync: sync.scalar(sa.select(sa.func.count()).select_from(Order)))
        assert count == 3
        core = await session.run_sync(lambda sync: sync.connection().execute(sa.text("SELECT 7")).scalar_one())
        assert core == 7
        with pytest.raises(BoxError, match="has no AsyncConnection"):
            await session.connection()
        await session.delete(order)
        session.add(Order(id=5, title="pump"))

    Base.metadata.tables["orders"].create(rig.engine)
    handler = Handler(work)
    rig.carry(handler)
    rig.create("key")
    rig.deliver(1)
    assert handler.raised == []
    assert [tuple(row) for row in rig.ask("SELECT id, title FROM orders ORDER BY id")] == [
        (2, "bell"),
        (3, "bell"),
        (5, "pump"),
    ]


def test_a_handler_may_create_items_that_commit_with_its_own(make_rig: MakeRig) -> None:
    rig = make_rig(outbox_items={"order_outbox_item": {}}, inbox_items={"payment_inbox_item": {}})
    rig.carry(BatchReceiver())

    async def passes_on(session: AsyncSession, item: Item) -> Any:
        await rig.boxes.acreate_outbox_item(session, "order_outbox_item", event_key=item.event_key, payload=b"{}")
        return item.event_key != "poor"

    rig.carry(Handler(passes_on), box="payment_inbox_item")
    rig.create("rich", "poor", "rich", box="payment_inbox_item")
    rig.deliver(5)
    assert [row.event_key for row in rig.rows().values()] == ["rich", "rich"]


def test_the_event_loop_goes_on_while_a_statement_waits(make_rig: MakeRig) -> None:
    """Two handlers: the first holds a row, the second waits for it in the database; the first needs the loop to go on."""
    rig = make_rig(box={"bucket_size": 2, "partition_strategy": "number"}, processor={"brpop_delay": 0.2})
    rig.execute("CREATE TABLE stock (id int PRIMARY KEY, items int)")
    rig.execute("INSERT INTO stock VALUES (1, 10)")
    held, waiting = asyncio.Event(), asyncio.Event()

    async def work(session: AsyncSession, item: Item) -> None:
        take = sa.text("UPDATE stock SET items = items - 1")
        if item.event_key == "0":
            await session.execute(take)
            held.set()
            await asyncio.wait_for(waiting.wait(), timeout=20)
            await asyncio.sleep(0)
        else:
            await asyncio.wait_for(held.wait(), timeout=20)
            waiting.set()
            await session.execute(take)

    handler = Handler(work)
    rig.carry(handler)
    with rig.worker(processor_threads=2) as watcher:
        rig.create(0)
        rig.create(1)
        watcher.wait_for_settled(2)
    assert handler.raised == []
    assert rig.ask("SELECT items FROM stock")[0].items == 8


SLOW = "SELECT CASE WHEN concat({sleep}(0.3), '') = 'x' THEN 98 ELSE 99 END"


@pytest.mark.parametrize(
    "statement", [SLOW, f"INSERT INTO bookings (item_id) {SLOW} UNION ALL SELECT 99"], ids=["works", "fails"]
)
def test_a_time_limit_around_a_statement_ends_where_the_handler_has_put_it(rig: Rig, statement: str) -> None:
    """And not at a later ``await``, which would fail the handler with a ``CancelledError`` of unknown origin."""

    sleep = "pg_sleep" if rig.engine.dialect.name == "postgresql" else "sleep"

    async def slow_or_book(session: AsyncSession, item: Item) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02), session.begin_nested():
                await session.execute(sa.text(statement.format(sleep=sleep)))
        await asyncio.sleep(0)
        await book(session, item)

    rig.carry(Handler(slow_or_book))
    ids = rig.create(1)
    rig.deliver(1)
    assert booked(rig) == ids


def test_a_task_that_outlives_its_handler_cannot_use_the_session(rig: Rig) -> None:
    later: list[asyncio.Task[Any]] = []
    go_on = asyncio.Event()

    async def too_late(session: AsyncSession, item: Item) -> None:
        await go_on.wait()
        await book(session, item)

    async def leaves_a_task(session: AsyncSession, item: Item) -> None:
        if later:
            go_on.set()
            await asyncio.wait(later)
        else:
            later.append(asyncio.create_task(too_late(session, item)))

    rig.carry(Handler(leaves_a_task))
    rig.create(1, 1)
    rig.deliver(2)
    assert "belongs to a call that is over" in str(later[0].exception())
    assert booked(rig) == []
