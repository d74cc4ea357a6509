"""Middlewares: what one may do to the call that it stands around, whatever it looks like."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Failure
from boxengine.engine.delivering.calls.middleware import NotCalledOn, Refused, compose
from boxengine.engine.delivering.calls.pipeline import Middlewares
from boxengine.errors import BoxError, InvalidItem, StoreUnavailable, Unavailable
from tests.unit.engine.bench import Batches, Bench, Single, spec
from tests.unit.engine.test_creator import Desk, attributes

CallNext = Callable[[], Any]


class Reference:
    """The shape of the reference's own examples: nothing is returned."""

    def __call__(self, _subject: Any, call_next: CallNext) -> None:
        call_next()


class Swallows:
    """Somebody's idea of safety."""

    def __call__(self, _subject: Any, call_next: CallNext) -> Any:
        try:
            return call_next()
        except Exception:
            return None


def says(answer: Any, *, calls_on: bool = True) -> Callable[..., Any]:
    def middleware(*arguments: Any) -> Any:
        if calls_on:
            arguments[-1]()
        return answer

    return middleware


def no_call(_subject: Any, _call_next: CallNext) -> None:
    """Keeps everything back."""


def broken(_subject: Any, call_next: CallNext) -> Any:
    call_next()
    raise ValueError("metrics are down")


def refuses(item: Item) -> Failure:
    return Failure(f"no {item.id}")


def explodes(item: Item) -> None:
    raise ConnectionError(f"cable {item.id}")


# ── the chain ────────────────────────────────────────────────────────────────────────────────────────


def test_no_middlewares_cost_nothing() -> None:
    def innermost() -> None: ...

    assert compose((), innermost) is innermost


def test_the_first_middleware_is_outermost() -> None:
    log: list[str] = []

    def around(name: str) -> Any:
        def middleware(_subject: str, call_next: CallNext) -> None:
            log.append(f"{name} before")
            call_next()
            log.append(f"{name} after")

        return middleware

    assert compose([around("a"), around("b")], str.upper)("x") == "X"
    assert log == ["a before", "b before", "b after", "a after"]


@pytest.mark.parametrize("answer", [None, True, 5, "text", ()])
def test_what_a_middleware_returns_means_nothing(answer: Any) -> None:
    assert compose([says(answer), says(answer)], lambda _subject: "innermost")("x") == "innermost"


def test_call_next_gives_what_the_innermost_call_returned_even_if_those_between_return_nothing() -> None:
    seen: list[Any] = []

    def look(_subject: str, call_next: CallNext) -> None:
        seen.append(call_next())

    compose([look, Reference(), Reference()], lambda _subject: "innermost")("x")
    assert seen == ["innermost"]


@pytest.mark.parametrize("refusal", [False, Failure("no")])
def test_a_refusal_counts_at_whatever_place_it_is_made(refusal: Any) -> None:
    chains: list[list[Any]] = [[says(refusal)], [says(refusal), Reference()], [Reference(), says(refusal)]]
    for chain in chains:
        with pytest.raises(
            Refused, match=r"^middleware tests\.unit\.engine\.test_middleware\.says\.<locals>\.\w+ refused: "
        ):
            compose(chain, lambda _subject: "innermost")("x")


@pytest.mark.parametrize("place", [0, 1])
def test_the_middleware_that_does_not_call_on_is_named(place: int) -> None:
    chain: list[Any] = [Reference(), Reference()]
    chain[place] = no_call
    with pytest.raises(
        NotCalledOn, match=r"^middleware tests\.unit\.engine\.test_middleware\.no_call did not call call_next\(\)$"
    ):
        compose(chain, lambda _subject: "innermost")("x")


def test_an_error_that_an_outer_middleware_swallows_is_raised_all_the_same() -> None:
    with pytest.raises(ZeroDivisionError):
        compose([Swallows(), Swallows()], lambda _subject: 1 / 0)("x")
    with pytest.raises(ValueError, match="metrics are down"):
        compose([Swallows(), broken], str.upper)("x")


