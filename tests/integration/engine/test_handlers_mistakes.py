"""Handlers that catch errors of their statements, commit and roll back in the engine's transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from boxengine.domain.item import Item, Status
from tests.integration.engine.models import Base, Order
from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import MakeRig

ADVICE = "an earlier statement of the handler failed"
BOOK = sa.text("INSERT INTO bookings (item_id) VALUES (:id)")
Work = Callable[[Session, Item], Any]


class Handler:
    """Books each item, and does its work for poor ones."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, item: Item, payload: Any, *, session: Session) -> Any:
        book(session, item)
        return self._work(session, item) if item.event_key == "poor" else None


def book(session: Session, item: Item) -> None:
    session.execute(BOOK, {"id": item.id})


def catches(session: Session, item: Item) -> None:
    with suppress(SQLAlchemyError):
        book(session, item)  # twice the same


def catches_and_goes_on(session: Session, item: Item) -> None:
    catches(session, item)
    session.execute(sa.text("SELECT 1"))


def catches_and_commits(session: Session, item: Item) -> None:
    catches(session, item)
    session.commit()


def catches_all(session: Session, item: Item) -> None:
    catches(session, item)
    with suppress(SQLAlchemyError), session.begin_nested():
        book(session, item)
    with suppress(SQLAlchemyError):
        session.commit()


def catches_a_flush(session: Session, item: Item) -> None:
    session.add(Order(id=item.id, title="bicycle"))
    session.flush()
    session.expunge_all()
    session.add(Order(id=item.id, title="bicycle"))
    with suppress(SQLAlchemyError):
        session.flush()


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    rig = make_rig(box={"bucket_size": 1})
    Base.metadata.create_all(rig.engine, [Order.metadata.tables["orders"]])
    rig.execute("CREATE TABLE bookings (item_id bigint PRIMARY KEY)")
    return rig


def booked(rig: Rig) -> list[int]:
    return [row.item_id for row in rig.ask("SELECT item_id FROM bookings ORDER BY item_id")]


def on_postgresql(rig: Rig) -> bool:
    return bool(rig.engine.dialect.name == "postgresql")


@pytest.mark.parametrize("work", [catches, catches_and_goes_on, catches_and_commits, catches_all, catches_a_flush])
def test_whoever_goes_on_after_a_failed_statement_fails_alone_and_is_told_why(rig: Rig, work: Work) -> None:
    rig.carry(Handler(work))
    rich, poor, also_rich = rig.create("rich", "poor", "rich")
    rig.deliver(3)
    if not on_postgresql(rig) and work is not catches_a_flush:
        assert booked(rig) == [rich, poor, also_rich], "MariaDB undoes the statement alone"
        return
    assert booked(rig) == [rich, also_rich]
    assert rig.row(poor).status == Status.FAILED
    log = rig.row(poor).error_log
    assert "previous exception during flush" in log if work is catches_a_flush else ADVICE in log
    assert "bookings_pkey" in log or "orders" in log, "what failed first"
    assert " Handler: " in log


async def async_work(session: AsyncSession, item: Item) -> None:
    await session.execute(BOOK, {"id": item.id})
    if item.event_key == "poor":
        with suppress(SQLAlchemyError):
            await session.execute(BOOK, {"id": item.id})


class AsyncHandler:
    async def __call__(self, item: Item, payload: Any, *, session: AsyncSession) -> None:
        await async_work(session, item)


class BatchHandler:
    def call_batch(self, items: Sequence[Item], *, session: Session) -> list[None]:
        for item in items:
            book(session, item)
            if item.event_key == "poor":
                catches(session, item)
        return [None] * len(items)


@pytest.mark.parametrize("handler", [AsyncHandler, BatchHandler])
def test_the_same_in_a_coroutine_and_in_a_batch(rig: Rig, handler: Callable[[], Any]) -> None:
    rig.carry(handler())
    rich, poor, also_rich = rig.create("rich", "poor", "rich")
    rig.deliver(3)
    if not on_postgresql(rig):
        assert booked(rig) == [rich, poor, also_rich]
        return
    assert booked(rig) == [rich, also_rich]
    assert rig.row(poor).status == Status.FAILED
    assert ADVICE in rig.row(poor).error_log


def commits_and_raises(session: Session, _item: Item) -> None:
    session.commit()
    raise ValueError("no money")


def commits_writes_and_raises(session: Session, item: Item) -> None:
    session.commit()
    session.add(Order(id=item.id, title="bicycle"))
    session.commit()
    session.execute(sa.text("SELECT 1"))
    raise ValueError("no money")


def rolls_back_and_raises(session: Session, item: Item) -> None:
    session.rollback()
    book(session, item)
    raise ValueError("no money")


@pytest.mark.parametrize("work", [commits_and_raises, commits_writes_and_raises, rolls_back_and_raises])
def test_a_handler_that_fails_leaves_no_trace_whatever_it_has_committed(rig: Rig, work: Work) -> None:
    rig.carry(Handler(work))
    rich, poor, also_rich = rig.create("rich", "poor", "rich")
    rig.deliver(3)
    assert booked(rig) == [rich, also_rich]
    assert rig.ask("SELECT id FROM orders") == []
    assert rig.row(poor).status == Status.FAILED


