"""One batch on its way through the transports: waves, narrowing, routes, the deadline, savepoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from boxengine.adapters.memory.claims import MemoryClaim
from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.answers import WITHHELD
from boxengine.engine.delivering.calls.pipeline import TransportSpec
from boxengine.engine.delivering.calls.transports import Withholding
from boxengine.engine.delivering.calls.whole import NARROWING_SPLITS
from boxengine.errors import Unavailable
from tests.unit.engine.bench import Batches, Bench, Refusals, Single, spec


@pytest.fixture
def bench() -> Bench:
    return Bench()


def refuses(*ids: int) -> Callable[[Item], Any]:
    return lambda item: Failure("no") if item.id in ids else None


def raises(*ids: int) -> Callable[[Item], Any]:
    def answer(item: Item) -> None:
        if item.id in ids:
            raise ValueError(f"item {item.id}")

    return answer


def failed_ids(sending: Any) -> list[int]:
    return sorted(item.id for item, _, _ in sending.failed)


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("answer", [None, True, 0, "", [], "ok"])
@pytest.mark.parametrize("kind", [Single, Batches])
def test_anything_but_false_and_failure_is_delivered(bench: Bench, kind: Any, answer: Any) -> None:
    ids = bench.insert(1, 2)
    assert bench.send(spec(kind(lambda _item: answer))).delivered == ids


@pytest.mark.parametrize("answer", [False, Failure("no")])
@pytest.mark.parametrize("kind", [Single, Batches])
def test_false_and_failure_are_failed_attempts(bench: Bench, kind: Any, answer: Any) -> None:
    ids = bench.insert(1, 2)
    sending = bench.send(spec(kind(lambda _item: answer)))
    assert (sending.delivered, failed_ids(sending)) == ([], ids)
    assert {(problem, where) for _, problem, where in sending.failed} == {(answer, "receiver")}


@pytest.mark.parametrize("results", [[], [None], [None] * 3, None, iter([None, None])])
def test_a_batch_transport_with_another_number_of_results_fails_the_whole_batch(bench: Bench, results: Any) -> None:
    class Odd:
        calls = 0

        def call_batch(self, items: Any) -> Any:
            Odd.calls += 1
            return results

    ids = bench.insert(1, 2)
    sending = bench.send(spec(Odd()))
    assert (sending.delivered, failed_ids(sending)) == ([], ids)
    assert Odd.calls == 1
    assert "2 items and must return as many results" in str(sending.failed[0][1])


@pytest.mark.parametrize("kind", [Single, Batches])
@pytest.mark.parametrize("options", [{"replay_to": "second"}, '{"replay_to": "second"}'])
def test_an_item_that_names_its_transport_goes_to_that_one_alone(bench: Bench, kind: Any, options: Any) -> None:
    first, second = kind(), kind()
    specs = replace(spec(first), name="first"), replace(spec(second), name="second", event_name="paid")
    named = bench.insert(1, options=options)
    others = bench.insert(2, event_name="paid", options={"replay_to": 7}) + bench.insert(3, options="[1]")
    sending = bench.send(*specs)
    assert sorted(sending.delivered) == sorted(named + others)
    assert first.ids == others
    assert sorted(second.ids) == [named[0], others[0]]


def test_an_item_for_a_transport_that_is_gone_fails_and_says_so(bench: Bench) -> None:
    bench.insert(1, options={"replay_to": "gone"})
    sending = bench.send(spec(Single()))
    assert "no transport named 'gone'" in str(sending.failed[0][1])


def test_an_item_without_a_transport_fails(bench: Bench) -> None:
    bench.insert(1, event_name="created")
    sending = bench.send(spec(Single(), event_name="paid"))
    assert "no transport for event name 'created'" in str(sending.failed[0][1])
    bench.insert(1)
    assert "no transport for an item without an event name" in str(bench.send(spec(Single(), event_name="paid")).failed)


# ── narrowing ────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_that_raises_is_halved_until_the_guilty_item_is_alone(bench: Bench) -> None:
    ids = bench.insert(*range(64))
    transport = Batches(raises(ids[17]))
    sending = bench.send(spec(transport))
    assert failed_ids(sending) == [ids[17]]
    assert sorted(sending.delivered) == [item_id for item_id in ids if item_id != ids[17]]
    assert all(transport.ids.count(item_id) <= 7 for item_id in ids)


def test_several_guilty_items_take_no_innocent_ones_with_them(bench: Bench) -> None:
    ids = bench.insert(*range(500))
    guilty = [ids[3], ids[120], ids[121], ids[250], ids[499]]
    transport = Batches(raises(*guilty))
    sending = bench.send(spec(transport))
    assert failed_ids(sending) == guilty
    assert sorted(sending.delivered) == sorted(set(ids) - set(guilty))
    assert len(transport.calls) < 100


def test_narrowing_has_an_end_when_everything_raises(bench: Bench) -> None:
    ids = bench.insert(*range(500))
    transport = Batches(raises(*ids))
    sending = bench.send(spec(transport))
    assert failed_ids(sending) == ids
    assert len(transport.calls) <= 2 * NARROWING_SPLITS + 1


def test_narrowing_keeps_the_order_of_what_it_sends(bench: Bench) -> None:
    ids = bench.insert(*range(16))
    sending = bench.send(spec(Batches(raises(ids[5]))))
    assert sending.delivered == [item_id for item_id in ids if item_id != ids[5]]


def test_narrowing_stops_at_the_deadline_and_leaves_the_rest_pending(bench: Bench) -> None:
    ids = bench.insert(*range(8))
    transport = Batches(raises(ids[0]))
    expired = iter([False, True])
    sending = bench.send(spec(transport), expired=lambda _begun: next(expired, True))
    assert not set(sending.delivered) & set(failed_ids(sending))
    assert ids[-1] not in {*sending.delivered, *failed_ids(sending)}


# ── strict order ─────────────────────────────────────────────────────────────────────────────────────


def test_under_strict_order_by_bucket_a_batch_holds_one_item_of_each_bucket(bench: Bench) -> None:
    ids = bench.insert(0, 1, 4, 5, 0)
    transport = Batches()
    sending = bench.send(spec(transport), strict_order=StrictOrder.BUCKET)
    assert transport.calls == [[ids[0], ids[1]], [ids[2], ids[3]], [ids[4]]]
    assert sorted(sending.delivered) == ids


def test_under_strict_order_by_key_a_batch_holds_no_key_twice(bench: Bench) -> None:
    ids = bench.insert(0, 4, 0, 8, 0)
    transport = Batches()
    bench.send(spec(transport), strict_order=StrictOrder.KEY)
    assert transport.calls == [[ids[0], ids[1], ids[3]], [ids[2]], [ids[4]]]


@pytest.mark.parametrize("kind", [Single, Batches])
@pytest.mark.parametrize(
    ("order", "sent"), [(StrictOrder.NONE, [0, 1, 2, 3]), (StrictOrder.KEY, [0, 1, 3]), (StrictOrder.BUCKET, [0, 3])]
)
def test_a_failed_item_holds_back_its_key_or_bucket_or_nobody(
    bench: Bench, kind: Any, order: StrictOrder, sent: list[int]
) -> None:
    ids = bench.insert(0, 4, 0, 1)
    transport = kind(refuses(ids[0]))
    sending = bench.send(spec(transport), strict_order=order)
    assert sorted(transport.ids) == [ids[place] for place in sent]
    assert failed_ids(sending) == [ids[0]]


# ── routes ───────────────────────────────────────────────────────────────────────────────────────────


def test_items_of_one_key_keep_their_order_across_transports(bench: Bench) -> None:
    order: list[int] = []

    class Noting(Batches):
        def call_batch(self, items: Any) -> list[Any]:
            order.extend(item.id for item in items)
            return super().call_batch(items)

    names = ["a", "b", "a", "b", "b", "a"]
    ids = [bench.insert(key, event_name=name)[0] for key in (0, 1) for name in names]
    bench.send(spec(Noting(), name="a", event_name="a"), spec(Noting(), name="b", event_name="b"))
    by_key = {key: [each for each in order if bench.row(each).event_key == key] for key in ("0", "1")}
    assert by_key == {"0": ids[:6], "1": ids[6:]}


def test_with_several_transports_all_must_take_the_item(bench: Bench) -> None:
    ids = bench.insert(1, 2, 3)
    first, second = Batches(refuses(ids[0])), Batches(refuses(ids[1]))
    sending = bench.send(spec(first, name="first"), spec(second, name="second"))
    assert second.ids == ids[1:]
    assert sending.delivered == [ids[2]]
    assert [(item.id, where) for item, _, where in sending.failed] == [(ids[0], "first"), (ids[1], "second")]


def test_a_batch_transport_beside_one_for_single_items_is_called_with_one_at_a_time(bench: Bench) -> None:
    ids = bench.insert(1, 2)
    batches, single = Batches(), Single()
    assert bench.send(spec(batches), spec(single)).delivered == ids
    assert batches.calls == [[ids[0]], [ids[1]]]


def test_item_middlewares_stand_around_each_item_even_of_a_batch_transport(bench: Bench) -> None:
    ids = bench.insert(1, 2)
    log: list[str] = []

    def watch(item: Item, call_next: Callable[[], Any]) -> Any:
        log.append(f"before {item.id}")
        result = call_next()
        log.append(f"after {item.id}")
        return result

    batches = Batches()
    assert bench.send(spec(batches), middlewares=[watch]).delivered == ids
    assert log == [f"{when} {each}" for each in ids for when in ("before", "after")]


def test_a_middleware_that_raises_fails_the_item_and_is_named(bench: Bench) -> None:
    bench.insert(1)

    def explode(_item: Item, _call_next: Callable[[], Any]) -> Any:
        raise RuntimeError("tracing is down")

    ((_, problem, where),) = bench.send(spec(Single()), middlewares=[explode]).failed
    assert (str(problem), where) == ("tracing is down", "middleware")


# ── the deadline ─────────────────────────────────────────────────────────────────────────────────────


def test_once_the_deadline_has_passed_nothing_more_is_sent_even_if_it_is_moved(bench: Bench) -> None:
    ids = bench.insert(0, 0, 0, 0)
    answers = iter([False, False, True, False, False])
    transport = Single()
    sending = bench.send(spec(transport), expired=lambda _begun: next(answers))
    assert transport.ids == ids[:2]
    assert sending.delivered == ids[:2]


def test_between_two_waves_the_deadline_is_looked_at(bench: Bench) -> None:
    ids = bench.insert(0, 0, 0)
    answers = iter([False, True])
    transport = Batches()
    bench.send(spec(transport), strict_order=StrictOrder.KEY, expired=lambda _begun: next(answers, True))
    assert transport.calls == [[ids[0]]]


# ── sessions and savepoints ──────────────────────────────────────────────────────────────────────────


class Booking:
    """Writes through the engine's session, then fails or not."""

    def __init__(self, answer: Callable[[Item], Any]) -> None:
        self._answer = answer

    def __call__(self, item: Item, payload: Any, *, session: Any) -> Any:
        session.add(item.id)
        return self._answer(item)


