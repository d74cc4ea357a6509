"""What a transport, a payload builder or a strategy returns: what counts as delivered, and what cannot be understood."""

from __future__ import annotations

import asyncio
import functools
import gc
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from unittest.mock import MagicMock

import pytest

from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import PROCESS, SKIP, Failure
from boxengine.engine.answers import never_runs
from boxengine.engine.delivering.calls.pipeline import Middlewares
from boxengine.engine.delivering.calls.transports import Carrier
from boxengine.errors import BoxError, InvalidItem, Unavailable
from tests.unit.engine.bench import Batches, Bench, Single, spec
from tests.unit.engine.test_creator import Desk, attributes


@pytest.fixture(autouse=True)
def _no_coroutine_is_left_unawaited() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
        gc.collect()


async def coroutine() -> bool:
    return True


async def stream() -> Any:
    yield True


def steps() -> Iterator[bool]:
    yield True


class Awaitable:
    def __await__(self) -> Any:
        yield


NOT_UNDERSTOOD = {
    "coroutine": (coroutine, "returned a coroutine that nobody waits for"),
    "awaitable": (Awaitable, "returned an Awaitable that nobody waits for"),
    "future": (Future, "returned a Future that nobody waits for"),
    "generator": (lambda: (yield), "returned a generator whose code nobody runs"),
    "async generator": (stream, "returned an async generator whose code nobody runs"),
    "context manager": (
        contextmanager(steps),
        "returned a context manager whose code nobody runs: write return, not yield",
    ),
    "async context manager": (
        asynccontextmanager(stream),
        "returned a context manager whose code nobody runs: write return, not yield",
    ),
    "map": (lambda: map(print, ()), "returned a map that has done nothing yet"),
    "filter": (lambda: filter(print, ()), "returned a filter that has done nothing yet"),
    "error": (
        lambda: ConnectionError("no route"),
        "returned an error instead of raising it: ConnectionError: no route",
    ),
    "exit": (lambda: SystemExit(1), "returned an error instead of raising it: SystemExit: 1"),
    "cancelled": (asyncio.CancelledError, "returned an error instead of raising it: CancelledError"),
    "class": (lambda: Failure, "returned the class Failure, not an instance of it"),
    "not implemented": (lambda: NotImplemented, "returned NotImplemented"),
    "verdict": (lambda: SKIP, "returned Verdict.SKIP, which only a retry strategy may return"),
}


@pytest.mark.parametrize(("make", "reason"), NOT_UNDERSTOOD.values(), ids=NOT_UNDERSTOOD)
@pytest.mark.parametrize("kind", [Single, Batches])
@pytest.mark.parametrize("middlewares", [(), (lambda _item, call_next: call_next(),)])
def test_an_answer_that_is_not_understood_is_a_failed_attempt_that_says_so(
    kind: Any, middlewares: Any, make: Any, reason: str
) -> None:
    bench = Bench()
    ids = bench.insert(1, 2)
    sending = bench.send(spec(kind(lambda item: make() if item.id == ids[0] else None)), middlewares=middlewares)
    ((item, problem, where),) = sending.failed
    assert (item.id, where, sending.delivered) == (ids[0], "receiver", [ids[1]])
    assert reason in str(problem)


@pytest.mark.parametrize(
    "answer", [None, True, 0, "", "ok", [], {}, 500, HTTPStatus.BAD_GATEWAY, object(), MagicMock(), ...]
)
def test_an_ordinary_value_is_delivered(answer: Any) -> None:
    bench = Bench()
    ids = bench.insert(1)
    assert bench.send(spec(Single(lambda _item: answer))).delivered == ids


class Decorated:
    """Is ``async def`` behind a decorator whose wrapper is a plain function."""

    @staticmethod
    def plain_wrapper(call: Any) -> Any:
        @functools.wraps(call)
        def wrapper(*args: Any) -> Any:
            return call(*args)

        return wrapper

    @plain_wrapper
    async def __call__(self, item: Item, payload: Any) -> None: ...


