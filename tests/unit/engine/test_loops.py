"""What keeps a worker going and ends it: threads, pauses, leases, the order of stopping."""

from __future__ import annotations

import asyncio
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
from boxengine.engine.delivering.holds.holding import Holding
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.engine.observation import NullObserver
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.running.closing import Closing
from boxengine.engine.running.health import Health
from boxengine.engine.running.lease_length import LeaseLength
from boxengine.engine.running.outages import LONGEST_PAUSE, SHORTEST_PAUSE, Outages
from boxengine.engine.running.threads import ThreadGroup
from boxengine.engine.running.worker import Loop, Worker
from boxengine.engine.timing import TIMING
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, Hold
from boxengine.ports.events import Event, OutageBegan, OutageEnded, OutageLasts
from tests.eventually import eventually
from tests.unit.engine.bench import make_box

BOX = make_box()
PATIENCE = 30.0


class Told:
    """Outages and recoveries, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.lasts: list[float] = []
        """The seconds of outages that are met again."""

    def see(self, event: Event) -> None:
        match event:
            case OutageBegan():
                self.events.append(f"outage {event.what}: {event.reason}")
            case OutageLasts():
                self.lasts.append(event.seconds)
            case OutageEnded():
                how = "recovered" if event.works else "idle"
                self.events.append(f"{how} {event.what} after {event.seconds:.0f} s")
            case _:
                pass


ENDS: list[BaseException] = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
"""What users' code may raise that is no ``Exception``."""


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


def test_a_group_of_which_a_thread_cannot_be_started_is_stopped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = threading.Event()

    def turn() -> timedelta:
        entered.set()
        return timedelta(days=1)

    group = Group(turn, count=3)
    start = threading.Thread.start

    def starts_one(thread: threading.Thread) -> None:
        if thread.name != "boxengine-poller-0":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts_one)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        group.threads.start()
    assert entered.wait(PATIENCE)
    assert group.stop() == []


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


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_no_turn_ends_its_thread_whatever_it_raises(error: BaseException) -> None:
    turns = threading.Semaphore(0)
    threads: set[int] = set()

    def turn() -> timedelta:
        threads.add(threading.get_ident())
        turns.release()
        raise error

    group = Group(turn)
    group.threads.start()
    assert all(turns.acquire(timeout=PATIENCE) for _ in range(3))
    assert len(threads) == 1
    assert group.health.alive().ok
    assert group.stop() == []
    assert [type(each) for each in group.tracked] == [type(error)]
    assert group.told.events[0].startswith("outage poller: ")


def test_a_thread_that_ends_all_the_same_is_told_of_at_once_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = threading.Semaphore(0)
    threads: list[int] = []

    def turn() -> timedelta:
        threads.append(threading.get_ident())
        turns.release()
        raise ValueError("no")

    def broken(event: Event) -> None:
        if len(threads) == 1:
            raise SystemExit("the observer is broken")

    waits = threading.Event()
    monkeypatch.setattr("boxengine.engine.running.threads.RESTART_AFTER", PATIENCE)
    group = Group(turn)
    group.told.see = broken  # type: ignore[method-assign]
    group.threads._stopping = waits
    group.threads.start()
    assert turns.acquire(timeout=PATIENCE)
    eventually(lambda: not group.health.alive().ok)
    assert group.health.alive().reasons == (
        "boxengine-poller-0: its thread has ended: SystemExit: the observer is broken",
    )
    waits.set()  # ends the pause before the restart, and with it the group
    assert group.threads.join(until=group.clock.monotonic() + PATIENCE) == []
    assert group.health.alive().ok


def test_a_thread_that_ended_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = threading.Semaphore(0)
    broken = [SystemExit("the observer is broken")]

    def turn() -> timedelta:
        turns.release()
        raise ValueError("no")

    def see(event: Event) -> None:
        if broken:
            raise broken.pop()

    monkeypatch.setattr("boxengine.engine.running.threads.RESTART_AFTER", 0.0)
    group = Group(turn)
    group.told.see = see  # type: ignore[method-assign]
    group.threads.start()
    assert all(turns.acquire(timeout=PATIENCE) for _ in range(3))
    assert group.health.alive().ok
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


def test_what_has_nothing_left_to_do_ends_its_outage_and_does_not_claim_to_work() -> None:
    told = Told()
    outages = Outages(observer=told, error_tracker=lambda _error, /, **_context: None, clock=ManualClock())
    outages.idle("heartbeats")
    outages.failed("heartbeats", ValueError("down"))
    outages.idle("heartbeats")
    outages.worked("heartbeats")
    assert told.events == ["outage heartbeats: down", "idle heartbeats after 0 s"]