def test_a_middleware_that_does_not_call_on_is_told_apart_from_one_that_fails() -> None:
    with pytest.raises(NotCalledOn):
        compose([Reference(), no_call], str.upper)("x")


def test_a_second_call_next_does_nothing_and_gives_the_same_answer() -> None:
    calls, answers = list[str](), list[Any]()

    def twice(_subject: str, call_next: CallNext) -> None:
        answers.extend((call_next(), call_next()))

    def innermost(subject: str) -> str:
        calls.append(subject)
        return "once"

    compose([twice], innermost)("x")
    assert (calls, answers) == (["x"], ["once", "once"])


def test_a_second_call_next_raises_again_what_the_first_raised() -> None:
    calls: list[str] = []

    def retries(_subject: str, call_next: CallNext) -> None:
        for _ in range(3):
            with pytest.raises(ValueError, match="x"):
                call_next()

    def innermost(subject: str) -> None:
        calls.append(subject)
        raise ValueError(subject)

    with pytest.raises(ValueError, match="x"):
        compose([retries], innermost)("x")
    assert calls == ["x"]


def test_a_call_next_that_is_kept_for_later_comes_too_late() -> None:
    kept: list[CallNext] = []
    calls: list[str] = []
    with pytest.raises(NotCalledOn):
        compose([lambda _subject, call_next: kept.append(call_next)], calls.append)("x")
    with pytest.raises(BoxError, match="after its middleware had returned"):
        kept[0]()
    assert calls == []


@pytest.mark.parametrize("calls_on", [False, True])
def test_a_middleware_that_returns_a_coroutine_refuses_and_says_so(calls_on: bool) -> None:
    async def lazy() -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Refused, match="returned a coroutine that nobody waits for"):
            compose([lambda _subject, call_next: (calls_on and call_next(), lazy())[1]], str.upper)("x")
        gc.collect()


# ── around an item ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("middleware", [Reference(), Swallows(), says(True), says(None), says("all is well")])
@pytest.mark.parametrize("kind", [Single, Batches])
@pytest.mark.parametrize(
    ("answer", "reason"), [(refuses, "no 1"), (explodes, "cable 1"), (lambda _item: False, "False")]
)
def test_no_middleware_turns_a_failure_into_a_delivery(middleware: Any, kind: Any, answer: Any, reason: str) -> None:
    bench = Bench()
    (row_id,) = bench.insert(1)
    bench.deliver(spec(kind(answer)), middlewares=Middlewares(item_process=(middleware,)))
    row = bench.row(row_id)
    assert (row.status, row.errors_count) == (Status.FAILED, 1)
    assert " receiver: " in row.error_log
    assert reason in row.error_log


@pytest.mark.parametrize("middleware", [Reference(), says(True), says(0), says("")])
def test_a_middleware_that_returns_nothing_of_use_lets_a_success_be_one(middleware: Any) -> None:
    bench = Bench()
    (row_id,) = bench.insert(1)
    bench.deliver(spec(Single()), middlewares=Middlewares(item_process=(middleware,)))
    assert bench.row(row_id).status == Status.DELIVERED


@pytest.mark.parametrize(
    ("middleware", "reason"),
    [(says(False), "returned False"), (says(Failure("not today")), "not today"), (broken, "metrics are down")],
)
@pytest.mark.parametrize("outer", [(), (Reference(),), (Swallows(),)])
def test_a_middleware_may_turn_a_success_into_a_failure(middleware: Any, reason: str, outer: Any) -> None:
    bench, transport = Bench(), Single()
    (row_id,) = bench.insert(1)
    bench.deliver(spec(transport), middlewares=Middlewares(item_process=(*outer, middleware)))
    assert bench.row(row_id).status == Status.FAILED
    assert f"middleware: {reason}" in bench.row(row_id).error_log.replace("ValueError: ", "")
    assert transport.ids == [row_id]


