"""Asynchronous middlewares around asynchronous transports: items of different keys are on their way at once."""

from __future__ import annotations

import asyncio
import contextvars
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Failure
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.delivering.calls.pipeline import Middlewares
from boxengine.errors import Unavailable
from tests.unit.engine.awaiting.conftest import AsyncBench
from tests.unit.engine.awaiting.test_transports import Async, everybody, statuses
from tests.unit.engine.bench import Batches, Refusals, spec

CallNext = Callable[[], Awaitable[Any]]


async def passes(_item: Item, call_next: CallNext) -> Any:
    return await call_next()


def around(*middlewares: Any) -> Middlewares:
    return Middlewares(item_process=middlewares)


def refuses(bad: int, problem: Any) -> Callable[[Item, CallNext], Awaitable[Any]]:
    """Of one item: raises this, or returns it; the others go through."""

    async def middleware(item: Item, call_next: CallNext) -> Any:
        if item.id != bad:
            return await call_next()
        if isinstance(problem, BaseException):
            raise problem
        return problem

    return middleware


def test_items_of_different_keys_are_in_middlewares_and_transports_at_once(bench: AsyncBench) -> None:
    transport, meet = Async(everybody(50)), everybody(50)

    async def waits_for_all(item: Item, call_next: CallNext) -> None:
        await meet(item)
        await call_next()

    bench.insert(*range(50))
    bench.deliver(spec(transport), middlewares=around(waits_for_all, passes))
    assert transport.together == 50
    assert statuses(bench) == [Status.DELIVERED] * 50
    assert bench.observer.calls == [("receiver", 50, 0)]


@pytest.mark.parametrize("ways", [(), (passes,)], ids=["without middlewares", "through middlewares"])
def test_the_tracer_hears_of_items_that_a_coroutine_refuses(bench: AsyncBench, ways: Any) -> None:
    first, _ = bench.insert(1, 2)
    bench.tracer = refusals = Refusals()

    async def answer(item: Item) -> Any:
        return Failure("no") if item.id == first else None

    bench.deliver(spec(Async(answer)), middlewares=around(*ways))
    assert refusals.told == {first: "no"}


def test_no_more_items_are_on_their_way_than_the_box_allows(loop: EventLoop) -> None:
    bench, transport = AsyncBench(loop, concurrency=7), Async()
    inside = most = 0

    async def counts(_item: Item, call_next: CallNext) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(3):
            await asyncio.sleep(0)
        await call_next()
        inside -= 1

    bench.insert(*range(50))
    bench.deliver(spec(transport), middlewares=around(counts))
    assert most == 7
    assert statuses(bench) == [Status.DELIVERED] * 50


def test_an_item_is_not_delivered_if_its_middleware_does_not_wait_for_the_transport(bench: AsyncBench) -> None:
    begun, left = asyncio.Event(), list[asyncio.Future[Any]]()

    async def takes_for_ever(_item: Item) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def goes_on_without(_item: Item, call_next: CallNext) -> None:
        left.append(asyncio.ensure_future(call_next()))
        await begun.wait()

    bench.insert(1)
    bench.deliver(spec(Async(takes_for_ever)), middlewares=around(goes_on_without))
    assert statuses(bench) == [Status.FAILED]


def test_a_time_limit_of_a_middleware_is_told_and_not_the_cancellation_that_it_led_to(bench: AsyncBench) -> None:
    async def takes_for_ever(_item: Item) -> None:
        await asyncio.Event().wait()

    async def limited(_item: Item, call_next: CallNext) -> None:
        async with asyncio.timeout(0.01):
            await call_next()

    (row_id,) = bench.insert(1)
    bench.deliver(spec(Async(takes_for_ever)), middlewares=around(limited))
    assert "TimeoutError" in bench.row(row_id).error_log.splitlines()[0]


def test_what_a_middleware_returns_at_its_time_limit_is_told_and_not_the_cancellation(bench: AsyncBench) -> None:
    async def takes_for_ever(_item: Item) -> None:
        await asyncio.Event().wait()

    async def limited(_item: Item, call_next: CallNext) -> Any:
        try:
            return await asyncio.wait_for(call_next(), 0.01)
        except TimeoutError:
            return Failure("too slow for us")

    (row_id,) = bench.insert(1)
    bench.deliver(spec(Async(takes_for_ever)), middlewares=around(limited))
    assert bench.row(row_id).status == Status.FAILED
    assert "too slow for us" in bench.row(row_id).error_log.splitlines()[0]


def test_items_of_one_key_go_one_after_the_other_through_all_of_it(bench: AsyncBench) -> None:
    seen: dict[str, list[tuple[str, int]]] = defaultdict(list)

    async def notes(item: Item, call_next: CallNext) -> None:
        seen[item.event_key].append(("in", item.id))
        for _ in range(item.id % 4):  # those of other keys overtake
            await asyncio.sleep(0)
        await call_next()
        seen[item.event_key].append(("out", item.id))

    first, second = Async(), Async()
    bench.insert(*(number % 5 for number in range(30)))
    bench.deliver(spec(first, name="a"), spec(second, name="b"), middlewares=around(notes))
    for steps in seen.values():
        ids = sorted({each for _, each in steps})
        assert steps == [step for each in ids for step in (("in", each), ("out", each))]
    assert first.begun != sorted(first.begun)
    assert sorted(second.begun) == sorted(first.begun)
    assert bench.observer.calls == [("a", 30, 0), ("b", 30, 0)]


def test_two_transports_of_one_name_get_their_own_items_each(bench: AsyncBench) -> None:
    created, paid = Async(), Async()
    first = bench.insert(1, 2, event_name="created")
    second = bench.insert(3, 4, event_name="paid")
    specs = [spec(created, event_name="created"), spec(paid, event_name="paid")]
    bench.deliver(*specs, middlewares=around(passes))
    assert (sorted(created.begun), sorted(paid.begun)) == (first, second)
    assert statuses(bench) == [Status.DELIVERED] * 4