def test_an_outage_that_lasts_is_told_again_at_each_try_with_its_age() -> None:
    told, clock = Told(), ManualClock()
    outages = Outages(observer=told, error_tracker=lambda _error, /, **_context: None, clock=clock)
    for _ in range(3):
        outages.failed("retention of order_item", ValueError("no index"))
        clock.advance(timedelta(minutes=10))
    outages.worked("retention of order_item")
    outages.failed("retention of order_item", ValueError("no index"))
    assert told.lasts == [600, 1200]
    assert [event.split()[0] for event in told.events] == ["outage", "recovered", "outage"]


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
    clock.advance(timedelta(seconds=TIMING.pause_heard))
    assert watch.paused(BOX)


def test_a_resumed_box_is_polled_even_where_boxes_start_paused() -> None:
    pauses = MemoryPauses()
    pauses.set(BOX, polling_enabled=True)
    assert not PauseWatch(pauses, [BOX], clock=ManualClock(), auto_disabled=True).paused(BOX)


def test_who_resumes_a_box_has_it_looked_at_as_soon_as_that_is_heard() -> None:
    pauses, clock = CountedPauses(), ManualClock()
    resumed: list[str] = []
    watch = PauseWatch(pauses, [BOX], clock=clock, resumed=resumed.append)
    for enabled in (False, True):
        pauses.set(BOX, polling_enabled=enabled)
        clock.advance(timedelta(seconds=TIMING.pause_heard))
        assert watch.paused(BOX) is not enabled
    assert resumed == [BOX.name]


def test_before_the_first_answer_every_thread_waits_for_it() -> None:
    """A thread that guessed could send items of a box that was paused before the start."""
    answers: list[bool] = []
    watch: PauseWatch

    class Slow(CountedPauses):
        def polling_enabled(self, boxes: Sequence[Box]) -> Mapping[str, bool]:
            other = threading.Thread(target=lambda: answers.append(watch.paused(BOX)))
            other.start()
            other.join(0.1)
            answers.append(True)  # comes first, unless the other thread did not wait
            return super().polling_enabled(boxes)

    pauses = Slow()
    pauses.set(BOX, polling_enabled=False)
    watch = PauseWatch(pauses, [BOX], clock=ManualClock())
    assert watch.paused(BOX)
    eventually(lambda: len(answers) == 2)
    assert answers == [True, True]


def test_with_the_coordinator_out_of_reach_the_last_answer_holds_and_questions_are_few() -> None:
    pauses, clock = CountedPauses(), ManualClock()
    pauses.set(BOX, polling_enabled=False)
    watch = PauseWatch(pauses, [BOX], clock=clock)
    assert watch.paused(BOX)
    pauses.down = True
    clock.advance(timedelta(seconds=TIMING.pause_heard))
    assert [watch.paused(BOX) for _ in range(10)] == [True] * 10
    assert pauses.questions == 2


# ── leases ───────────────────────────────────────────────────────────────────────────────────────────

TTL = timedelta(seconds=3)


class Keeping:
    """A keeper over a queue in memory, and a hold of two buckets."""

    def __init__(self, *, longest: float = 100.0) -> None:
        self.clock = ManualClock()
        self.queue = MemoryJobQueue(clock=self.clock)
        length = LeaseLength(TTL, round_trips=0, observer=NullObserver())
        self.keeper = LeaseKeeper(self.queue, clock=self.clock, length=length, longest=timedelta(seconds=longest))
        self.queue.push(BOX, [Job(0, 1, (1,)), Job(1, 1, (2,))])
        hold = self.take()
        assert hold is not None
        self.holding = Holding(hold, self.queue)

    def take(self) -> Hold | None:
        return self.queue.take([BOX], wait=timedelta(0), ttl=TTL, share=1)

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance(self.keeper.turn())


def test_leases_of_a_hold_in_work_are_renewed_for_as_long_as_it_is_in_work() -> None:
    keeping = Keeping()
    with keeping.keeper.keeping(keeping.holding):
        keeping.turns(30)
        assert keeping.holding.valid_until > keeping.clock.monotonic()
        keeping.queue.push(BOX, [Job(0, 1, (1,))])
        assert keeping.take() is None
    keeping.turns(6)
    assert keeping.holding.valid_until <= keeping.clock.monotonic()


