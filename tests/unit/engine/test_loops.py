"""What keeps a worker going and ends it: threads, pauses, leases, the order of stopping."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.system import SystemClock
from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.health import Health
from boxengine.engine.keeper import LeaseKeeper
from boxengine.engine.middleware import compose
from boxengine.engine.observation import NullObserver
from boxengine.engine.outages import LONGEST_PAUSE, SHORTEST_PAUSE, Outages
from boxengine.engine.pauses import REFRESH, PauseWatch
from boxengine.engine.threads import ThreadGroup
from boxengine.engine.worker import Loop, Worker
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, Hold
from tests.unit.engine.bench import make_box

BOX = make_box()
PATIENCE = 30.0


class Told(NullObserver):
    """Outages and recoveries, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def outage(self, what: str, reason: str) -> None:
        self.events.append(f"outage {what}: {reason}")

    def recovered(self, what: str, *, seconds: float) -> None:
        self.events.append(f"recovered {what} after {seconds:.0f} s")


class Group:
    """A thread group and what it told."""

    def __init__(self, turn: Callable[[], timedelta], *, count: int = 1, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.told = Told()
        self.tracked: list[Any] = []
        self.health = Health(clock=self.clock, checks={})
        self.threads = ThreadGroup(
            "poller",
            turn,
            count=count,
            limit=timedelta(minutes=1),
            health=self.health,
            clock=self.clock,
            outages=Outages(
                observer=self.told,
                error_tracker=lambda error, /, **_context: self.tracked.append(error),
                clock=self.clock,
            ),
            randomness=random.Random(1),
        )

    def stop(self) -> list[str]:
        self.threads.ask_to_stop()
        return self.threads.join(until=self.clock.monotonic() + PATIENCE)


# ── thread groups ────────────────────────────────────────────────────────────────────────────────────


def test_threads_take_turns_until_they_are_stopped() -> None:
    turns = threading.Semaphore(0)

    def turn() -> timedelta:
        turns.release()
        return timedelta(0)

    group = Group(turn, count=3)
    group.threads.start()
    assert all(turns.acquire(timeout=PATIENCE) for _ in range(20))
    assert group.stop() == []


def test_a_group_may_be_started_twice_and_stopped_twice() -> None:
    entered: list[str] = []
    here = threading.Event()

    def turn() -> timedelta:
        entered.append(threading.current_thread().name)
        here.set()
        return timedelta(hours=1)

    group = Group(turn)
    group.threads.start()
    group.threads.start()
    assert here.wait(PATIENCE)
    assert group.stop() == group.stop() == []
    assert entered == ["boxengine-poller-0"]


def test_a_group_may_be_stopped_before_it_is_started_and_then_takes_no_turn() -> None:
    turns: list[int] = []

    def turn() -> timedelta:
        turns.append(1)
        return timedelta(0)

    group = Group(turn)
    assert group.stop() == []
    group.threads.start()
    assert group.stop() == []
    assert turns == []


def test_a_pause_ends_at_once_when_the_group_is_stopped() -> None:
    entered = threading.Event()

    def turn() -> timedelta:
        entered.set()
        return timedelta(days=1)

    group = Group(turn)
    group.threads.start()
    assert entered.wait(PATIENCE)
    assert group.stop() == []


def test_a_thread_that_will_not_stop_is_named() -> None:
    release, entered = threading.Event(), threading.Event()

    def turn() -> timedelta:
        entered.set()
        release.wait(PATIENCE)
        return timedelta(0)

    group = Group(turn)
    group.threads.start()
    assert entered.wait(PATIENCE)
    group.threads.ask_to_stop()
    assert group.threads.join(until=group.clock.monotonic()) == ["boxengine-poller-0"]
    release.set()
    assert group.stop() == []


def test_a_turn_that_raises_is_told_once_and_tried_again_until_it_works() -> None:
    failures = iter([ValueError("one"), ValueError("two"), ValueError("three")])
    worked = threading.Event()

    def turn() -> timedelta:
        error = next(failures, None)
        if error is not None:
            raise error
        worked.set()
        return timedelta(hours=1)

    group = Group(turn)
    group.threads.start()
    assert worked.wait(PATIENCE)
    assert group.stop() == []
    assert group.told.events[0] == "outage poller: one"
    assert [event.split()[0] for event in group.told.events] == ["outage", "recovered"]
    assert [str(error) for error in group.tracked] == ["one"]


def test_a_thread_that_has_ended_is_not_missed_by_the_liveness_probe() -> None:
    entered = threading.Event()

    def turn() -> timedelta:
        entered.set()
        return timedelta(hours=1)

    group = Group(turn)
    group.threads.start()
    assert entered.wait(PATIENCE)
    group.stop()
    assert group.health.alive().ok


# ── outages ──────────────────────────────────────────────────────────────────────────────────────────


def test_pauses_grow_from_the_shortest_to_the_longest_and_start_anew_after_it_worked() -> None:
    told, clock = Told(), ManualClock()
    outages = Outages(observer=told, error_tracker=lambda _error, /, **_context: None, clock=clock)
    pauses = [outages.failed("redis", ValueError("down")) for _ in range(10)]
    assert pauses[:3] == [SHORTEST_PAUSE, 2 * SHORTEST_PAUSE, 4 * SHORTEST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    clock.advance(timedelta(seconds=42))
    outages.worked("redis")
    outages.worked("redis")
    assert outages.failed("redis", ValueError("again")) == SHORTEST_PAUSE
    assert told.events == ["outage redis: down", "recovered redis after 42 s", "outage redis: again"]


def test_each_thing_that_fails_has_an_outage_of_its_own() -> None:
    told = Told()
    outages = Outages(observer=told, error_tracker=lambda _error, /, **_context: None, clock=ManualClock())
    outages.failed("one", ValueError("a"))
    outages.failed("two", ValueError())
    outages.worked("one")
    assert told.events == ["outage one: a", "outage two: ValueError", "recovered one after 0 s"]


def test_work_that_began_before_a_failure_does_not_end_its_outage() -> None:
    told, clock = Told(), ManualClock()
    outages = Outages(observer=told, error_tracker=lambda _error, /, **_context: None, clock=clock)
    began = clock.monotonic()
    clock.advance(timedelta(seconds=1))
    outages.failed("database", ValueError("down"))
    outages.worked("database", began=began)
    assert told.events == ["outage database: down"]
    clock.advance(timedelta(seconds=1))
    outages.worked("database", began=clock.monotonic())
    assert told.events == ["outage database: down", "recovered database after 1 s"]


# ── paused boxes ─────────────────────────────────────────────────────────────────────────────────────


class CountedPauses(MemoryPauses):
    """Counts questions; may be out of reach."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0
        self.down = False

    def polling_enabled(self, boxes: Sequence[Box]) -> Mapping[str, bool]:
        self.questions += 1
        if self.down:
            raise QueueUnavailable("down")
        return super().polling_enabled(boxes)


@pytest.mark.parametrize("auto_disabled", [False, True])
def test_a_box_that_nobody_paused_or_resumed_follows_the_configuration(auto_disabled: bool) -> None:
    watch = PauseWatch(MemoryPauses(), [BOX], clock=ManualClock(), auto_disabled=auto_disabled)
    assert watch.paused(BOX) is auto_disabled


def test_a_pause_is_seen_within_the_refresh_interval_and_costs_one_question_per_interval() -> None:
    pauses, clock = CountedPauses(), ManualClock()
    watch = PauseWatch(pauses, [BOX], clock=clock)
    assert not watch.paused(BOX)
    pauses.set(BOX, polling_enabled=False)
    assert [watch.paused(BOX) for _ in range(10)] == [False] * 10
    assert pauses.questions == 1
    clock.advance(timedelta(seconds=REFRESH))
    assert watch.paused(BOX)


def test_a_resumed_box_is_polled_even_where_boxes_start_paused() -> None:
    pauses = MemoryPauses()
    pauses.set(BOX, polling_enabled=True)
    assert not PauseWatch(pauses, [BOX], clock=ManualClock(), auto_disabled=True).paused(BOX)


def test_with_the_coordinator_out_of_reach_the_last_answer_holds_and_questions_are_few() -> None:
    pauses, clock = CountedPauses(), ManualClock()
    pauses.set(BOX, polling_enabled=False)
    watch = PauseWatch(pauses, [BOX], clock=clock)
    assert watch.paused(BOX)
    pauses.down = True
    clock.advance(timedelta(seconds=REFRESH))
    assert [watch.paused(BOX) for _ in range(10)] == [True] * 10
    assert pauses.questions == 2


# ── leases ───────────────────────────────────────────────────────────────────────────────────────────

TTL = timedelta(seconds=3)


class Keeping:
    """A keeper over a queue in memory, and a hold of two buckets."""

    def __init__(self, *, longest: float = 100.0) -> None:
        self.clock = ManualClock()
        self.queue = MemoryJobQueue(clock=self.clock)
        self.keeper = LeaseKeeper(self.queue, clock=self.clock, ttl=TTL, longest=timedelta(seconds=longest))
        self.queue.push(BOX, [Job(0, 1, (1,)), Job(1, 1, (2,))])
        hold = self.take()
        assert hold is not None
        self.hold = hold

    def take(self) -> Hold | None:
        return self.queue.take([BOX], wait=timedelta(0), ttl=TTL, share=1)

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance(self.keeper.turn())


def test_leases_of_a_hold_in_work_are_renewed_for_as_long_as_it_is_in_work() -> None:
    keeping = Keeping()
    with keeping.keeper.keeping(keeping.hold):
        keeping.turns(30)
        assert keeping.hold.valid_until > keeping.clock.monotonic()
        keeping.queue.push(BOX, [Job(0, 1, (1,))])
        assert keeping.take() is None
    keeping.turns(6)
    assert keeping.hold.valid_until <= keeping.clock.monotonic()


def test_a_hold_in_work_for_longer_than_the_general_timeout_is_given_up() -> None:
    keeping = Keeping(longest=10.0)
    with keeping.keeper.keeping(keeping.hold):
        keeping.turns(20)
        assert keeping.hold.valid_until <= keeping.clock.monotonic()


def test_a_lost_lease_stops_the_sending_of_its_hold() -> None:
    keeping = Keeping()
    with keeping.keeper.keeping(keeping.hold):
        keeping.queue.flush()
        keeping.turns(3)
        assert keeping.hold.buckets == set()
        assert keeping.hold.valid_until <= keeping.clock.monotonic()


def test_a_keeper_bears_the_coordinator_being_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = Keeping()

    def down(*_arguments: Any, **_options: Any) -> frozenset[int]:
        raise QueueUnavailable("down")

    monkeypatch.setattr(keeping.queue, "extend", down)
    with keeping.keeper.keeping(keeping.hold):
        keeping.turns(2)
        assert keeping.hold.buckets == {0, 1}


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────


class Journal:
    """Parts of a worker that write down when they start and stop."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.clock = SystemClock()
        self.health = Health(clock=self.clock, checks={})

    def loop(self, name: str, *, hang: threading.Event | None = None) -> Loop:
        entered = threading.Event()

        def turn() -> timedelta:
            entered.set()
            if hang is not None:
                hang.wait(PATIENCE)
            return timedelta(hours=1)

        group = ThreadGroup(
            name,
            turn,
            limit=timedelta(minutes=1),
            health=self.health,
            clock=self.clock,
            outages=Outages(observer=NullObserver(), error_tracker=lambda *_a, **_c: None, clock=self.clock),
            randomness=random.Random(1),
        )
        start = group.start

        def started() -> None:
            self.lines.append(f"start {name}")
            start()
            assert entered.wait(PATIENCE)

        group.start = started  # type: ignore[method-assign]
        return Loop(group, lambda: self.lines.append(f"stop {name}"))

    def start(self) -> None:
        self.lines.append("start service")

    def stop(self) -> None:
        self.lines.append("stop service")

    def worker(self, *, hang: threading.Event | None = None) -> Worker:
        return Worker(
            sources=[self.loop("poller")],
            processors=[self.loop("processor", hang=hang)],
            housekeeping=[self.loop("keeper")],
            services=[self],
            close=[lambda: self.lines.append("close")],
            health=self.health,
            clock=self.clock,
        )


STOPPED = ["stop poller", "stop processor", "stop keeper", "stop service", "close"]


def test_a_worker_starts_from_the_end_of_the_journey_and_stops_from_its_beginning() -> None:
    journal = Journal()
    worker = journal.worker()
    worker.start()
    assert journal.lines == ["start service", "start keeper", "start processor", "start poller"]
    journal.lines.clear()
    assert worker.stop(within=timedelta(seconds=PATIENCE)) == []
    assert journal.lines == STOPPED


def test_a_worker_may_be_stopped_twice() -> None:
    journal = Journal()
    worker = journal.worker()
    worker.start()
    worker.stop(within=timedelta(seconds=PATIENCE))
    journal.lines.clear()
    assert worker.stop(within=timedelta(seconds=PATIENCE)) == []
    assert journal.lines == []


def test_a_worker_may_be_stopped_before_it_is_started() -> None:
    journal = Journal()
    assert journal.worker().stop(within=timedelta(seconds=PATIENCE)) == []
    assert journal.lines == STOPPED


def test_a_worker_names_the_thread_that_hangs_and_keeps_its_connections_open() -> None:
    journal, hang = Journal(), threading.Event()
    worker = journal.worker(hang=hang)
    worker.start()
    assert worker.stop(within=timedelta(seconds=0.1)) == ["boxengine-processor-0"]
    assert "close" not in journal.lines
    hang.set()


def test_a_worker_that_stops_is_alive_but_not_ready() -> None:
    journal = Journal()
    worker = journal.worker()
    worker.start()
    assert journal.health.ready().ok
    worker.stop(within=timedelta(seconds=PATIENCE))
    assert journal.health.alive().ok
    assert journal.health.ready().reasons == ("stopping",)


# ── middlewares ──────────────────────────────────────────────────────────────────────────────────────


def test_no_middlewares_cost_nothing() -> None:
    def innermost() -> None: ...

    assert compose((), innermost) is innermost


def test_the_first_middleware_is_outermost_and_its_result_is_the_result() -> None:
    def around(name: str) -> Any:
        def middleware(subject: str, call_next: Callable[[], str]) -> str:
            return f"{name}({call_next()})"

        return middleware

    assert compose([around("a"), around("b")], lambda subject: subject)("x") == "a(b(x))"


def test_create_middlewares_get_model_and_attributes_and_may_not_call_on() -> None:
    def refuse(model: str, attributes: dict[str, int], call_next: Callable[[], int]) -> int:
        return attributes["id"]

    assert compose([refuse], lambda _model, _attributes: 1 / 0)("model", {"id": 5}) == 5


def test_a_middleware_that_calls_on_twice_does_the_work_twice() -> None:
    calls: list[str] = []

    def twice(_subject: str, call_next: Callable[[], None]) -> None:
        call_next()
        call_next()

    compose([twice], calls.append)("x")
    assert calls == ["x", "x"]
