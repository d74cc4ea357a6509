"""A receiver that cannot be reached: no attempt, no overtaking, and the other transports go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.telemetry.ledger import Ledger, ProcessLedgers
from boxengine.adapters.telemetry.progress import ChildProcesses, missing_publisher, publisher
from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.delivering.calls.sent import MIDDLEWARE
from boxengine.engine.delivering.holds.follow_up import FollowUp
from boxengine.engine.delivering.work import Report
from boxengine.engine.observation import NullObserver
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.health import MISSING_FOR, Health
from boxengine.engine.running.outages import Outages
from boxengine.errors import Unavailable
from boxengine.ports.events import Event, OutageBegan, OutageEnded
from tests.unit.engine.bench import Batches, Bench, Single, make_box, spec

GONE = Unavailable("nobody is there")


def raises(*ids: int) -> Callable[[Item], None]:
    def answer(item: Item) -> None:
        if item.id in ids:
            raise GONE

    return answer


def returns(*ids: int) -> Callable[[Item], Unavailable | None]:
    return lambda item: GONE if item.id in ids else None


@pytest.fixture
def bench() -> Bench:
    return Bench()


# ── one batch ────────────────────────────────────────────────────────────────────────────────────────


def raises_in_groups(*ids: int) -> Callable[[Item], None]:
    """As out of a task group within another."""

    def answer(item: Item) -> None:
        if item.id in ids:
            raise ExceptionGroup("unhandled errors", [ExceptionGroup("unhandled errors", [GONE])])

    return answer


@pytest.mark.parametrize("kind", [Single, Batches])
@pytest.mark.parametrize("how", [raises, returns, raises_in_groups])
def test_what_cannot_be_sent_is_neither_delivered_nor_failed(bench: Bench, kind: Any, how: Any) -> None:
    ids = bench.insert(1, 2)
    sending = bench.send(spec(kind(how(*ids))))
    assert (sending.delivered, sending.failed) == ([], [])
    assert sending.unreachable == {"receiver": GONE}
    assert sending.reached == set()


@pytest.mark.parametrize("kind", [Single, Batches])
def test_an_outage_that_comes_with_another_error_is_a_failed_attempt(bench: Bench, kind: Any) -> None:
    def answer(_item: Item) -> None:
        raise ExceptionGroup("unhandled errors", [GONE, ValueError("no such order")])

    ids = bench.insert(1)
    sending = bench.send(spec(kind(answer)))
    assert [failure.item.id for failure in sending.failed] == ids
    assert sending.unreachable == {}


@pytest.mark.parametrize("asked", ["Wed, 21 Oct 2015 07:28:00 GMT", "", timedelta(seconds=5)], ids=repr)
def test_a_retry_after_that_is_no_number_of_seconds_leaves_the_outage_an_outage(bench: Bench, asked: Any) -> None:
    def busy(_item: Item) -> None:
        raise Unavailable("429", retry_after=asked)  # what a header says is often handed on as it is

    bench.insert(1)
    sending = bench.send(spec(Single(busy)))
    assert sending.failed == []
    assert sending.unreachable["receiver"].retry_after is None


def test_a_batch_for_which_it_is_raised_is_not_halved(bench: Bench) -> None:
    ids = bench.insert(*range(8))
    transport = Batches(raises(ids[3]))
    bench.send(spec(transport))
    assert transport.calls == [ids]


def test_of_a_batch_each_item_has_its_own_answer(bench: Bench) -> None:
    ids = bench.insert(1, 2, 3)
    answers: dict[int, Any] = {ids[0]: None, ids[1]: GONE, ids[2]: Failure("no")}
    sending = bench.send(spec(Batches(lambda item: answers[item.id])))
    assert sending.delivered == ids[:1]
    assert [item.id for item, _, _ in sending.failed] == ids[2:]
    assert sending.unreachable == {"receiver": GONE}


def test_one_by_one_nothing_more_is_tried_through_that_transport(bench: Bench) -> None:
    ids = bench.insert(1, 2, 3)
    transport = Single(raises(*ids))
    assert bench.send(spec(transport)).delivered == []
    assert transport.ids == ids[:1]


@pytest.mark.parametrize("order", [StrictOrder.KEY, StrictOrder.BUCKET])
def test_under_strict_order_no_further_wave_goes_to_it(bench: Bench, order: StrictOrder) -> None:
    ids = bench.insert(0, 0, 4)
    transport = Batches(raises(ids[0]))
    bench.send(spec(transport), strict_order=order)
    assert len(transport.calls) == 1


@pytest.mark.parametrize("kind", [Single, Batches])
def test_other_transports_go_on_but_for_followers_of_the_same_key(bench: Bench, kind: Any) -> None:
    first = bench.insert(1, event_name="paid")[0]
    follower = bench.insert(1, event_name="sent")[0]
    other = bench.insert(2, event_name="sent")[0]
    working = kind()
    sending = bench.send(
        spec(kind(raises(first)), name="broken", event_name="paid"), spec(working, name="working", event_name="sent")
    )
    assert working.ids == [other]
    assert sending.delivered == [other]
    assert follower not in working.ids
    assert (set(sending.reached), set(sending.unreachable)) == ({"working"}, {"broken"})


def test_what_a_handler_wrote_before_another_transport_was_out_of_reach_is_undone(bench: Bench) -> None:
    bench.insert(1)

    class Booking:
        def __call__(self, item: Item, payload: Any, *, session: Any) -> None:
            session.add(item.id)

    bench.send(spec(Booking()), spec(Single(lambda _item: GONE), name="broken"))
    assert bench.store.effects == []


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_row_stays_as_it_was_even_without_retries_left(bench: Bench) -> None:
    (item_id,) = bench.insert(1)
    before = bench.row(item_id)
    report = bench.deliver(spec(Batches(raises(item_id))))
    assert bench.row(item_id) == before
    assert (report.progressed, report.unreachable) == (False, {"receiver": GONE})
    assert report.exhausted.isdisjoint({before.bucket})
    assert bench.tracked == []


def test_what_did_get_through_is_recorded(bench: Bench) -> None:
    ids = bench.insert(1, 2)
    report = bench.deliver(spec(Batches(returns(ids[1]))))
    assert [bench.row(each).status for each in ids] == [2, 0]
    assert report.progressed


# ── readiness ────────────────────────────────────────────────────────────────────────────────────────


class Ready:
    """A worker's health, and the outages it is told of."""

    def __init__(self, clock: ManualClock, **options: Any) -> None:
        self.health = Health(clock=clock, checks={}, **options)
        self.health.loop("processor-0", limit=timedelta(days=1))
        self.outages = Outages(
            observer=NullObserver(), error_tracker=lambda *_a, **_c: None, clock=clock, missing=self.health.missing
        )

    def reasons(self) -> Sequence[str]:
        return self.health.ready().reasons


