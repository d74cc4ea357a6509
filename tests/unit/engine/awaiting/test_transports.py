"""Transports that are coroutines: side by side, in order, and failing as plain ones do."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from boxengine import Payload
from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Failure
from boxengine.engine.awaiting.event_loop import NAME, EventLoop
from boxengine.engine.delivering.calls.pipeline import Pipeline, TransportSpec
from boxengine.errors import BoxError, Unavailable
from tests.unit.engine.awaiting.conftest import AsyncBench
from tests.unit.engine.bench import Batches, Single, spec


async def accept(_item: Item) -> Any:
    return None


class Async:
    """Takes items one by one, and keeps who was under way with whom."""

    def __init__(self, answer: Callable[[Item], Any] = accept) -> None:
        self.answer = answer
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.together = 0
        self.crowd: set[int] = set()
        self.threads: set[str] = set()

    async def __call__(self, item: Item, payload: Any) -> Any:
        self.threads.add(threading.current_thread().name)
        self.begun.append(item.id)
        self.crowd.add(item.id)
        self.together = max(self.together, len(self.crowd))
        try:
            return await self.answer(item)
        finally:
            self.crowd.remove(item.id)
            self.ended.append(item.id)


class AsyncBatches:
    def __init__(self, answer: Callable[[Item], Any] = accept) -> None:
        self.answer = answer
        self.calls: list[list[int]] = []

    async def call_batch(self, items: Sequence[Item]) -> Any:
        self.calls.append([item.id for item in items])
        return [await self.answer(item) for item in items]


def everybody(number: int) -> Callable[[Item], Any]:
    """An answer that comes once so many calls are under way at once: never, if they are not made side by side."""
    there = 0
    all_there = asyncio.Event()

    async def answer(_item: Item) -> None:
        nonlocal there
        there += 1
        if there == number:
            all_there.set()
        await asyncio.wait_for(all_there.wait(), timeout=20)

    return answer


def statuses(bench: AsyncBench) -> list[int]:
    return [row.status for row in bench.store.rows(bench.box)]


# ── side by side ─────────────────────────────────────────────────────────────────────────────────────


def test_items_of_different_keys_are_under_way_at_once(bench: AsyncBench) -> None:
    transport = Async(everybody(50))
    bench.insert(*range(50))
    bench.deliver(spec(transport))
    assert transport.together == 50
    assert statuses(bench) == [Status.DELIVERED] * 50
    assert transport.threads == {NAME}


def test_no_more_calls_are_under_way_than_the_box_allows(loop: EventLoop) -> None:
    async def lets_others_in(_item: Item) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    bench, transport = AsyncBench(loop, concurrency=7), Async(lets_others_in)
    bench.insert(*range(50))
    bench.deliver(spec(transport))
    assert transport.together == 7
    assert statuses(bench) == [Status.DELIVERED] * 50


def test_items_of_one_key_go_one_after_the_other_in_the_order_of_their_ids(bench: AsyncBench) -> None:
    under_way: dict[str, int] = defaultdict(int)
    seen: dict[str, list[int]] = defaultdict(list)

    async def answer(item: Item) -> None:
        under_way[item.event_key] += 1
        assert under_way[item.event_key] == 1
        for _ in range(item.id % 4):  # those of other keys overtake
            await asyncio.sleep(0)
        seen[item.event_key].append(item.id)
        under_way[item.event_key] -= 1

    transport = Async(answer)
    bench.insert(*(number % 5 for number in range(60)))
    bench.deliver(spec(transport))
    assert statuses(bench) == [Status.DELIVERED] * 60
    assert all(ids == sorted(ids) and len(ids) == 12 for ids in seen.values())
    assert transport.ended != sorted(transport.ended)


@pytest.mark.parametrize("strict", [StrictOrder.KEY, StrictOrder.BUCKET])
def test_under_strict_order_the_followers_of_a_failed_item_wait(loop: EventLoop, strict: StrictOrder) -> None:
    async def answer(item: Item) -> Any:
        return item.id != bad

    bench, transport = AsyncBench(loop, strict_order=strict), Async(answer)
    first, bad, follower, other = bench.insert(1, 1, 1, 2)
    bench.deliver(spec(transport))
    assert sorted(transport.begun) == [first, bad, other]
    assert bench.row(bad).errors_count == 1
    assert bench.row(follower).status == Status.PENDING


def test_several_transports_plain_and_asynchronous_each_get_what_the_one_before_took(bench: AsyncBench) -> None:
    async def answer(item: Item) -> Any:
        return item.id != bad

    first, second, third = Batches(), Async(answer), AsyncBatches()
    good, bad, other = bench.insert(1, 2, 3)
    bench.deliver(spec(first, name="a"), spec(second, name="b"), spec(third, name="c"))
    assert first.calls == [[good, bad, other]]
    assert third.calls == [[good, other]]
    assert bench.row(bad).error_log.split()[1] == "b:"
    assert statuses(bench) == [Status.DELIVERED, Status.FAILED, Status.DELIVERED]


def test_beside_a_transport_that_takes_single_items_it_gets_single_items_too(bench: AsyncBench) -> None:
    asynchronous, single = Async(), Single()
    ids = bench.insert(1, 2, 3)
    bench.deliver(spec(asynchronous, name="a"), spec(single, name="b"))
    assert asynchronous.begun == single.ids == ids
    assert statuses(bench) == [Status.DELIVERED] * 3


# ── what it may answer ───────────────────────────────────────────────────────────────────────────────


async def returns_false(_item: Item) -> bool:
    return False


async def returns_failure(_item: Item) -> Failure:
    return Failure("no room")


async def raises(_item: Item) -> None:
    raise ConnectionError("cable")


async def exits(_item: Item) -> None:
    raise SystemExit(3)


async def is_cancelled(_item: Item) -> None:
    raise asyncio.CancelledError


async def cancels_itself(_item: Item) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def returns_a_coroutine(item: Item) -> Any:
    return returns_false(item)


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (returns_false, "returned False"),
        (returns_failure, "no room"),
        (raises, "ConnectionError: cable"),
        (exits, "SystemExit: 3"),
        (is_cancelled, "CancelledError"),
        (cancels_itself, "CancelledError"),
        (returns_a_coroutine, "returned a coroutine that nobody waits for"),
    ],
)
def test_a_failure_fails_its_item_alone(bench: AsyncBench, answer: Any, reason: str, batches: bool) -> None:
    good, bad, other = bench.insert(1, 2, 3)

    async def one_is_bad(item: Item) -> Any:
        return await answer(item) if item.id == bad else None

    bench.deliver(spec((AsyncBatches if batches else Async)(one_is_bad)))
    assert reason in bench.row(bad).error_log
    assert [bench.row(each).status for each in (good, bad, other)] == [
        Status.DELIVERED,
        Status.FAILED,
        Status.DELIVERED,
    ]


def test_the_error_log_shows_where_it_was_raised(bench: AsyncBench) -> None:
    (bad,) = bench.insert(1)
    bench.deliver(spec(Async(raises)))
    assert "in raises" in bench.row(bad).error_log


def test_where_the_receiver_cannot_be_reached_no_attempt_is_counted_and_no_more_calls_are_begun(
    loop: EventLoop,
) -> None:
    bench = AsyncBench(loop, concurrency=1)

    async def gone(item: Item) -> None:
        if item.id == bad:
            raise Unavailable("nobody there")

    transport = Async(gone)
    good, bad, follower, other = bench.insert(1, 2, 2, 3)
    report = bench.deliver(spec(transport))
    assert transport.begun == [good, bad]
    assert list(report.unreachable) == ["receiver"]
    assert [bench.row(each).status for each in (bad, follower, other)] == [Status.PENDING] * 3
    assert [bench.row(each).errors_count for each in (bad, follower, other)] == [0, 0, 0]
    assert bench.row(good).status == Status.DELIVERED


@pytest.mark.parametrize("kind", [Async, AsyncBatches])
def test_where_a_task_group_cannot_reach_its_receiver_no_attempt_is_counted(bench: AsyncBench, kind: Any) -> None:
    async def gone() -> None:
        raise Unavailable("nobody there")

    async def ask_two_services(_item: Item) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(gone())
            group.create_task(asyncio.sleep(0))

    (item,) = bench.insert(1)
    report = bench.deliver(spec(kind(ask_two_services)))
    assert str(report.unreachable["receiver"]) == "nobody there"
    assert (bench.row(item).status, bench.row(item).errors_count) == (Status.PENDING, 0)


# ── how long it may take ─────────────────────────────────────────────────────────────────────────────


class Forever:
    def __init__(self) -> None:
        self.cancelled: list[int] = []

    async def __call__(self, item: Item, payload: Any) -> None:
        if item.event_key == "stuck":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(item.id)
                raise


@pytest.mark.parametrize("cause", ["timeout", "processor.cutoff_timeout"])
def test_a_call_that_takes_too_long_is_cancelled_and_fails_alone(bench: AsyncBench, cause: str) -> None:
    transport = Forever()
    good, stuck = bench.insert(1, "stuck")
    if cause == "timeout":
        report = bench.deliver(spec(transport, timeout=timedelta(milliseconds=20)))
    else:
        bench.cutoff = timedelta(milliseconds=20)
        report = bench.deliver(spec(transport))
    assert transport.cancelled == [stuck]
    assert bench.row(good).status == Status.DELIVERED
    assert f"no answer within 0.02 s ({cause}); the call was cancelled" in bench.row(stuck).error_log
    assert not report.unreachable


@pytest.mark.parametrize(
    ("timeout", "reason"),
    [
        (timedelta(milliseconds=10), "no answer within 0.01 s (timeout)"),
        (None, "no answer within 0.02 s (processor.cutoff_timeout)"),
        (timedelta(seconds=30), "no answer within 0.02 s (processor.cutoff_timeout)"),
    ],
)
def test_a_batch_call_that_takes_too_long_is_cancelled_and_its_items_fail(
    bench: AsyncBench, timeout: timedelta | None, reason: str
) -> None:
    async def stuck(_item: Item) -> None:
        await asyncio.Event().wait()

    (item,) = bench.insert(1)
    bench.cutoff = timedelta(milliseconds=20)
    bench.deliver(spec(AsyncBatches(stuck), timeout=timeout))
    assert reason in bench.row(item).error_log
    assert bench.row(item).errors_count == 1


def test_a_timeout_error_of_the_transport_s_own_is_its_own(bench: AsyncBench) -> None:
    async def own(_item: Item) -> None:
        raise TimeoutError("of my own")

    (item,) = bench.insert(1)
    bench.deliver(spec(Async(own), timeout=timedelta(seconds=30)))
    assert "TimeoutError: of my own" in bench.row(item).error_log


def test_a_pause_in_the_middle_of_a_batch_lets_no_further_call_begin(loop: EventLoop) -> None:
    bench = AsyncBench(loop, concurrency=1)
    under_way = threading.Event()
    asked_since = threading.Semaphore(0)

    class Pausing(AsyncBench):
        def _is_paused(self, _box: Any) -> bool:
            if under_way.is_set():
                asked_since.release()
            return under_way.is_set()

    bench = Pausing(loop, concurrency=1)

    async def answer(_item: Item) -> None:
        under_way.set()
        # Asked twice, the first answer has been heeded.
        await asyncio.to_thread(lambda: (asked_since.acquire(timeout=20), asked_since.acquire(timeout=20)))

    transport = Async(answer)
    first, *others = bench.insert(1, 2, 3)
    bench.deliver(spec(transport))
    assert transport.begun == [first]
    assert bench.row(first).status == Status.DELIVERED
    assert all((bench.row(each).status, bench.row(each).errors_count) == (Status.PENDING, 0) for each in others)
    assert bench.observer.calls == [("receiver", 1, 0)]


# ── as with plain transports ─────────────────────────────────────────────────────────────────────────


def test_it_sees_the_context_of_the_thread_that_delivers(bench: AsyncBench) -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")
    seen: list[str] = []

    async def look(_item: Item) -> None:
        seen.append(trace.get())

    bench.insert(1)
    token = trace.set("abc")
    bench.deliver(spec(Async(look)))
    trace.reset(token)
    assert seen == ["abc"]


def test_its_constructor_runs_on_the_loop_and_close_is_awaited_there(bench: AsyncBench) -> None:
    class Client:
        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()
            self.closed = False

        async def __call__(self, item: Item, payload: Any) -> None:
            assert asyncio.get_running_loop() is self.loop

        async def aclose(self) -> None:
            assert asyncio.get_running_loop() is self.loop
            self.closed = True

    made: list[Client] = []

    class Kept(Client):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    (item,) = bench.insert(1)
    awaiting = bench.awaiting()
    spec_of_class = TransportSpec(name="receiver", build=functools.partial(Kept))
    pipeline = awaiting.pipeline(Pipeline(box=bench.box, transports=(spec_of_class,), retry_strategies=()))
    delivery = bench.delivery(*pipeline.transports)
    bench.run(delivery)
    assert bench.row(item).status == Status.DELIVERED
    delivery.close()
    assert [each.closed for each in made] == [True]


def test_one_that_is_disposable_is_made_anew_for_each_item(bench: AsyncBench) -> None:
    made: list[int] = []

    class Disposable:
        def __init__(self) -> None:
            made.append(1)
            self.calls = 0

        async def __call__(self, item: Item, payload: Any) -> Any:
            self.calls += 1
            return self.calls == 1

    bench.insert(1, 2, 3)
    bench.deliver(TransportSpec(name="receiver", build=Disposable, disposable=True))
    assert statuses(bench) == [Status.DELIVERED] * 3
    assert len(made) == 4  # the first, to see what it takes


class NeedsLoop:
    """Its client cannot be made outside of an event loop."""

    def __init__(self) -> None:
        asyncio.get_running_loop()


class BatchesOnLoop(NeedsLoop):
    async def call_batch(self, items: Sequence[Item]) -> Any:
        return [None for _ in items]


class SessionOnLoop(NeedsLoop):
    async def __call__(self, item: Item, payload: Any, *, session: Any) -> Any:
        return None


@pytest.mark.parametrize("transport", [BatchesOnLoop, SessionOnLoop])
def test_one_that_is_disposable_is_made_on_the_loop_whatever_it_takes(bench: AsyncBench, transport: type) -> None:
    bench.insert(1, 2, 3)
    bench.deliver(TransportSpec(name="receiver", build=transport, disposable=True))
    assert statuses(bench) == [Status.DELIVERED] * 3


def test_a_function_may_be_async_def(bench: AsyncBench) -> None:
    seen: list[int] = []

    async def publish(item: Item, payload: Any, *, to: str) -> None:
        assert to == "here"
        seen.append(item.id)

    ids = bench.insert(1, 2)
    bench.deliver(spec(functools.partial(publish, to="here")))
    assert seen == ids


class Decodes:
    def __init__(self) -> None:
        self.decoded: list[Any] = []

    async def __call__(self, item: Item, payload: Any, *, decoded: Any) -> None:
        self.decoded.append(decoded)


class DecodesBatches(Decodes):
    async def call_batch(self, items: Sequence[Item], *, decoded: Sequence[Any]) -> list[None]:
        self.decoded += decoded
        return [None] * len(items)


@pytest.mark.parametrize("kind", [Decodes, DecodesBatches])
@pytest.mark.parametrize("beside", [(), (spec(Single(), name="single"),)])
def test_one_that_takes_decoded_gets_payloads_as_the_codec_reads_them(
    loop: EventLoop, kind: Any, beside: tuple[TransportSpec, ...]
) -> None:
    bench, transport = AsyncBench(loop, codec=Payload.json()), kind()
    (good,) = bench.insert(1, payload=b'{"a": 1}')
    (bad,) = bench.insert(2, payload=b"{")
    bench.deliver(spec(transport), *beside)
    assert transport.decoded == [{"a": 1}]
    assert [bench.row(each).status for each in (good, bad)] == [Status.DELIVERED, Status.FAILED]
    assert "Undecodable" in bench.row(bad).error_log


def test_one_that_takes_decoded_is_refused_where_the_box_has_no_codec(bench: AsyncBench) -> None:
    with pytest.raises(BoxError, match="takes decoded, but box order_outbox_item has no codec"):
        bench.deliver(spec(Decodes()))


def test_a_constructor_that_raises_is_told_as_that_of_a_plain_one(bench: AsyncBench) -> None:
    class Broken:
        def __init__(self) -> None:
            raise KeyError("nope")

        async def __call__(self, item: Item, payload: Any) -> None: ...

    with pytest.raises(BoxError, match="transport receiver: its constructor raised KeyError: 'nope'"):
        bench.deliver(TransportSpec(name="receiver", build=Broken))
    with pytest.raises(BoxError, match="transport receiver: its constructor raised KeyError: 'nope'"):
        bench.deliver(TransportSpec(name="receiver", build=lambda: Broken()))  # noqa: PLW0108 - a factory


def test_what_a_factory_makes_may_need_the_running_loop(bench: AsyncBench) -> None:
    class Client(Async):
        def __init__(self) -> None:
            super().__init__()
            self.loop = asyncio.get_running_loop()

    (item,) = bench.insert(1)
    bench.deliver(TransportSpec(name="receiver", build=lambda: Client()))  # noqa: PLW0108 - a factory
    assert bench.row(item).status == Status.DELIVERED


def test_a_time_limit_is_refused_where_one_of_the_calls_could_not_be_ended(bench: AsyncBench) -> None:
    closed = []

    class PlainBatches(Async):
        def call_batch(self, items: Sequence[Item]) -> Any: ...

        async def aclose(self) -> None:
            closed.append(self)

    class PlainSingles(AsyncBatches):
        def __call__(self, item: Item, payload: Any) -> Any: ...

    for transport, way in ((PlainBatches(), "call_batch"), (PlainSingles(), "__call__")):
        with pytest.raises(BoxError, match=f"timeout ends only what is awaited, and its {way} is a plain def"):
            bench.deliver(spec(transport, timeout=timedelta(seconds=1)))
        bench.deliver(spec(transport))
    assert len(closed) == 1


def test_a_task_that_is_left_behind_and_exits_does_not_end_the_loop(bench: AsyncBench) -> None:
    async def exits_later() -> None:
        raise SystemExit(3)

    left: set[Any] = set()

    async def leaves(_item: Item) -> None:
        left.add(asyncio.create_task(exits_later()))
        await asyncio.sleep(0)

    bench.insert(1)
    bench.deliver(spec(Async(leaves)))
    (second,) = bench.insert(2)
    bench.deliver(spec(Async()))
    assert bench.row(second).status == Status.DELIVERED
    assert [type(task.exception()) for task in left] == [SystemExit]


def test_a_call_that_stops_the_event_loop_does_not_stop_the_worker(bench: AsyncBench) -> None:
    async def stops(item: Item) -> None:
        if item.event_key == "stop":
            asyncio.get_running_loop().stop()
        await asyncio.sleep(0)

    stopping = bench.insert("stop")
    bench.deliver(spec(Async(stops)))
    others = bench.insert(*range(5))
    bench.deliver(spec(Async(stops)))
    assert [bench.row(number).status for number in (*stopping, *others)] == [Status.DELIVERED] * 6
