from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from boxengine.adapters import telemetry
from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.telemetry.ledger import Ledger, ProcessLedgers
from boxengine.adapters.telemetry.progress import ChildProcesses, publisher
from boxengine.engine.running.health import Health, HealthVerdict
from boxengine.errors import StoreUnavailable
from tests.unit.meter import Meter

LIMIT = timedelta(seconds=60)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Server:
    """Answers, refuses or hangs, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()

    def ping(self) -> None:
        self.asked += 1
        self.may_answer.wait()
        if self.error:
            raise self.error


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.may_answer.set()


def test_ready_when_the_loops_run_and_the_servers_answer(clock: ManualClock, server: Server) -> None:
    health = Health(clock=clock, checks={"database": server.ping})
    assert health.ready() == HealthVerdict(ok=False, reasons=("not started",))
    health.loop("poller-1", limit=LIMIT)
    assert health.ready() == HealthVerdict(ok=True)


def test_not_ready_while_a_server_refuses_and_ready_again_after(clock: ManualClock, server: Server) -> None:
    health = Health(clock=clock, checks={"database": server.ping})
    health.loop("poller-1", limit=LIMIT)
    server.error = StoreUnavailable("connection refused\nand twenty lines more")
    assert health.ready().reasons == ("database: connection refused",)
    assert health.alive().ok
    server.error = None
    clock.advance(timedelta(seconds=1.5))
    assert health.ready().ok


def test_an_error_without_a_text_is_named_by_its_type(clock: ManualClock, server: Server) -> None:
    health = Health(clock=clock, checks={"redis": server.ping})
    health.loop("poller-1", limit=LIMIT)
    server.error = TimeoutError()
    assert health.ready().reasons == ("redis: TimeoutError",)


def test_an_answer_holds_for_its_lifetime_however_often_it_is_asked_for(clock: ManualClock, server: Server) -> None:
    health = Health(clock=clock, checks={"database": server.ping}, check_lifetime=timedelta(seconds=1))
    for _ in range(20):
        health.ready()
    assert server.asked == 1
    clock.advance(timedelta(seconds=1.1))
    health.ready()
    assert server.asked == 2


def test_a_server_that_hangs_does_not_hang_the_probe_and_is_asked_once(clock: ManualClock, server: Server) -> None:
    health = Health(clock=clock, checks={"redis": server.ping}, check_timeout=timedelta(milliseconds=20))
    health.loop("poller-1", limit=LIMIT)
    server.may_answer.clear()
    assert health.ready().reasons == ("redis: no answer for 0.0 s",)
    clock.advance(timedelta(seconds=30))
    assert health.ready().reasons == ("redis: no answer for 30.0 s",)
    assert server.asked == 1
    threads = [thread for thread in threading.enumerate() if thread.name == "boxengine-check-redis"]
    assert len(threads) == 1
    assert threads[0].daemon
    server.may_answer.set()
    threads[0].join()
    assert health.ready().ok


def test_a_moment_without_threads_does_not_end_the_checks_of_a_server(
    clock: ManualClock, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    health = Health(clock=clock, checks={"database": server.ping})
    health.loop("poller-1", limit=LIMIT)
    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", refuse)
        assert health.ready().reasons == ("database: not asked: can't start new thread",)
    clock.advance(timedelta(seconds=1.5))
    assert health.ready().ok


def test_the_silence_of_a_server_is_told_once_and_so_is_its_end(clock: ManualClock, server: Server) -> None:
    told: list[str] = []
    patience = timedelta(milliseconds=20)
    health = Health(clock=clock, checks={"database": server.ping}, check_timeout=patience, silent=told.append)
    server.may_answer.clear()
    health.ready()
    clock.advance(timedelta(seconds=9))
    health.ready()
    assert told == []
    clock.advance(timedelta(seconds=2))
    health.ready()
    clock.advance(timedelta(seconds=30))
    health.ready()
    assert told == ["database: no answer for 11.0 s"]
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "boxengine-check-database"]
    server.may_answer.set()
    thread.join()
    assert told == ["database: no answer for 11.0 s", "database: answers again after 41.0 s"]
    clock.advance(timedelta(seconds=30))
    health.ready()
    assert len(told) == 2


def test_a_loop_is_alive_while_it_makes_progress_within_its_limit(clock: ManualClock) -> None:
    health = Health(clock=clock, checks={})
    loop = health.loop("processor-2", limit=LIMIT)
    clock.advance(timedelta(seconds=60))
    assert health.alive().ok
    clock.advance(timedelta(seconds=1))
    assert health.alive().reasons == ("processor-2: no progress for 61 s (limit 60 s)",)
    assert health.ready().reasons == health.alive().reasons
    loop.tick()
    assert health.alive().ok


def test_each_turn_is_told_once_however_often_somebody_asks(clock: ManualClock) -> None:
    told: list[HealthVerdict] = []
    health = Health(clock=clock, checks={}, turned=told.append)
    loop = health.loop("processor-2", limit=LIMIT)
    assert health.alive().ok
    clock.advance(timedelta(seconds=61))
    hangs = (health.ready(), health.alive())[1]
    clock.advance(timedelta(seconds=10))
    assert not health.alive().ok
    loop.tick()
    assert health.alive().ok
    assert health.alive().ok
    assert told == [hangs, HealthVerdict(ok=True)]


def test_one_hung_loop_among_many_is_named(clock: ManualClock) -> None:
    health = Health(clock=clock, checks={})
    loops = [health.loop(f"processor-{number}", limit=LIMIT) for number in range(4)]
    for _ in range(5):
        clock.advance(timedelta(seconds=30))
        for loop in loops[1:]:
            loop.tick()
    assert health.alive().reasons == ("processor-0: no progress for 150 s (limit 60 s)",)


def test_a_loop_that_waits_on_purpose_is_given_that_time_on_top(clock: ManualClock) -> None:
    health = Health(clock=clock, checks={})
    loop = health.loop("retention", limit=LIMIT)
    loop.tick(pause=timedelta(minutes=10))
    clock.advance(timedelta(seconds=660))
    assert health.alive().ok
    clock.advance(timedelta(seconds=1))
    assert not health.alive().ok


def test_a_loop_that_ended_as_it_should_is_not_missed(clock: ManualClock) -> None:
    health = Health(clock=clock, checks={})
    loop = health.loop("poller-1", limit=LIMIT)
    health.forget(loop)
    health.forget(loop)
    clock.advance(timedelta(seconds=1000))
    assert health.alive().ok


def test_a_worker_that_stops_is_not_ready_but_alive(clock: ManualClock) -> None:
    health = Health(clock=clock, checks={})
    health.loop("poller-1", limit=LIMIT)
    health.stopping()
    assert health.ready().reasons == ("stopping",)
    assert health.alive().ok


def test_a_parent_knows_which_loop_of_which_child_hangs(clock: ManualClock, tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path)
    ledger = Ledger(ledgers.path("process 1"))
    expected = ["process 1"]
    parent = Health(clock=clock, checks={}, others=ChildProcesses(ledgers, expected=lambda: expected))
    parent.loop("supervisor", limit=timedelta(days=1))
    assert parent.ready().reasons == ("process 1: not started",)
    child = Health(clock=clock, checks={}, publish=publisher(ledger))
    hung, busy = child.loop("processor-0", limit=LIMIT), child.loop("poller-0", limit=LIMIT)
    assert parent.ready().ok
    clock.advance(timedelta(seconds=61))
    busy.tick()
    assert parent.alive().reasons == ("process 1: processor-0: no progress for 61 s",)
    child.forget(hung)
    assert parent.alive().ok
    clock.advance(timedelta(seconds=61))
    ledger.close()
    assert not parent.alive().ok
    ledgers.retire("process 1")
    assert parent.alive().ok


def test_a_parent_is_not_ready_while_a_process_is_to_be_started(clock: ManualClock, tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path)
    parent = Health(clock=clock, checks={}, others=ChildProcesses(ledgers, expected=lambda: ["1", "2"]))
    parent.loop("supervisor", limit=timedelta(days=1))
    assert parent.ready().reasons == ("1: not started", "2: not started")
    first, second = Ledger(ledgers.path("1")), Ledger(ledgers.path("2"))
    for ledger in (first, second):
        Health(clock=clock, checks={}, publish=publisher(ledger)).loop("poller-0", limit=LIMIT)
    assert parent.ready().ok
    ledgers.retire("2")
    assert parent.ready().reasons == ("2: not started",)
    first.close()
    second.close()


def test_a_parents_probe_does_not_read_its_childrens_metrics(clock: ManualClock, tmp_path: Path) -> None:
    """Of hundreds of boxes there are so many that it took seconds, and an orchestrator waits one."""
    ledgers = ProcessLedgers(tmp_path)
    ledger = Ledger(ledgers.path("1"))
    parent = Health(clock=clock, checks={}, others=ChildProcesses(ledgers, expected=lambda: ["1"]))
    parent.loop("supervisor", limit=timedelta(days=1))
    Health(clock=clock, checks={}, publish=publisher(ledger)).loop("poller-0", limit=LIMIT)

    def instructions() -> int:
        with Meter(Path(telemetry.__file__).parent) as meter:
            assert parent.ready().ok
        return meter.instructions

    instructions()
    few = instructions()
    ledger.add({("outbox_sent", str(number)): 1 for number in range(5000)})
    instructions()
    assert instructions() == few
    ledger.close()