class DecoratedBatches:
    @Decorated.plain_wrapper
    async def call_batch(self, items: Sequence[Item]) -> None: ...


class ListsCoroutines:
    def call_batch(self, items: Sequence[Item]) -> list[Any]:
        return [coroutine() for _ in items]


MAKE_IT_ASYNC = "make {} itself, and its decorator's wrapper, async def, and await inside"


@pytest.mark.parametrize("transport", [Decorated(), DecoratedBatches(), ListsCoroutines()])
@pytest.mark.parametrize("middlewares", [(), (lambda _item, call_next: call_next(),)])
def test_a_transport_that_hides_that_it_is_async_is_told_to_be_so(transport: Any, middlewares: Any) -> None:
    bench = Bench()
    bench.insert(1)
    ((_, problem, where),) = bench.send(spec(transport), middlewares=middlewares).failed
    assert where == "receiver"
    assert MAKE_IT_ASYNC.format("__call__ or call_batch") in str(problem)


def test_a_middleware_that_hides_that_it_is_async_is_told_to_be_so() -> None:
    bench = Bench()
    bench.insert(1)
    ((_, problem, _),) = bench.send(
        spec(Single(lambda _item: None)), middlewares=(lambda _item, _call_next: coroutine(),)
    ).failed
    assert MAKE_IT_ASYNC.format("the middleware") in str(problem)


