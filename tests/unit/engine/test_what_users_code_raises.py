"""``SystemExit`` and the like, raised wherever users' code runs: a failed attempt, and the thread goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from boxengine.domain.item import Item, Status
from boxengine.engine.attempt import MOST_CAUSES, reason_of
from boxengine.engine.delivering.calls.pipeline import Middlewares
from boxengine.engine.tracking import GuardedTracker
from boxengine.errors import Abandoned
from tests.unit.engine.bench import Batches, Bench, Single, spec


class Strange(BaseException):
    """Somebody's own."""


ENDS: list[BaseException] = [
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    Strange(),
]


@pytest.fixture(params=ENDS, ids=lambda error: type(error).__name__)
def raising(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Raises it for the item with the id 1, if there is an item."""

    def call(*subject: Any) -> Any:
        if not subject or getattr(subject[0], "id", 1) == 1:
            raise request.param
        return subject[-1]() if callable(subject[-1]) else None

    return call


def in_a_thread(work: Callable[[], Any]) -> None:
    """As in a worker, whose threads are not the one that Ctrl-C reaches."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert raised == []


def reason(bench: Bench, row_id: int, where: str) -> str:
    """Of the failed attempt at the row."""
    row = bench.row(row_id)
    assert (row.status, row.errors_count) == (Status.FAILED, 1)
    first: str = row.error_log.splitlines()[0]
    assert f" {where}: " in first
    return first


@pytest.mark.parametrize("kind", [Single, Batches])
def test_of_a_transport(raising: Any, kind: Any) -> None:
    bench, transport = Bench(), kind(raising)
    bad, good = bench.insert(1, 2)
    in_a_thread(lambda: bench.deliver(spec(transport)))
    reason(bench, bad, "receiver")
    assert bench.row(good).status == Status.DELIVERED


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            SystemExit(3),
            "receiver: SystemExit: 3 (sys.exit() ends no worker: it fails this attempt; raise an error that ",
        ),
        (SystemExit(), "receiver: SystemExit (sys.exit() ends no worker"),
        (TimeoutError(), "receiver: TimeoutError"),
    ],
    ids=["with a code", "bare", "an error without a text"],
)
def test_what_the_error_log_says_of_it(error: BaseException, says: str) -> None:
    def fail(_item: Item) -> None:
        raise error

    bench = Bench()
    (bad,) = bench.insert(1)
    in_a_thread(lambda: bench.deliver(spec(Single(fail))))
    first = reason(bench, bad, "receiver")
    assert says in first
    assert not first.endswith(":")


def test_of_a_transport_with_a_session(raising: Any) -> None:
    class Booking:
        def call_batch(self, items: Any, *, session: Any) -> list[Any]:
            for item in items:
                session.add(item.id)
            return [raising(item) for item in items]

    bench = Bench()
    bad, good = bench.insert(1, 2)
    in_a_thread(lambda: bench.deliver(spec(Booking())))
    reason(bench, bad, "receiver")
    assert bench.store.effects == [good]


def test_of_an_item_middleware(raising: Any) -> None:
    bench = Bench()
    bad, good = bench.insert(1, 2)
    in_a_thread(lambda: bench.deliver(spec(Single()), middlewares=Middlewares(item_process=(raising,))))
    reason(bench, bad, "middleware")
    assert bench.row(good).status == Status.DELIVERED


def test_of_a_batch_middleware_after_the_transports(raising: Any) -> None:
    def after(_batch: Any, call_next: Callable[[], Any]) -> None:
        call_next()
        raising()

    bench = Bench()
    (row_id,) = bench.insert(1)
    in_a_thread(lambda: bench.deliver(spec(Single()), middlewares=Middlewares(batch_process=(after,))))
    reason(bench, row_id, "batch middleware")


def test_of_a_retry_strategy(raising: Any) -> None:
    bench = Bench()
    (row_id,) = bench.insert(1, errors_count=0, processed_at=bench.clock.now() - timedelta(days=1))
    in_a_thread(lambda: bench.deliver(spec(Single()), strategies=[raising]))
    reason(bench, row_id, "retry strategy")


def test_of_a_payload_builder(raising: Any) -> None:
    bench = Bench(payload_builder=raising)
    bad, good = bench.insert(1, 2)
    in_a_thread(lambda: bench.deliver(spec(Single())))
    reason(bench, bad, "payload builder")
    assert bench.row(good).status == Status.DELIVERED


def test_of_a_call_with_a_time_limit(raising: Any) -> None:
    bench = Bench()
    (row_id,) = bench.insert(1)
    transport = spec(Single(raising), timeout=timedelta(minutes=1))
    in_a_thread(lambda: bench.deliver(transport))
    reason(bench, row_id, "receiver")


def test_of_an_error_tracker(raising: Any) -> None:
    logged: list[tuple[Any, dict[str, Any]]] = []
    tracker = GuardedTracker(
        lambda *_args, **_context: raising(), fallback=lambda error, /, **context: logged.append((error, context))
    )

    def twice() -> None:
        tracker("item 5 failed", box_name="b")
        tracker("item 5 failed", box_name="b")

    in_a_thread(twice)
    complaint, first, second = logged
    assert str(complaint[0]).startswith("the error tracker raised ")
    assert first == second == ("item 5 failed", {"box_name": "b"})


def test_an_error_tracker_that_returns_a_coroutine_is_not_believed() -> None:
    async def lazy() -> None: ...

    logged: list[Any] = []
    careless: Any = lambda _error, /, **_context: lazy()  # noqa: E731
    tracker = GuardedTracker(careless, fallback=lambda error, /, **_context: logged.append(error))
    tracker("item 5 failed")
    assert "returned a coroutine that nobody waits for" in logged[0]
    assert logged[1] == "item 5 failed"


def test_an_error_that_cannot_say_what_it_is_fails_its_item_and_nothing_else() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit(4)

    def answer(item: Item) -> None:
        raise Mute

    bench = Bench()
    (row_id,) = bench.insert(1)
    in_a_thread(lambda: bench.deliver(spec(Single(answer))))
    assert "says nothing" in reason(bench, row_id, "receiver")


def test_of_a_group_of_errors_each_is_told() -> None:
    first, second = ValueError("no such order"), KeyError("total")
    second.__cause__ = first
    inner = ExceptionGroup("inner", [TimeoutError()])
    group = ExceptionGroup("unhandled errors in a TaskGroup", [first, second, inner])
    assert reason_of(group) == (
        "ExceptionGroup: unhandled errors in a TaskGroup (3 sub-exceptions) [ValueError: no such order; KeyError: 'total'; "
        "ExceptionGroup: inner (1 sub-exception) [TimeoutError]]"
    )


def test_a_chain_of_errors_without_end_is_told_as_far_as_it_goes() -> None:
    first, last = ValueError("first"), ValueError("last")
    first.__cause__, last.__cause__ = last, first
    assert reason_of(last) == "ValueError: first. ValueError: last"
    for _ in range(10 * MOST_CAUSES):
        last, last.__cause__ = ValueError("again"), last
    assert reason_of(last) == ". ".join(["ValueError: again"] * MOST_CAUSES)


@pytest.mark.parametrize("error", [Abandoned(), KeyboardInterrupt()], ids=["crash", "Ctrl-C in the main thread"])
def test_what_ends_the_whole_program_comes_through(error: BaseException) -> None:
    def answer(_item: Item) -> None:
        raise error

    bench = Bench()
    (row_id,) = bench.insert(1)
    with pytest.raises(type(error)):
        bench.deliver(spec(Single(answer)))
    assert bench.row(row_id).status == Status.PENDING