def test_every_item_has_a_context_of_its_own(bench: AsyncBench) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")
    before: list[str] = []
    seen: list[str] = []

    async def names(item: Item, call_next: CallNext) -> None:
        before.append(tenant.get())
        tenant.set(f"tenant of {item.id}")
        await call_next()

    async def answer(_item: Item) -> None:
        seen.append(tenant.get())

    ids = bench.insert(1, 1, 1)
    bench.deliver(spec(Async(answer)), middlewares=around(names))
    assert seen == [f"tenant of {each}" for each in ids]
    assert before == ["none"] * 3


@pytest.mark.parametrize(
    ("problem", "reason"), [(Failure("not today"), "not today"), (KeyError("x"), "KeyError: 'x'"), (SystemExit(3), "3")]
)
def test_an_item_that_fails_in_a_middleware_fails_alone_and_there(bench: AsyncBench, problem: Any, reason: str) -> None:
    transport = Async()
    good, bad, follower = bench.insert(1, 2, 2)
    bench.deliver(spec(transport), middlewares=around(passes, refuses(bad, problem)))
    assert statuses(bench) == [Status.DELIVERED, Status.FAILED, Status.DELIVERED]
    assert "middleware: " in bench.row(bad).error_log
    assert reason in bench.row(bad).error_log
    assert sorted(transport.begun) == [good, follower]
    assert bench.observer.calls == [("receiver", 2, 0)]


@pytest.mark.parametrize("strict", [StrictOrder.KEY, StrictOrder.BUCKET])
def test_under_strict_order_the_followers_of_a_failed_item_wait(loop: EventLoop, strict: StrictOrder) -> None:
    bench, transport = AsyncBench(loop, strict_order=strict), Async()
    first, bad, follower, other = bench.insert(1, 1, 1, 2)
    bench.deliver(spec(transport), middlewares=around(refuses(bad, Failure("no"))))
    assert sorted(transport.begun) == [first, other]
    assert bench.row(bad).errors_count == 1
    assert bench.row(follower).status == Status.PENDING


GONE = Unavailable("the tenant's directory is down")


@pytest.mark.parametrize("problem", [None, GONE, ExceptionGroup("unhandled errors in a TaskGroup", [GONE])])
def test_an_item_that_a_middleware_keeps_back_keeps_its_followers_back(loop: EventLoop, problem: Any) -> None:
    """And nobody else. ``None`` is returned without ``call_next()``."""
    bench, transport = AsyncBench(loop, concurrency=1), Async()
    kept, follower, other = bench.insert(1, 1, 2)
    bench.deliver(spec(transport), middlewares=around(refuses(kept, problem)))
    assert transport.begun == [other]
    for each in (kept, follower):
        assert (bench.row(each).status, bench.row(each).errors_count) == (Status.PENDING, 0)
    assert bench.observer.kept == ([[kept]] if problem is None else [])


def test_a_receiver_out_of_reach_costs_no_attempt(bench: AsyncBench) -> None:
    async def answer(_item: Item) -> None:
        raise Unavailable("nobody there")

    ids = bench.insert(1, 1, 2)
    bench.deliver(spec(Async(answer)), middlewares=around(passes))
    assert [(bench.row(each).status, bench.row(each).errors_count) for each in ids] == [(Status.PENDING, 0)] * 3


def test_an_item_that_one_transport_refuses_does_not_reach_the_next(bench: AsyncBench) -> None:
    second = Async()
    good, bad = bench.insert(1, 2)

    async def answer(item: Item) -> Any:
        return item.id != bad

    bench.deliver(spec(Async(answer), name="a"), spec(second, name="b"), middlewares=around(passes))
    assert second.begun == [good]
    assert bench.row(bad).error_log.split()[1] == "a:"


@pytest.mark.parametrize("cause", ["timeout", "cutoff_timeout"])
def test_a_call_that_takes_too_long_is_cancelled_and_has_failed(bench: AsyncBench, cause: str) -> None:
    cancelled: list[int] = []

    async def answer(item: Item) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(item.id)
            raise

    (stuck,) = bench.insert(1)
    limit = timedelta(milliseconds=20)
    if cause == "cutoff_timeout":
        bench.cutoff = limit
    bench.deliver(spec(Async(answer), timeout=limit if cause == "timeout" else None), middlewares=around(passes))
    assert cancelled == [stuck]
    assert bench.row(stuck).error_log.split()[1] == "receiver:"
    assert cause in bench.row(stuck).error_log


def test_call_next_awaited_twice_sends_once(bench: AsyncBench) -> None:
    answers: list[Any] = []

    async def twice(_item: Item, call_next: CallNext) -> None:
        answers.extend(await asyncio.gather(call_next(), call_next()))

    transport = Async()
    ids = bench.insert(1)
    bench.deliver(spec(transport), middlewares=around(twice))
    assert transport.begun == ids
    assert answers == [True, True]


def test_beside_a_plain_transport_or_middleware_items_go_one_by_one(bench: AsyncBench) -> None:
    def plain(_item: Item, call_next: Callable[[], Any]) -> Any:
        return call_next()

    transport, batches = Async(), Batches()
    ids = bench.insert(1, 2, 3)
    bench.deliver(spec(transport, name="a"), spec(batches, name="b"), middlewares=around(passes))
    bench.insert(4, 5)
    bench.deliver(spec(transport, name="a"), middlewares=around(passes, plain))
    assert transport.together == 1
    assert batches.ids == ids
    assert statuses(bench) == [Status.DELIVERED] * 5