class Incomparable:
    """As an array of numbers is, whose comparison with None has no truth value."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _other: object) -> Any:
        raise ValueError("the truth value is ambiguous")


class LikeNothing(Failure):
    """A failure that says it equals whatever it is compared with."""

    def __eq__(self, _other: object) -> bool:
        return True

    __hash__ = Failure.__hash__


def test_what_a_batch_transport_returns_is_not_compared_by_code_of_its_own() -> None:
    bench = Bench()
    ids = bench.insert(1, 2)
    sending = bench.send(spec(Batches(lambda item: Incomparable() if item.id == ids[0] else LikeNothing("no"))))
    assert sending.delivered == ids[:1]
    assert [item.id for item, _, _ in sending.failed] == ids[1:]


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (lambda items: (True for _ in items), "call_batch returned a generator whose code nobody runs"),
        (lambda items: coroutine(), "call_batch returned a coroutine that nobody waits for"),
        (lambda items: map(bool, items), "call_batch returned a map that has done nothing yet"),
        (
            lambda items: ConnectionError("down"),
            "call_batch returned an error instead of raising it: ConnectionError: down",
        ),
        (lambda items: Failure("closed"), "call_batch closed"),
        (lambda items: {item.id: True for item in items}, "as many results in a list, not {1: True, 2: True}"),
        (lambda items: "ok", "as many results in a list, not 'ok'"),
        (lambda items: b"ok", "as many results in a list, not b'ok'"),
        (lambda items: True, "as many results in a list, not True"),
        (lambda items: False, "as many results in a list, not False"),
        (lambda items: None, "as many results in a list, not None"),
        (lambda items: [True], "as many results in a list, not 1 result"),
        (lambda items: [True] * 3, "as many results in a list, not 3 results"),
    ],
)
def test_what_is_no_list_of_results_fails_the_batch_and_says_so(results: Any, reason: str) -> None:
    class Odd:
        calls = 0

        def call_batch(self, items: Sequence[Item]) -> Any:
            self.calls += 1
            return results(items)

    bench, transport = Bench(), Odd()
    ids = bench.insert(1, 2)
    sending = bench.send(spec(transport))
    assert [item.id for item, _, _ in sending.failed] == ids
    assert reason in str(sending.failed[0][1])
    assert transport.calls == 1


def test_unavailable_as_the_answer_about_a_whole_batch_puts_it_off() -> None:
    class Gone:
        def call_batch(self, items: Sequence[Item]) -> Any:
            return Unavailable("nobody there")

    bench = Bench()
    bench.insert(1, 2)
    sending = bench.send(spec(Gone()))
    assert (sending.delivered, sending.failed) == ([], [])
    assert str(sending.unreachable["receiver"]) == "nobody there"


def test_errors_that_gather_returned_fail_their_items() -> None:
    async def publish(item: Item) -> str:
        if item.id == bad:
            raise ConnectionError("no route")
        return "published"

    class Gathers:
        def call_batch(self, items: Sequence[Item]) -> Any:
            async def all_of_them() -> Any:
                return await asyncio.gather(*map(publish, items), return_exceptions=True)

            return asyncio.run(all_of_them())

    bench = Bench()
    good, bad, other = bench.insert(1, 2, 3)
    bench.deliver(spec(Gathers()))
    assert [bench.row(each).status for each in (good, bad, other)] == [
        Status.DELIVERED,
        Status.FAILED,
        Status.DELIVERED,
    ]
    assert "ConnectionError: no route" in bench.row(bad).error_log


@pytest.mark.parametrize("make", [coroutine, lambda: ValueError("no"), lambda: (yield)])
def test_a_payload_that_is_not_understood_is_a_failed_attempt(make: Any) -> None:
    bench, transport = Bench(payload_builder=lambda _item: make()), Single()
    (row_id,) = bench.insert(1)
    bench.deliver(spec(transport))
    assert bench.row(row_id).status == Status.FAILED
    assert "payload builder: returned a" in bench.row(row_id).error_log
    assert "make" not in bench.row(row_id).error_log
    assert transport.ids == []


def test_a_strategy_that_returns_a_coroutine_is_a_failed_attempt() -> None:
    bench = Bench()
    (row_id,) = bench.insert(1, errors_count=1, processed_at=bench.clock.now() - timedelta(days=1))
    bench.deliver(spec(Single()), strategies=[lambda _item, _context: coroutine()])
    assert bench.row(row_id).status == Status.FAILED
    assert "must return PROCESS, SKIP or DISCARD" in bench.row(row_id).error_log


def test_a_key_to_partition_by_that_is_not_there_yet_finds_no_bucket() -> None:
    desk = Desk()
    with pytest.raises(
        InvalidItem, match="partition_by returned a coroutine that nobody waits for: write def, not async def"
    ):
        desk.creator.create_batch(None, [attributes()], partition_by=lambda _row: coroutine())
    assert desk.table.rows == []


def test_a_create_middleware_that_returns_a_coroutine_is_told_to_be_plain() -> None:
    desk = Desk(middlewares=Middlewares(create_item=(lambda _model, _row, _call_next: coroutine(),)))
    with pytest.raises(InvalidItem, match="that nobody waits for: write def, not async def"):
        desk.creator.create(None, attributes())
    assert desk.table.rows == []


# ── refused at start ─────────────────────────────────────────────────────────────────────────────────


class Later:
    async def __call__(self, item: Item, payload: Any) -> None: ...


class LaterInBatches:
    async def call_batch(self, items: Sequence[Item]) -> None: ...


@pytest.mark.parametrize(
    ("transport", "way"),
    [
        (Later(), "__call__"),
        (LaterInBatches(), "call_batch"),
        (functools.partial(Later()), "__call__"),
        (stream, "__call__"),
    ],
)
def test_a_transport_that_a_factory_made_is_looked_at_when_the_worker_starts(transport: Any, way: str) -> None:
    with pytest.raises(BoxError, match=f"transport receiver: its {way} is a"):
        Carrier(spec(transport))


@pytest.mark.parametrize(
    "call", [PROCESS.__class__, Single(), print, len, functools.partial(print), MagicMock(), None, 7]
)
def test_what_runs_when_it_is_called_is_let_through(call: Any) -> None:
    assert never_runs(call) is None


def test_a_plain_wrapper_of_an_async_function_is_let_through() -> None:
    @functools.wraps(coroutine)
    def plain() -> bool:
        return asyncio.run(coroutine())

    assert never_runs(plain) is None