@pytest.mark.parametrize("how", [refuses, raises])
def test_what_a_failing_handler_wrote_is_undone_and_nothing_else(bench: Bench, how: Any) -> None:
    ids = bench.insert(1, 2, 3)
    bench.send(spec(Booking(how(ids[1]))))
    assert bench.store.effects == [ids[0], ids[2]]


class BatchBooking:
    """Writes for a whole batch through the engine's session, then answers for each item."""

    def __init__(self, answer: Callable[[Item], Any] = lambda _item: None) -> None:
        self._answer = answer
        self.calls: list[list[int]] = []

    def call_batch(self, items: Any, *, session: Any) -> list[Any]:
        self.calls.append([item.id for item in items])
        for item in items:
            session.add(item.id)
        return [self._answer(item) for item in items]


@pytest.mark.parametrize("how", [refuses, raises])
def test_what_a_batch_wrote_for_an_item_is_undone_when_a_later_transport_does_not_take_the_item(
    bench: Bench, how: Any
) -> None:
    ids = bench.insert(1, 2, 3)
    booking, outside = BatchBooking(), Batches(how(ids[1]))
    sending = bench.send(spec(booking, name="booking"), spec(outside, name="outside"))
    assert (sorted(sending.delivered), failed_ids(sending)) == ([ids[0], ids[2]], [ids[1]])
    assert sorted(bench.store.effects) == [ids[0], ids[2]]
    assert [where for _, _, where in sending.failed] == ["outside"]