def test_a_worker_whose_transport_reaches_nobody_is_alive_and_not_ready_until_it_does() -> None:
    worker = Ready(ManualClock())
    worker.outages.failed("transport kafka of orders", GONE, needed=True)
    assert worker.reasons() == ("transport kafka of orders: nobody is there",)
    assert worker.health.alive().ok
    worker.outages.worked("transport kafka of orders")
    assert worker.reasons() == ()


def test_an_outage_of_what_is_not_needed_leaves_the_worker_ready() -> None:
    worker = Ready(ManualClock())
    worker.outages.failed("box orders", GONE)
    assert worker.reasons() == ()


def test_a_word_that_nobody_repeats_is_not_believed_for_ever() -> None:
    clock = ManualClock()
    worker = Ready(clock)
    worker.outages.failed("transport kafka of orders", GONE, needed=True)
    clock.advance(timedelta(seconds=MISSING_FOR - 1))
    worker.outages.failed("transport kafka of orders", GONE, needed=True)
    clock.advance(timedelta(seconds=MISSING_FOR - 1))
    assert worker.reasons() != ()
    clock.advance(timedelta(seconds=2))
    assert worker.reasons() == ()


def test_a_parent_is_not_ready_while_a_child_reaches_nobody(tmp_path: Path) -> None:
    clock = ManualClock()
    ledgers = ProcessLedgers(tmp_path)
    ledger = Ledger(ledgers.path("1"))
    child = Ready(clock, publish=publisher(ledger), publish_missing=missing_publisher(ledger))
    parent = Ready(clock, others=ChildProcesses(ledgers, expected=lambda: ["1"]))
    child.outages.failed("transport kafka of orders", GONE, needed=True)
    assert parent.reasons() == ("1: transport kafka of orders is out of reach",)
    assert parent.health.alive().ok
    child.outages.worked("transport kafka of orders")
    assert parent.reasons() == ()
    ledger.close()