def test_what_the_transport_said_stands_over_what_a_middleware_makes_of_it() -> None:
    def gone(_item: Item) -> None:
        raise Unavailable("nobody there")

    def wraps(_item: Item, call_next: CallNext) -> None:
        try:
            call_next()
        except Unavailable as error:
            raise RuntimeError("wrapped") from error

    bench = Bench()
    (row_id,) = bench.insert(1)
    bench.deliver(spec(Single(gone)), middlewares=Middlewares(item_process=(wraps,)))
    assert (bench.row(row_id).status, bench.row(row_id).errors_count) == (Status.PENDING, 0)


def test_an_item_is_not_delivered_if_its_middleware_does_not_wait_for_the_transport() -> None:
    begun, may_end = Event(), Event()

    def takes_long(_item: Item) -> None:
        begun.set()
        may_end.wait(10)

    def goes_on_without(_item: Item, call_next: CallNext) -> None:
        thread.submit(call_next)  # as with a time limit whose end is only logged
        begun.wait(10)

    bench = Bench()
    (row_id,) = bench.insert(1)
    with ThreadPoolExecutor(1) as thread:
        bench.deliver(spec(Single(takes_long)), middlewares=Middlewares(item_process=(goes_on_without,)))
        may_end.set()
    row = bench.row(row_id)
    assert row.status == Status.FAILED
    assert "a middleware returned before its call_next() did" in row.error_log


def test_an_item_whose_middleware_does_not_call_on_stays_pending_with_its_followers_and_is_told_once() -> None:
    def keeps_the_first(item: Item, call_next: CallNext) -> None:
        if item.id != first:
            call_next()

    bench, transport = Bench(), Single()
    first, follower, neighbour = bench.insert("a", "a", "b")
    delivery = bench.delivery(spec(transport), middlewares=Middlewares(item_process=(keeps_the_first,)))
    before = bench.row(first)
    bench.run(delivery)
    assert bench.row(first) == before
    assert bench.row(follower).status == Status.PENDING
    assert transport.ids == [neighbour]
    assert bench.run(delivery).progressed is False  # which lets its bucket rest
    assert bench.observer.kept == [[first]]


@pytest.mark.parametrize("strict", list(StrictOrder))
def test_an_item_that_is_kept_back_is_overtaken_under_no_order(strict: StrictOrder) -> None:
    bench, transport = Bench(bucket_size=1), Single()
    first, _, other = bench.insert("a", "a", "b")
    sending = bench.send(
        spec(transport), strict_order=strict, middlewares=[lambda item, go_on: (item.id != first and go_on()) or None]
    )
    assert [item.id for item in sending.kept_back] == [first]
    assert transport.ids == ([] if strict is StrictOrder.BUCKET else [other])
    assert sending.failed == []


def test_what_an_item_wrote_through_the_session_is_undone_where_its_middleware_refuses_afterwards() -> None:
    class Writes:
        def __call__(self, item: Item, payload: Any, *, session: Any) -> None:
            session.add(item.id)

    def broken_after(item: Item, call_next: CallNext) -> Any:
        call_next()
        return item.id != bad

    bench = Bench()
    good, bad = bench.insert(1, 2)
    bench.deliver(spec(Writes()), middlewares=Middlewares(item_process=(broken_after,)))
    assert bench.store.effects == [good]


# ── around a batch ───────────────────────────────────────────────────────────────────────────────────


def batch_process(*middlewares: Any) -> Any:
    return {"middlewares": Middlewares(batch_process=middlewares)}


@pytest.mark.parametrize("middleware", [Reference(), says(True), says(7)])
def test_a_batch_middleware_that_returns_nothing_of_use_changes_nothing(middleware: Any) -> None:
    bench = Bench()
    good, bad = bench.insert(1, 2)
    bench.deliver(spec(Batches(lambda item: item.id != bad)), **batch_process(middleware))
    assert [bench.row(each).status for each in (good, bad)] == [Status.DELIVERED, Status.FAILED]