@pytest.mark.parametrize("how", [refuses, raises])
def test_what_a_batch_wrote_for_an_item_that_it_refuses_itself_is_undone(bench: Bench, how: Any) -> None:
    ids = bench.insert(1, 2, 3)
    sending = bench.send(spec(BatchBooking(how(ids[1]))))
    assert (sorted(sending.delivered), failed_ids(sending)) == ([ids[0], ids[2]], [ids[1]])
    assert sorted(bench.store.effects) == [ids[0], ids[2]]


def test_after_a_refusal_only_transports_that_write_through_the_session_are_called_again(bench: Bench) -> None:
    ids = bench.insert(1, 2, 3)
    before, booking, after = Batches(), BatchBooking(), Batches(refuses(ids[1]))
    sending = bench.send(spec(before, name="before"), spec(booking, name="booking"), spec(after, name="after"))
    assert sorted(sending.delivered) == [ids[0], ids[2]]
    assert (before.calls, after.calls) == ([ids], [ids])
    assert booking.calls == [ids, [ids[0], ids[2]]]


def test_a_transport_outside_the_session_gets_no_item_twice_while_a_batch_is_narrowed_down(bench: Bench) -> None:
    ids = bench.insert(*range(8))
    before, booking = Batches(), BatchBooking(raises(ids[5]))
    sending = bench.send(spec(before, name="before"), spec(booking, name="booking"))
    assert (sorted(sending.delivered), failed_ids(sending)) == ([*ids[:5], *ids[6:]], [ids[5]])
    assert before.ids == ids
    assert sorted(bench.store.effects) == sending.delivered