def test_who_waits_longer_than_announced_is_not_ready_nor_is_its_parent(tmp_path: Path) -> None:
    clock = ManualClock()
    ledgers = ProcessLedgers(tmp_path)
    ledger = Ledger(ledgers.path("1"))
    child = Ready(clock, publish=publisher(ledger), publish_missing=missing_publisher(ledger))
    parent = Ready(clock, others=ChildProcesses(ledgers, expected=lambda: ["1"]))
    child.health.missing("kafka", "no answer", after=5.0)
    clock.advance(timedelta(seconds=4))
    assert child.reasons() == parent.reasons() == ()
    clock.advance(timedelta(seconds=1))
    assert (child.reasons(), parent.reasons()) == (("kafka: no answer",), ("1: kafka is out of reach",))
    child.health.missing("kafka", None, after=5.0)
    assert child.reasons() == parent.reasons() == ()
    ledger.close()


class Heard:
    """Observes outages."""

    def __init__(self) -> None:
        self.outages: list[tuple[type, str]] = []

    def see(self, event: Event) -> None:
        if isinstance(event, OutageBegan | OutageEnded):
            self.outages.append((type(event), event.what))


def test_an_outage_of_the_middlewares_ends_when_an_item_has_come_through_them() -> None:
    clock, box, heard = ManualClock(), make_box(), Heard()
    outages = Outages(observer=heard, error_tracker=lambda *_, **__: None, clock=clock)
    follow_up = FollowUp(schedule=Schedule([box], partitions=1, clock=clock), outages=outages, clock=clock)
    away = {MIDDLEWARE: Unavailable("the directory is down")}
    for _ in range(2):
        follow_up.batch(box, Report(claimed=1, unreachable=away))
        follow_up.batch(box, Report(claimed=1, unreachable=away, reached=["kafka"]))
        follow_up.batch(box, Report(claimed=1, reached=["kafka"]))
    what = f"the middlewares of {box.name}"
    assert heard.outages == [(OutageBegan, what), (OutageEnded, what)] * 2


def test_a_wait_for_locked_rows_ends_when_they_are_met_no_more() -> None:
    """Whoever had locked them may have deleted them, or another worker has their bucket."""
    clock, box, heard = ManualClock(), make_box(), Heard()
    outages = Outages(observer=heard, error_tracker=lambda *_, **__: None, clock=clock)
    follow_up = FollowUp(schedule=Schedule([box], partitions=1, clock=clock), outages=outages, clock=clock)
    what = f"claiming locked rows of {box.name}"
    for told in ([(OutageBegan, what)], [(OutageBegan, what), (OutageEnded, what), (OutageBegan, what)]):
        for _ in range(2):
            follow_up.batch(box, Report(claimed=0, locked=frozenset({3}), refused=frozenset({3})))
        for _ in range(2):
            follow_up.forget_locks()
            assert heard.outages == told
            clock.advance(timedelta(seconds=31))
        follow_up.forget_locks()
        assert heard.outages == [*told, (OutageEnded, what)]
