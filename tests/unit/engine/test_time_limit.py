"""A transport whose call does not come back in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from datetime import timedelta
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from boxengine.domain.item import Item
from boxengine.engine.delivering.calls.pipeline import Middlewares
from boxengine.engine.delivering.calls.time_limit import TimeLimit
from boxengine.errors import BoxError, NoAnswerInTime, Unavailable
from tests.eventually import eventually
from tests.unit.engine.bench import Batches, Bench, Single, spec

SHORT = timedelta(seconds=0.05)
LONG = timedelta(seconds=60)
REASON = "no answer within 0.05 s"


@pytest.fixture
def release() -> Iterator[Event]:
    """Lets calls that hang come back; at the latest at the end of the test."""
    event = Event()
    yield event
    event.set()


def test_what_is_returned_or_raised_in_time_comes_through() -> None:
    limit = TimeLimit(LONG, name="kafka")
    assert limit.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        limit.call(divmod, 7, 0)


def test_the_call_sees_the_callers_context() -> None:
    trace = ContextVar("trace", default="none")
    trace.set("00-1")
    assert TimeLimit(LONG, name="kafka").call(trace.get) == "00-1"


def test_what_looks_after_a_thread_is_called_in_the_thread_that_makes_the_call() -> None:
    threads: list[str] = []

    class Tidy:
        def __call__(self, _batch: object, call_next: Callable[[], object]) -> object:
            return call_next()

        def in_helper(self, call: Callable[[], object]) -> object:
            try:
                return call()
            finally:
                threads.append(f"after {current_thread().name}")

    class Transport:
        def __call__(self, _item: Item, _payload: bytes) -> None:
            threads.append(current_thread().name)

    bench = Bench()
    bench.insert("k")
    bench.deliver(spec(Transport(), name="orm", timeout=LONG), middlewares=Middlewares(batch_process=(Tidy(),)))
    assert threads == ["boxengine-orm", "after boxengine-orm"]


def test_a_call_that_hangs_is_given_up_and_told_of_when_it_comes_back(release: Event) -> None:
    told: list[str] = []
    limit = TimeLimit(SHORT, name="kafka", hanging=told.append, returned=lambda: told.append("returned"))
    with pytest.raises(NoAnswerInTime, match=REASON):
        limit.call(release.wait)
    assert told == [REASON]
    release.set()
    eventually(lambda: told == [REASON, "returned"])


def test_one_that_has_been_given_up_does_not_hold_up_the_next(release: Event) -> None:
    limit = TimeLimit(SHORT, name="kafka")
    with pytest.raises(NoAnswerInTime):
        limit.call(release.wait)
    assert limit.call(divmod, 7, 2) == (3, 1)


def test_a_system_that_has_no_thread_for_the_call_is_no_fault_of_its_items(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    limit = TimeLimit(LONG, name="kafka")
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", refused)
        with pytest.raises(Unavailable, match="no thread for a call with a time limit: can't start new thread"):
            limit.call(divmod, 7, 2)
    assert limit.call(divmod, 7, 2) == (3, 1)


# ── a box's batches ──────────────────────────────────────────────────────────────────────────────────


class Slow(Batches):
    """Hangs on the batch or item with these ids."""

    def __init__(self, release: Event, *ids: int) -> None:
        def answer(item: Item) -> None:
            if item.id in ids:
                release.wait()

        super().__init__(answer)


@pytest.fixture
def bench() -> Bench:
    return Bench(max_retries=5, backoff=None)


def test_a_batch_that_hangs_is_a_failed_attempt_of_its_items_and_is_not_halved(bench: Bench, release: Event) -> None:
    ids = bench.insert(1, 2, 3)
    transport = Slow(release, ids[1])
    delivery = bench.delivery(spec(transport, timeout=SHORT))
    report = bench.run(delivery)
    assert transport.calls == [ids]
    assert [(bench.row(each).status, bench.row(each).errors_count) for each in ids] == [(0, 1)] * 3
    assert REASON in bench.row(ids[0]).error_log
    assert str(report.unreachable["receiver"]) == REASON


def test_one_by_one_only_the_item_that_hangs_has_failed_and_the_rest_waits(bench: Bench, release: Event) -> None:
    ids = bench.insert(1, 2, 3)

    def answer(item: Item) -> None:
        if item.id == ids[1]:
            release.wait()

    transport = Single(answer)
    bench.run(bench.delivery(spec(transport, timeout=SHORT)))
    assert transport.ids == ids[:2]
    assert [(bench.row(each).status, bench.row(each).errors_count) for each in ids] == [(2, 0), (0, 1), (0, 0)]


def test_a_transport_that_hangs_is_not_called_until_its_call_has_come_back(bench: Bench, release: Event) -> None:
    ids = bench.insert(1)
    transport = Slow(release, *ids)
    delivery = bench.delivery(spec(transport, timeout=SHORT))
    bench.run(delivery)
    more = bench.insert(2)
    bench.clock.advance(timedelta(hours=1))
    assert bench.run(delivery).claimed == 0
    (circuit,) = delivery.open_circuits()
    assert (circuit.reason, circuit.next_try) == (REASON, None)
    release.set()
    eventually(lambda: [each.next_try for each in delivery.open_circuits()] != [None])
    bench.clock.advance(timedelta(seconds=1))
    bench.run(delivery)
    assert [bench.row(each).status for each in ids + more] == [2, 2]
    assert delivery.open_circuits() == []


def test_without_a_limit_the_call_is_made_by_the_thread_itself(bench: Bench) -> None:
    here: ContextVar[str] = ContextVar("here", default="elsewhere")
    bench.insert(1)

    class Marks:
        def call_batch(self, items: Sequence[Item]) -> list[Any]:
            here.set("seen by the caller")
            return [None] * len(items)

    bench.run(bench.delivery(spec(Marks())))
    assert here.get() == "seen by the caller"


def test_a_limit_together_with_the_engines_session_is_refused(bench: Bench) -> None:
    class Booking:
        def __call__(self, item: Item, payload: Any, *, session: Any) -> None: ...

    with pytest.raises(BoxError, match="timeout cannot be combined with session="):
        bench.delivery(spec(Booking(), timeout=SHORT))