@pytest.mark.parametrize("second", [Batches, BatchBooking])
def test_what_one_transport_has_goes_on_to_the_next_in_halves_however_late_it_is(
    bench: Bench, second: type[Batches | BatchBooking]
) -> None:
    """Left pending, it would reach the first transport twice."""
    ids = bench.insert(*range(8))
    first, late = Batches(), second(raises(ids[5]))
    sending = bench.send(spec(first, name="first"), spec(late, name="late"), expired=lambda _begun: bool(late.calls))
    assert (sorted(sending.delivered), failed_ids(sending)) == ([*ids[:5], *ids[6:]], [ids[5]])
    assert first.ids == ids


def test_a_batch_that_nobody_refuses_costs_one_savepoint(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[int] = []
    savepoint = MemoryClaim.savepoint

    def counted(self: MemoryClaim) -> Any:
        entered.append(1)
        return savepoint(self)

    monkeypatch.setattr(MemoryClaim, "savepoint", counted)
    bench.insert(*range(8))
    bench.send(spec(BatchBooking(), name="a"), spec(BatchBooking(), name="b"), spec(Batches(), name="c"))
    assert len(entered) == 1


def test_a_receiver_that_cannot_be_reached_undoes_the_batch_and_leaves_it_pending(bench: Bench) -> None:
    def gone(_item: Item) -> None:
        raise Unavailable("nobody there")

    bench.insert(1, 2)
    sending = bench.send(spec(BatchBooking(), name="booking"), spec(Batches(gone), name="outside"))
    assert (sending.delivered, sending.failed, bench.store.effects) == ([], [], [])
    assert set(sending.unreachable) == {"outside"}


def test_a_handler_that_refuses_another_item_at_each_call_comes_to_an_end(bench: Bench) -> None:
    class Moody(BatchBooking):
        def call_batch(self, items: Any, *, session: Any) -> list[Any]:
            super().call_batch(items, session=session)
            return [False, *(True for _ in items[1:])]

    ids = bench.insert(*range(50))
    sending = bench.send(spec(Moody()))
    assert failed_ids(sending) == ids
    assert bench.store.effects == []


def test_what_a_handler_wrote_is_undone_when_a_later_transport_fails(bench: Bench) -> None:
    ids = bench.insert(1, 2)
    bench.send(spec(Booking(lambda _item: None)), spec(Single(refuses(ids[0]))))
    assert bench.store.effects == [ids[1]]


def test_what_a_batch_handler_wrote_is_undone_when_it_raises_and_kept_for_the_half_that_goes_through(
    bench: Bench,
) -> None:
    ids = bench.insert(1, 2, 3, 4)

    class Books:
        def call_batch(self, items: Any, *, session: Any) -> list[None]:
            for item in items:
                session.add(item.id)
                if item.id == ids[2]:
                    raise ValueError("no")
            return [None] * len(items)

    sending = bench.send(spec(Books()))
    assert bench.store.effects == sending.delivered == [ids[0], ids[1], ids[3]]


# ── told ─────────────────────────────────────────────────────────────────────────────────────────────


def test_calls_are_told_once_per_batch_also_of_items_sent_one_by_one(bench: Bench) -> None:
    ids = bench.insert(1, 2, 3)
    bench.send(spec(Batches(refuses(ids[0])), name="batch"))
    bench.send(spec(Single(refuses(ids[0], ids[1])), name="single"))
    assert bench.observer.calls == [("batch", 3, 1), ("single", 3, 2)]


@pytest.mark.parametrize("kind", [Single, Batches])
def test_the_tracer_hears_of_items_that_a_transport_refuses_without_raising(bench: Bench, kind: Any) -> None:
    answers = dict(zip(bench.insert(1, 2, 3, 4), [Failure("no"), None, False, Unavailable("away")], strict=True))
    bench.tracer = refusals = Refusals()
    bench.send(spec(kind(lambda item: answers[item.id])))
    first, _, third, fourth = answers
    assert refusals.told == {first: "no", third: "returned False", fourth: "Unavailable: away"}


def test_a_disposable_transport_is_made_anew_for_each_call(bench: Bench) -> None:
    bench.insert(1, 2, 3)
    made: list[Single] = []

    def build() -> Single:
        made.append(Single())
        return made[-1]

    bench.send(TransportSpec(name="disposable", build=build, disposable=True))
    assert max(len(each.ids) for each in made) == 1
    assert sum(len(each.ids) for each in made) == 3


def test_the_time_of_calls_that_raise_is_told_too(bench: Bench) -> None:
    def slow(item: Item) -> None:
        bench.clock.advance(timedelta(seconds=1))
        if item.id != good:
            raise ValueError(item.id)

    good, *_ = bench.insert(1, 2, 3)
    bench.send(spec(Single(slow), name="single"))
    assert bench.observer.calls == [("single", 3, 2)]
    assert bench.observer.seconds["single"] == 3
    bench.insert(4)
    bench.send(spec(Batches(slow), name="batch"))
    assert bench.observer.seconds["batch"] > 3


# ── transports that leave items out ──────────────────────────────────────────────────────────────────


class Tired(Batches, Withholding):
    """Takes one item of each batch and leaves out the rest, unless another transport has them already."""

    def call_batch(self, items: Any) -> list[Any]:
        return super().call_batch(items)[:1] + [WITHHELD] * (len(items) - 1)

    def to_the_end(self) -> Batches:
        return Batches(self.answer)


@pytest.mark.parametrize("disposable", [False, True])
def test_a_transport_may_leave_out_items_but_not_behind_another(bench: Bench, disposable: bool) -> None:
    ids = bench.insert(1, 2, 3)
    alone = bench.send(spec(Tired(), disposable=disposable))
    assert (alone.delivered, alone.failed, [item.id for item in alone.waiting]) == (ids[:1], [], ids[1:])
    behind = bench.send(spec(Batches(), name="first"), spec(Tired(), name="second", disposable=disposable))
    assert (behind.delivered, behind.waiting) == (ids, [])
