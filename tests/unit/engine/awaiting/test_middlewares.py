"""Middlewares that are coroutines, around plain and asynchronous calls."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Failure
from boxengine.engine.awaiting.event_loop import NAME, EventLoop
from boxengine.engine.awaiting.middlewares import awaited
from boxengine.engine.delivering.calls.middleware import NotCalledOn, compose
from boxengine.engine.delivering.calls.pipeline import Middlewares
from tests.unit.engine.awaiting.conftest import AsyncBench
from tests.unit.engine.awaiting.test_transports import Async
from tests.unit.engine.bench import Batches, Single, spec

CallNext = Callable[[], Any]


async def passes(_subject: Any, call_next: CallNext) -> Any:
    return await call_next()


async def returns_nothing(_subject: Any, call_next: CallNext) -> None:
    await call_next()


async def keeps_back(_subject: Any, call_next: CallNext) -> None: ...


async def refuses(_subject: Any, call_next: CallNext) -> Any:
    await call_next()
    return Failure("not today")


async def raises(_subject: Any, call_next: CallNext) -> Any:
    await call_next()
    raise ConnectionError("cable")


async def swallows(_subject: Any, call_next: CallNext) -> Any:
    try:
        await call_next()
    except Exception:
        return True


async def forgets_to_await(_subject: Any, call_next: CallNext) -> Any:
    return call_next()


def plain(_subject: Any, call_next: CallNext) -> Any:
    return call_next()


def test_a_time_limit_of_a_middleware_around_a_plain_transport_ends_where_it_stands(bench: AsyncBench) -> None:
    """Although nothing interrupts the transport, and the item is delivered."""
    over = threading.Event()
    late: list[int] = []

    async def limited(item: Item, call_next: CallNext) -> None:
        asyncio.get_running_loop().call_later(0.05, over.set)
        try:
            async with asyncio.timeout(0):
                await call_next()
        except TimeoutError:
            late.append(item.id)
        await asyncio.sleep(0)

    (item,) = bench.insert(1)
    slow = Single(lambda _item: None if over.wait(20) else False)
    bench.deliver(spec(slow), middlewares=Middlewares(item_process=(limited,)))
    assert late == [item]
    assert bench.row(item).status == Status.DELIVERED


@pytest.mark.parametrize("transport", [Async, Single, Batches])
@pytest.mark.parametrize("middlewares", [(passes,), (returns_nothing, passes), (plain, passes, plain)])
def test_the_item_goes_through_to_whatever_transport_there_is(
    bench: AsyncBench, middlewares: Any, transport: Any
) -> None:
    ids = bench.insert(1, 2, 3)
    made = transport(_accept_async if transport is Async else lambda _item: None)
    bench.deliver(spec(made), middlewares=Middlewares(item_process=middlewares))
    assert [bench.row(each).status for each in ids] == [Status.DELIVERED] * 3


async def _accept_async(_item: Item) -> None: ...


@pytest.mark.parametrize(
    ("middleware", "reason"),
    [(refuses, "not today"), (raises, "ConnectionError: cable"), (forgets_to_await, "a coroutine that nobody waits")],
)
def test_a_middleware_may_fail_what_went_well(bench: AsyncBench, middleware: Any, reason: str) -> None:
    (item,) = bench.insert(1)
    bench.deliver(spec(Single()), middlewares=Middlewares(item_process=(middleware,)))
    assert bench.row(item).status == Status.FAILED
    assert reason in bench.row(item).error_log


def test_no_middleware_turns_a_failure_into_a_delivery(bench: AsyncBench) -> None:
    (item,) = bench.insert(1)

    async def answer(_item: Item) -> Any:
        raise ValueError("no")

    bench.deliver(spec(Async(answer)), middlewares=Middlewares(item_process=(swallows,)))
    assert bench.row(item).status == Status.FAILED
    assert "receiver: ValueError: no" in bench.row(item).error_log


def test_an_item_whose_middleware_does_not_call_on_stays_pending(bench: AsyncBench) -> None:
    (item,) = bench.insert(1)
    bench.deliver(spec(Async()), middlewares=Middlewares(item_process=(keeps_back,)))
    assert (bench.row(item).status, bench.row(item).errors_count) == (Status.PENDING, 0)
    assert bench.observer.kept == [[item]]


def test_what_it_stands_around_runs_in_the_thread_that_delivers_and_in_its_own_context(bench: AsyncBench) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")
    seen: list[tuple[str, str]] = []

    async def names(item: Item, call_next: CallNext) -> None:
        tenant.set("acme")
        seen.append(("middleware", threading.current_thread().name))
        await call_next()

    def answer(_item: Item) -> None:
        seen.append((tenant.get(), threading.current_thread().name))

    bench.insert(1)
    bench.deliver(spec(Single(answer)), middlewares=Middlewares(item_process=(names,)))
    assert seen == [("middleware", NAME), ("acme", threading.current_thread().name)]
    assert tenant.get() == "none"


def test_batch_middlewares_may_be_coroutines(bench: AsyncBench) -> None:
    sizes: list[int] = []

    async def counts(batch: Any, call_next: CallNext) -> None:
        sizes.append(len(batch.items))
        await call_next()

    ids = bench.insert(1, 2)
    bench.deliver(spec(Async()), middlewares=Middlewares(batch_process=(counts,)))
    assert sizes == [2]
    assert [bench.row(each).status for each in ids] == [Status.DELIVERED] * 2


def test_poll_middlewares_may_be_coroutines(loop: EventLoop) -> None:
    polled: list[str] = []
    assert compose(awaited([passes, plain], loop), polled.append)("task") is None
    assert polled == ["task"]


def test_a_coroutine_that_does_not_call_on_is_named(loop: EventLoop) -> None:
    with pytest.raises(
        NotCalledOn, match=r"^middleware tests\.unit\.engine\.awaiting\.test_middlewares\.keeps_back did not "
    ):
        compose(awaited([passes, keeps_back], loop), str)("task")


def test_those_that_are_plain_are_left_as_they_are(loop: EventLoop) -> None:
    assert awaited([plain], loop) == (plain,)
    assert loop.begun is None
