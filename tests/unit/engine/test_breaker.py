"""Circuit breakers: when they open, who may probe, when they close; and what a batch of a box makes of it."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from boxengine.adapters.memory.claims import MemoryClaims
from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.workers import MemoryWorkers
from boxengine.domain.box import Box, BoxType, CircuitPolicy
from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.delivering.batches.batch import PROBE_ROWS
from boxengine.engine.delivering.receivers.breaker import UNTRIED, Breaker, Permit
from boxengine.engine.delivering.receivers.circuits import Circuits
from boxengine.engine.observation import NullObserver
from boxengine.engine.running.heartbeat import Heartbeat
from boxengine.engine.timing import TIMING
from boxengine.errors import QueueUnavailable, StoreUnavailable, Unavailable
from boxengine.ports import OpenCircuit, WorkerInfo
from boxengine.ports.events import CircuitChanged, Event
from tests.unit.engine.bench import Batches, Bench, Single, spec

POLICY = CircuitPolicy(failures=2, pause=timedelta(seconds=1), longest_pause=timedelta(seconds=3))


class Case:
    """A breaker, its clock, and what it told."""

    def __init__(self, **policy: Any) -> None:
        self.clock = ManualClock()
        self.told: list[str | None] = []
        self.breaker = Breaker(
            "orders",
            "kafka",
            policy=CircuitPolicy(**policy) if policy else POLICY,
            clock=self.clock,
            changed=lambda circuit: self.told.append(None if circuit is None else circuit.reason),
        )

    def opened(self) -> Case:
        for _ in range(2):
            self.breaker.unreachable("gone")
        return self

    def pass_seconds(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    case = Case()
    case.breaker.unreachable("gone")
    case.breaker.succeeded()
    case.breaker.unreachable("gone")
    assert (case.breaker.permit(), case.told) == (Permit.GO, [])
    case.breaker.unreachable("gone")
    assert (case.breaker.permit(), case.told) == (Permit.NO, ["gone"])


def test_after_the_pause_one_batch_probes_and_nobody_else() -> None:
    case = Case().opened()
    case.pass_seconds(0.9)
    assert case.breaker.permit() is Permit.NO
    case.pass_seconds(0.1)
    assert [case.breaker.permit() for _ in range(3)] == [Permit.PROBE, Permit.NO, Permit.NO]


def test_a_probe_that_gets_through_closes_it() -> None:
    case = Case().opened()
    case.pass_seconds(1)
    case.breaker.permit()
    case.breaker.succeeded()
    assert (case.breaker.permit(), case.breaker.circuit, case.told) == (Permit.GO, None, ["gone", None])
    case.breaker.unreachable("gone")
    assert case.breaker.permit() is Permit.GO


def test_each_probe_that_fails_doubles_the_pause_up_to_the_longest() -> None:
    case = Case().opened()
    since = case.clock.now()
    for pause in (1, 2, 3, 3):
        circuit = case.breaker.circuit
        assert circuit is not None
        assert (circuit.since, circuit.next_try) == (since, case.clock.now() + timedelta(seconds=pause))
        case.pass_seconds(pause - 0.1)
        assert case.breaker.permit() is Permit.NO
        case.pass_seconds(0.1)
        assert case.breaker.permit() is Permit.PROBE
        case.breaker.unreachable("still gone", probe=True)
    assert case.told == ["gone"]


def test_a_receiver_that_says_for_how_long_is_left_alone_at_once_and_for_so_long_an_hour_at_most() -> None:
    case = Case()
    case.breaker.unreachable("slow down", retry_after=30)
    case.pass_seconds(29)
    assert (case.breaker.permit(), case.told) == (Permit.NO, ["slow down"])
    case.pass_seconds(1)
    assert case.breaker.permit() is Permit.PROBE
    case.breaker.unreachable("slow down", probe=True, retry_after=float("inf"))
    circuit = case.breaker.circuit
    assert circuit is not None
    assert circuit.next_try == case.clock.now() + timedelta(hours=1)
    case.pass_seconds(3600)
    assert case.breaker.permit() is Permit.PROBE


def test_what_a_transport_says_of_the_receivers_wish_reaches_its_circuit() -> None:
    told: list[OpenCircuit | None] = []

    class Watching:
        def see(self, event: Event) -> None:
            assert isinstance(event, CircuitChanged)
            told.append(event.circuit)

    clock = ManualClock()
    circuits = Circuits(Box(name="o", type=BoxType.OUTBOX, table="os"), ["http"], observer=Watching(), clock=clock)
    sent = SimpleNamespace(unreachable={"http": Unavailable("429", retry_after=30)}, failed=[], through=set())
    circuits.leave(circuits.enter(), sent)
    (circuit,) = told
    assert circuit is not None
    assert circuit.next_try == clock.now() + timedelta(seconds=30)


def test_batches_that_were_under_way_when_it_opened_do_not_prolong_the_pause() -> None:
    case = Case().opened()
    for _ in range(5):
        case.breaker.unreachable("gone")
    case.pass_seconds(1)
    assert case.breaker.permit() is Permit.PROBE


def test_a_probe_that_had_nothing_to_send_leaves_it_to_a_batch_after_the_shortest_pause() -> None:
    """Batches that probe are small: one after the other, they would slow the other transports down for as long as it takes."""
    case = Case().opened()
    case.pass_seconds(1)
    case.breaker.permit()
    case.breaker.untried()
    assert case.breaker.permit() is Permit.NO
    case.pass_seconds(1)
    assert case.breaker.permit() is Permit.PROBE


def test_failed_attempts_open_it_only_where_the_policy_says_so() -> None:
    case = Case(failures=1)
    case.breaker.failed(10_000, "422")
    assert case.breaker.permit() is Permit.GO
    case = Case(failed_attempts=5)
    case.breaker.failed(4, "422")
    assert case.breaker.permit() is Permit.GO
    case.breaker.failed(1, "422")
    assert (case.breaker.permit(), case.told) == (Permit.NO, ["422"])


def test_while_a_call_hangs_nobody_probes_however_long_it_takes() -> None:
    case = Case()
    case.breaker.hanging("no answer within 5 s")
    circuit = case.breaker.circuit
    assert circuit is not None
    assert circuit.next_try is None
    case.pass_seconds(3600)
    case.breaker.succeeded()
    assert case.breaker.permit() is Permit.NO
    case.breaker.returned()
    assert case.breaker.permit() is Permit.NO
    case.pass_seconds(1)
    assert case.breaker.permit() is Permit.PROBE


# ── a box's batches ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def bench() -> Bench:
    return Bench(circuit_breaker=POLICY, max_retries=5, backoff=None)


class Broker:
    """An answer: out of reach until it is there."""

    def __init__(self) -> None:
        self.there = False

    def __call__(self, _item: Item) -> None:
        if not self.there:
            raise Unavailable("nobody is there")


@pytest.mark.parametrize("kind", [Single, Batches])
def test_an_open_circuit_costs_neither_a_call_nor_a_look_at_the_database(kind: Any) -> None:
    claims: list[str] = []
    bench = Bench(circuit_breaker=POLICY, fault=claims.append)
    bench.insert(*range(50))
    transport = kind(Broker())
    delivery = bench.delivery(spec(transport))
    for _ in range(2):
        bench.run(delivery)
    calls, looks = len(transport.ids), len(claims)
    report = bench.run(delivery)
    assert (len(transport.ids), len(claims)) == (calls, looks)
    assert (report.claimed, report.progressed, str(report.unreachable["receiver"])) == (0, False, "nobody is there")
    assert [circuit.transport for circuit in delivery.open_circuits()] == ["receiver"]


@pytest.mark.parametrize("kind", [Single, Batches])
def test_a_small_batch_probes_and_then_all_goes_on(bench: Bench, kind: Any) -> None:
    ids = bench.insert(*range(50))
    broker = Broker()
    transport = kind(broker)
    delivery = bench.delivery(spec(transport))
    for _ in range(2):
        bench.run(delivery)
    broker.there = True
    bench.clock.advance(POLICY.pause)
    probe = bench.run(delivery).claimed
    assert 0 < probe <= PROBE_ROWS
    assert bench.run(delivery).claimed == 50 - probe
    assert sorted(set(transport.ids)) == ids
    assert {(row.status, row.errors_count) for row in bench.store.rows(bench.box)} == {(2, 0)}
    assert bench.observer.circuits == [("receiver", True), ("receiver", False)]


@pytest.mark.parametrize("kind", [Single, Batches])
def test_items_of_the_boxes_other_transports_go_out_while_one_is_left_alone(bench: Bench, kind: Any) -> None:
    bench.insert(1, event_name="paid")
    working = kind()
    broken = kind(Broker())
    delivery = bench.delivery(
        spec(broken, name="broken", event_name="paid"), spec(working, name="working", event_name="sent")
    )
    for _ in range(2):
        bench.run(delivery)
    calls = len(broken.ids)
    ids = bench.insert(2, 3, event_name="sent")
    report = bench.run(delivery)
    assert working.ids == ids
    assert len(broken.ids) == calls
    assert set(report.unreachable) == {"broken"}


def test_a_transport_before_one_that_is_left_alone_is_not_given_the_same_items_again_and_again(bench: Bench) -> None:
    bench.insert(1)
    first = Batches()
    delivery = bench.delivery(spec(first, name="first"), spec(Batches(Broker()), name="broken"))
    for _ in range(10):
        bench.run(delivery)
    assert len(first.calls) == POLICY.failures


def test_items_for_two_receivers_that_were_away_at_different_times_go_out_once_both_are_back(bench: Bench) -> None:
    """Each probe of one circuit alone finds its items waiting for the other one."""
    ids = bench.insert(1, 2)
    brokers = {name: Broker() for name in ("first", "second")}
    transports = {name: Batches(broker) for name, broker in brokers.items()}
    delivery = bench.delivery(*(spec(transport, name=name) for name, transport in transports.items()))
    brokers["first"].there = True
    for _ in range(POLICY.failures):
        bench.run(delivery)
    brokers["first"].there = False
    for _ in range(POLICY.failures + 1):
        bench.clock.advance(POLICY.pause)
        bench.run(delivery)
    assert len(delivery.open_circuits()) == 2
    for broker in brokers.values():
        broker.there = True
    bench.clock.advance(timedelta(seconds=1.05))
    for _ in range(100):
        bench.run(delivery)
        bench.clock.advance(timedelta(seconds=0.04))
    assert {(row.id, row.status) for row in bench.store.rows(bench.box)} == {(each, 2) for each in ids}
    assert delivery.open_circuits() == []


def test_poison_items_do_not_open_the_circuit(bench: Bench) -> None:
    bench.insert(1)
    transport = Batches(lambda _item: Failure("no"))
    delivery = bench.delivery(spec(transport))
    for _ in range(5):
        bench.run(delivery)
    assert len(transport.calls) == 5
    assert delivery.open_circuits() == []


def test_a_probe_that_fails_without_a_word_is_not_the_last(bench: Bench) -> None:
    class Mute(Unavailable):
        def __str__(self) -> str:
            raise ValueError("no text")

    def answer(_item: Item) -> None:
        if errors:
            raise errors.pop(0)

    errors = [Unavailable("away"), Unavailable("away"), Mute()]
    bench.insert(1)
    delivery = bench.delivery(spec(Batches(answer)))
    while errors:
        bench.clock.advance(POLICY.longest_pause)
        bench.run(delivery)
    assert "says nothing" in delivery.open_circuits()[0].reason
    bench.clock.advance(POLICY.longest_pause)
    bench.run(delivery)
    assert bench.row(1).status == 2


def test_a_probe_whose_claim_the_database_refuses_is_not_the_last(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.insert(1)
    broker = Broker()
    delivery = bench.delivery(spec(Batches(broker)))
    for _ in range(2):
        bench.run(delivery)
    broker.there = True
    bench.clock.advance(POLICY.pause)
    opened, refused = MemoryClaims.open, iter([True])

    def refused_once(*arguments: Any) -> Any:
        if next(refused, False):
            raise StoreUnavailable("out")
        return opened(*arguments)

    monkeypatch.setattr(MemoryClaims, "open", refused_once)
    with pytest.raises(StoreUnavailable):
        bench.run(delivery)
    bench.run(delivery)
    assert bench.row(1).status == 2


def test_a_circuit_that_no_batch_has_tried_for_long_is_not_told_of_until_one_does() -> None:
    """Another worker may have delivered everything: this one has nothing to try it with."""
    clock = ManualClock()
    box = Box(name="orders", type=BoxType.OUTBOX, table="orders", bucket_size=1, circuit_breaker=POLICY)
    circuits = Circuits(box, ["kafka"], observer=NullObserver(), clock=clock)
    breaker = circuits.breaker("kafka")
    for _ in range(2):
        breaker.unreachable("gone")
    clock.advance(POLICY.pause + timedelta(seconds=UNTRIED - 1))
    assert [circuit.transport for circuit in circuits.open()] == ["kafka"]
    clock.advance(timedelta(seconds=2))
    assert circuits.open() == []
    assert breaker.permit() is Permit.PROBE
    assert [circuit.transport for circuit in circuits.open()] == ["kafka"], "a batch tries it"
    breaker.unreachable("still gone", probe=True)
    assert [circuit.reason for circuit in circuits.open()] == ["still gone"]


def test_a_circuit_whose_call_hangs_is_told_of_however_long() -> None:
    case = Case()
    case.breaker.hanging("no answer")
    case.pass_seconds(10 * UNTRIED)
    assert not case.breaker.forsaken


def test_a_worker_says_in_its_announcement_which_circuits_are_open() -> None:
    clock = ManualClock()
    workers = MemoryWorkers(clock=clock)
    circuit = OpenCircuit(box="orders", transport="kafka", since=clock.now(), next_try=None, reason="gone")
    info = WorkerInfo(id="a", host="h", pid=1, boxes=("orders",), threads=1, started_at=clock.now())
    circuits = [circuit]
    told: list[OpenCircuit] = []
    heartbeat = Heartbeat(workers, info, circuits=lambda: circuits, tell=told.append)
    heartbeat.turn()
    assert told == [circuit]
    assert workers.living()[0].circuits == (circuit,)
    circuits.clear()
    heartbeat.turn()
    assert workers.living()[0].circuits == (), "a circuit that closed is told at once"


def test_a_worker_announces_itself_again_only_after_a_while_or_when_nobody_heard_it() -> None:
    class Deaf(MemoryWorkers):
        deaf, calls = False, 0

        def announce(self, worker: WorkerInfo, *, ttl: timedelta) -> None:
            self.calls += 1
            if self.deaf:
                raise QueueUnavailable("gone")

    workers = Deaf(clock=ManualClock())
    heartbeat = Heartbeat(
        workers, WorkerInfo(id="a", host="h", pid=1, boxes=(), threads=1, started_at=ManualClock().now())
    )
    waited = timedelta(0)
    while waited < timedelta(seconds=TIMING.announced):
        waited += heartbeat.turn()
    assert workers.calls == 1
    workers.deaf = True
    for _ in range(3):
        heartbeat.turn()
    assert workers.calls == 4, "it tries again at each turn until somebody hears it"