def test_what_a_handler_has_committed_outlives_its_own_rollback(rig: Rig) -> None:
    def work(session: Session, item: Item) -> None:
        session.commit()
        session.add(Order(id=item.id, title="bicycle"))
        session.flush()
        session.rollback()
        session.rollback()

    rig.carry(Handler(work))
    ids = rig.create("rich", "poor", "rich")
    rig.deliver(3)
    assert booked(rig) == ids
    assert rig.ask("SELECT id FROM orders") == []
    assert set(rig.statuses()) == {Status.DELIVERED}


class InABlock:
    def __call__(self, item: Item, payload: Any, *, session: Session) -> None:
        with session:
            session.add(Order(id=item.id, title="bicycle"))


class InAnAsyncBlock:
    async def __call__(self, item: Item, payload: Any, *, session: AsyncSession) -> None:
        async with session:
            session.add(Order(id=item.id, title="bicycle"))


@pytest.mark.parametrize("handler", [InABlock, InAnAsyncBlock])
def test_what_a_handler_writes_in_a_block_of_the_session_is_kept(rig: Rig, handler: Callable[[], Any]) -> None:
    rig.carry(handler())
    ids = rig.create("one", "two")
    rig.deliver(2)
    assert [row.id for row in rig.ask("SELECT id FROM orders ORDER BY id")] == ids
    assert set(rig.statuses()) == {Status.DELIVERED}


def test_a_handler_that_rolls_back_may_go_on(rig: Rig) -> None:
    def work(session: Session, item: Item) -> None:
        catches(session, item)
        session.rollback()
        session.add(Order(id=item.id, title="bicycle"))

    rig.carry(Handler(work))
    rich, poor, also_rich = rig.create("rich", "poor", "rich")
    rig.deliver(3)
    assert booked(rig) == [rich, also_rich]
    assert [row.id for row in rig.ask("SELECT id FROM orders")] == [poor]
    assert set(rig.statuses()) == {Status.DELIVERED}


def test_an_error_in_a_savepoint_of_the_handlers_own_leaves_the_rest(rig: Rig) -> None:
    def work(session: Session, item: Item) -> None:
        with suppress(SQLAlchemyError), session.begin_nested():
            book(session, item)
        session.add(Order(id=item.id, title="bicycle"))

    rig.carry(Handler(work))
    ids = rig.create("rich", "poor", "rich")
    rig.deliver(3)
    assert booked(rig) == ids
    assert [row.id for row in rig.ask("SELECT id FROM orders")] == [ids[1]]


def in_a_block_of_its_own(session: Session, item: Item) -> None:
    with session.begin():
        session.add(Order(id=item.id, title="bicycle"))


def closes(session: Session, item: Item) -> None:
    with session:
        session.add(Order(id=item.id, title="bicycle"))
        session.commit()


async def in_an_async_block(session: AsyncSession, item: Item) -> None:
    async with session.begin():
        session.add(Order(id=item.id, title="bicycle"))


async def closes_async(session: AsyncSession, item: Item) -> None:
    async with session:
        session.add(Order(id=item.id, title="bicycle"))
        await session.commit()


def tidies_up(session: Session, item: Item) -> None:
    session.add(Order(id=item.id, title="bicycle"))
    session.close()


async def tidies_up_async(session: AsyncSession, item: Item) -> None:
    session.add(Order(id=item.id, title="bicycle"))
    await session.close()


class Sync:
    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, item: Item, payload: Any, *, session: Session) -> None:
        self._work(session, item)


class Async:
    def __init__(self, work: Callable[[AsyncSession, Item], Any]) -> None:
        self._work = work

    async def __call__(self, item: Item, payload: Any, *, session: AsyncSession) -> None:
        await self._work(session, item)


@pytest.mark.parametrize(
    "handler",
    [
        Sync(in_a_block_of_its_own),
        Sync(closes),
        Sync(tidies_up),
        Async(in_an_async_block),
        Async(closes_async),
        Async(tidies_up_async),
    ],
)
def test_a_handler_may_treat_the_session_as_its_own(rig: Rig, handler: Any) -> None:
    rig.carry(handler)
    ids = rig.create("one", "two", "three")
    rig.deliver(3)
    assert [row.id for row in rig.ask("SELECT id FROM orders ORDER BY id")] == ids, rig.row(ids[0]).error_log
    assert set(rig.statuses()) == {Status.DELIVERED}


def test_a_batch_middleware_that_raises_undoes_what_handlers_wrote_and_committed(rig: Rig) -> None:
    def too_late(_batch: Any, call_next: Callable[[], Any]) -> None:
        call_next()
        raise ValueError("too late")

    rig.surround(batch_process=[too_late])
    rig.carry(Handler(lambda session, _item: session.commit()))
    rig.create("rich", "poor", "rich")
    rig.deliver(3)
    assert booked(rig) == []
    assert set(rig.statuses()) == {Status.FAILED}