def test_a_hold_in_work_for_longer_than_the_general_timeout_is_given_up() -> None:
    keeping = Keeping(longest=10.0)
    with keeping.keeper.keeping(keeping.holding):
        keeping.turns(20)
        assert keeping.holding.valid_until <= keeping.clock.monotonic()


def test_a_lost_lease_stops_the_sending_of_its_hold() -> None:
    keeping = Keeping()
    with keeping.keeper.keeping(keeping.holding):
        keeping.queue.flush()
        keeping.turns(3)
        assert keeping.holding.buckets == set()
        assert keeping.holding.valid_until <= keeping.clock.monotonic()


def test_a_keeper_bears_the_coordinator_being_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = Keeping()

    def down(*_arguments: Any, **_options: Any) -> frozenset[int]:
        raise QueueUnavailable("down")

    monkeypatch.setattr(keeping.queue, "extend", down)
    with keeping.keeper.keeping(keeping.holding):
        keeping.turns(2)
        assert keeping.holding.buckets == {0, 1}


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────


class Journal:
    """Parts of a worker that write down when they start and stop."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.told: list[tuple[BaseException | str, str]] = []
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

    def worker(
        self,
        *,
        hang: threading.Event | None = None,
        release: Sequence[Closing] = (),
        close: Sequence[Closing] = (),
    ) -> Worker:
        return Worker(
            sources=[self.loop("poller")],
            processors=[self.loop("processor", hang=hang)],
            housekeeping=[self.loop("keeper")],
            services=[self],
            release=[Closing("leases", lambda: self.lines.append("release")), *release],
            close=[close, [Closing("connections", lambda: self.lines.append("close"))]],
            health=self.health,
            clock=self.clock,
            error_tracker=lambda error, /, **context: self.told.append((error, context["what"])),
            closing_time=timedelta(seconds=0.1) if hang else timedelta(seconds=PATIENCE),
        )


STOPPED = ["stop poller", "stop processor", "stop keeper", "stop service", "release", "close"]


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
    assert "release" in journal.lines, "other workers wait for the leases"
    hang.set()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_cannot_be_closed_is_told_and_keeps_nothing_else_open(error: BaseException) -> None:
    def broken() -> None:
        raise error

    journal = Journal()
    closed: list[str] = []
    worker = journal.worker(close=[Closing("one", broken), Closing("other", lambda: closed.append("other"))])
    worker.start()
    assert worker.stop(within=timedelta(seconds=PATIENCE)) == []
    assert closed == ["other"]
    assert journal.lines[-1] == "close"
    assert journal.told == [(error, "one could not be closed")]


def test_what_does_not_end_closing_is_named_and_keeps_nothing_else_open() -> None:
    journal, hang = Journal(), threading.Event()
    worker = journal.worker(close=[Closing("one", hang.wait)], hang=hang)
    assert worker.stop(within=timedelta(seconds=PATIENCE)) == ["one"]
    assert journal.lines[-1] == "close"
    hang.set()


def test_what_may_be_left_undone_is_told_of_and_not_called_stuck() -> None:
    journal, hang = Journal(), threading.Event()
    worker = journal.worker(release=[Closing("leases", hang.wait, late="Redis is late")], hang=hang)
    assert worker.stop(within=timedelta(seconds=PATIENCE)) == []
    assert journal.told == [("Redis is late", "leases")]
    assert journal.lines[-1] == "close"
    hang.set()


def test_what_fails_because_it_was_given_up_is_not_told_of() -> None:
    journal, given_up, ended = Journal(), threading.Event(), threading.Event()

    def late() -> None:
        threading.current_thread().name = "late"
        given_up.wait(PATIENCE)
        raise ValueError("I/O operation on closed file.")

    worker = journal.worker(release=[Closing("leases", late, late="Redis is late")], hang=ended)
    worker.stop(within=timedelta(seconds=PATIENCE))
    (thread,) = [each for each in threading.enumerate() if each.name == "late"]
    given_up.set()
    thread.join(PATIENCE)
    assert journal.told == [("Redis is late", "leases")]


def test_a_worker_that_stops_is_alive_but_not_ready() -> None:
    journal = Journal()
    worker = journal.worker()
    worker.start()
    assert journal.health.ready().ok
    worker.stop(within=timedelta(seconds=PATIENCE))
    assert journal.health.alive().ok
    assert journal.health.ready().reasons == ("stopping",)