@pytest.mark.parametrize(
    ("middleware", "reason"),
    [(says(False), "returned False"), (says(Failure("no")), "no"), (broken, "ValueError: metrics are down")],
)
def test_a_batch_middleware_that_fails_after_the_transports_fails_what_they_took_and_undoes_what_they_wrote(
    middleware: Any, reason: str
) -> None:
    class Writes:
        def __call__(self, item: Item, payload: Any, *, session: Any) -> Any:
            session.add(item.id)
            return item.id != refused

    bench = Bench(max_retries=3)
    taken, refused = bench.insert(1, 2)
    bench.deliver(spec(Writes()), **batch_process(middleware))
    assert [(bench.row(each).status, bench.row(each).errors_count) for each in (taken, refused)] == [(0, 1), (0, 1)]
    assert f"batch middleware: {reason}" in bench.row(taken).error_log
    assert "receiver: returned False" in bench.row(refused).error_log
    assert bench.store.effects == []


def test_a_batch_middleware_that_does_not_call_on_leaves_the_batch_pending_and_tells_of_it_once() -> None:
    bench, transport = Bench(), Batches()
    ids = bench.insert(1, 2)
    delivery = bench.delivery(spec(transport), **batch_process(no_call))
    assert not bench.run(delivery).progressed
    bench.run(delivery)
    assert [bench.row(each).status for each in ids] == [Status.PENDING] * 2
    assert transport.calls == []
    assert bench.observer.kept == [ids]


def test_a_batch_middleware_cannot_swallow_what_ended_the_batch() -> None:
    class Gone:
        def __call__(self, item: Item, context: Any) -> Any:
            raise StoreUnavailable("the connection is gone")

    bench, transport = Bench(), Single()
    tried = bench.clock.now() - timedelta(days=1)
    ids = bench.insert(1, 2, errors_count=1, processed_at=tried)
    with pytest.raises(StoreUnavailable):
        bench.deliver(spec(transport), strategies=[Gone()], **batch_process(Swallows()))
    assert [bench.row(each).status for each in ids] == [Status.PENDING] * 2
    assert transport.ids == []


# ── around a creation ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("answer", [None, True, 77, [1, 2, 3]])
def test_create_returns_the_ids_of_the_rows_whatever_a_middleware_returns(answer: Any) -> None:
    desk = Desk(middlewares=Middlewares(create_item=(says(answer),), create_batch=(says(answer),)))
    assert desk.creator.create(None, attributes()) == 1
    assert desk.creator.create_batch(None, [attributes(), attributes()]) == [2, 3]


@pytest.mark.parametrize("refusal", [False, Failure("closed on Sundays")])
def test_a_create_middleware_that_refuses_raises_so_that_the_caller_rolls_back(refusal: Any) -> None:
    desk = Desk(middlewares=Middlewares(create_item=(says(refusal),), create_batch=(says(refusal),)))
    with pytest.raises(InvalidItem, match=r"middleware \S+ refused: "):
        desk.creator.create(None, attributes())
    with pytest.raises(InvalidItem, match=r"middleware \S+ refused: "):
        desk.creator.create_batch(None, [attributes()])


def test_a_create_middleware_that_does_not_call_on_raises_as_an_event_must_not_be_lost_in_silence() -> None:
    silent = says(5, calls_on=False)
    desk = Desk(middlewares=Middlewares(create_item=(silent,), create_batch=(silent,)))
    with pytest.raises(InvalidItem, match=r"did not call call_next\(\), so nothing was written"):
        desk.creator.create(None, attributes())
    with pytest.raises(InvalidItem, match="nothing was written"):
        desk.creator.create_batch(None, [attributes()])
    assert desk.table.rows == []


def test_a_create_middleware_that_calls_on_twice_writes_one_row() -> None:
    def twice(_model: Any, _attributes: Any, call_next: CallNext) -> None:
        call_next()
        call_next()

    desk = Desk(middlewares=Middlewares(create_item=(twice,)))
    desk.creator.create(None, attributes())
    assert len(desk.table.rows) == 1
