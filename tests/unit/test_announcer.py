"""The announcer sends what many commits have left with it, together, and never keeps one of them waiting."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest

from boxengine.adapters.announcer import MOST, Announcer, Pace, TaskAnnouncer, _Gathered
from boxengine.errors import QueueUnavailable
from boxengine.ports import Signal
from tests.eventually import PATIENCE, eventually


class Server:
    """Takes signals once it is let; counts what came together."""

    def __init__(self) -> None:
        self.sent: list[list[Signal]] = []
        self.entered, self.go = threading.Event(), threading.Event()

    def send(self, signals: list[Signal]) -> None:
        self.entered.set()
        assert self.go.wait(60)
        self.sent.append(signals)


def test_commits_do_not_wait_for_a_slow_server_and_go_out_together() -> None:
    server = Server()
    announcer = Announcer(lambda: nullcontext(server.send))
    announcer.tell([Signal("a", 1)])
    assert server.entered.wait(60)
    for bucket in (2, 3, 2, 2):
        announcer.tell([Signal("a", bucket)])
    server.go.set()
    eventually(lambda: len(server.sent) == 2)
    assert server.sent == [[Signal("a", 1)], [Signal("a", 2), Signal("a", 3)]]


def test_of_a_flood_for_a_server_that_is_slow_only_the_boxes_are_remembered() -> None:
    server = Server()
    announcer = Announcer(lambda: nullcontext(server.send))
    announcer.tell([Signal("a", 1)])
    assert server.entered.wait(60)
    announcer.tell([Signal("b" if bucket % 2 else "a", bucket) for bucket in range(MOST + 1)])
    server.go.set()
    eventually(lambda: len(server.sent) == 2)
    assert server.sent[1] == [Signal("a", None), Signal("b", None)]


def test_once_its_thread_has_ended_another_begins() -> None:
    server = Server()
    server.go.set()
    announcer = Announcer(lambda: nullcontext(server.send))
    for bucket in (1, 2):
        announcer.tell([Signal("a", bucket)])
        for thread in threading.enumerate():
            if thread.name == "boxengine-announcer":
                thread.join(60)
    assert server.sent == [[Signal("a", 1)], [Signal("a", 2)]]


def test_what_waits_for_a_server_that_is_slow_takes_no_more_room_however_many_commit() -> None:
    server = Server()
    announcer = Announcer(lambda: nullcontext(server.send))
    announcer.tell([Signal("a", 1)])
    assert server.entered.wait(60)
    for number in range(5 * MOST):
        announcer.tell([Signal("a", number % 3)])
        assert all(len(gathered.waiting) <= MOST for gathered in announcer._gathered.values())
    server.go.set()
    eventually(lambda: len(server.sent) == 2)
    assert set(server.sent[1]) == {Signal("a", bucket) for bucket in range(3)}


def test_nothing_is_lost_between_threads_that_tell_and_join_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxengine.adapters.announcer.MOST", 4)
    monkeypatch.setattr("boxengine.adapters.announcer.SHORTEST", 0)
    monkeypatch.setattr("boxengine.adapters.announcer.LONGEST", 0)
    sent: set[Signal] = set()
    some_came = threading.Condition()

    def send(signals: list[Signal]) -> None:
        with some_came:
            sent.update(signals)
            some_came.notify()

    announcer = Announcer(lambda: nullcontext(send))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(300):
            threads = [threading.Thread(target=_tell_often, args=(announcer, number)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            last = Signal(f"last {number}", None)
            announcer.tell([last])
            with some_came:
                assert some_came.wait_for(lambda last=last: last in sent, timeout=PATIENCE)  # type: ignore[misc]
    finally:
        sys.setswitchinterval(interval)


def _tell_often(announcer: Announcer, number: int) -> None:
    for bucket in range(20):
        announcer.tell([Signal(f"{number}", bucket % 2)])


@pytest.mark.parametrize(("took", "gap"), [(0.0001, 0.01), (0.004, 0.04), (3, 0.4)])
def test_the_longer_sendings_take_the_longer_commits_gather(took: float, gap: float) -> None:
    pace = Pace()
    for _ in range(50):
        pace.sent(took)
    assert pace.gap == pytest.approx(gap)


def test_a_sending_that_the_machine_held_up_hardly_delays_the_next() -> None:
    pace = Pace()
    for _ in range(50):
        pace.sent(0.0005)
    pace.sent(0.01)
    assert pace.gap < 0.03
    for _ in range(5):
        pace.sent(0.0005)
    assert pace.gap < 0.013


def test_after_an_outage_it_sends_again() -> None:
    sent: list[list[Signal]] = []

    def send(signals: list[Signal]) -> None:
        sent.append(signals)
        if len(sent) == 1:
            raise QueueUnavailable("down")

    announcer = Announcer(lambda: nullcontext(send))
    for number in (1, 2):
        announcer.tell([Signal("a", number)])
        eventually(lambda number=number: len(sent) == number)  # type: ignore[misc]
    assert sent == [[Signal("a", 1)], [Signal("a", 2)]]


def test_after_an_error_that_nobody_expected_it_sends_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: told.append(str(arguments.exc_value)))
    sent: list[list[Signal]] = []

    def send(signals: list[Signal]) -> None:
        if not told:
            raise LookupError("tenant")
        sent.append(signals)

    announcer = Announcer(lambda: nullcontext(send))
    announcer.tell([Signal("a", 1)])
    eventually(lambda: told == ["tenant"])
    announcer.tell([Signal("a", 2)])
    eventually(lambda: sent == [[Signal("a", 2)]])


def test_a_sending_that_does_not_end_is_known_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    announcer = Announcer(lambda: nullcontext(server.send))
    announcer.tell([Signal("a", 1)])
    assert server.entered.wait(60)
    monkeypatch.setattr("boxengine.adapters.announcer.HANGING", 3600)
    assert not announcer.hangs()
    monkeypatch.setattr("boxengine.adapters.announcer.HANGING", 0)
    eventually(announcer.hangs)
    server.go.set()
    eventually(lambda: not announcer.hangs())


def test_a_sending_that_fails_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxengine.adapters.announcer.HANGING", 0)
    failed = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _arguments: failed.set())

    def send(_signals: list[Signal]) -> None:
        raise LookupError("tenant")

    announcer = Announcer(lambda: nullcontext(send))
    announcer.tell([Signal("a", 1)])
    assert failed.wait(60)
    assert not announcer.hangs()


def test_on_a_loop_a_sending_that_does_not_end_is_known_until_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxengine.adapters.announcer.HANGING", 0)

    async def run() -> None:
        entered = asyncio.Event()

        async def send(_signals: list[Signal]) -> None:
            entered.set()
            await asyncio.Event().wait()

        announcer = TaskAnnouncer(send)
        announcer.tell([Signal("a", 1)])
        assert not announcer.hangs()
        await entered.wait()
        assert announcer.hangs()
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not announcer.hangs()

    asyncio.run(run())


def test_a_commit_stands_though_no_thread_can_start_and_later_signals_go_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    sent: list[Signal] = []
    announcer = Announcer(lambda: nullcontext(sent.extend))
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        announcer.tell([Signal("a", 1)])
    announcer.tell([Signal("a", 2)])
    eventually(lambda: Signal("a", 2) in sent)


def test_a_program_that_ends_right_after_its_commit_loses_no_hint() -> None:
    program = (
        "import time\n"
        "from contextlib import nullcontext\nfrom boxengine.adapters.announcer import Announcer\n"
        "from boxengine.ports import Signal\n"
        "def send(signals):\n"
        "    time.sleep(0.05)\n"
        "    print(signals[0].encode(), flush=True)\n"
        "Announcer(lambda: nullcontext(send)).tell([Signal('a', 1)])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "a:1\n"


def test_a_forked_process_sends_though_its_parents_thread_was_in_the_middle_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    announcer = Announcer(lambda: nullcontext(server.send))
    announcer.tell([Signal("a", 1)])
    assert server.entered.wait(60)
    announcer._gathered[os.getpid()].lock.acquire()  # as a fork may find it
    reading, writing = os.pipe()

    def write(signals: list[Signal]) -> None:
        os.write(writing, signals[0].encode().encode())

    with monkeypatch.context() as child:  # forking a process with threads is not for a test suite
        child.setattr(os, "getpid", lambda: -1)
        announcer._line = lambda: nullcontext(write)
        announcer.tell([Signal("a", 2)])
        assert os.read(reading, 10) == b"a:2"
    announcer._gathered[os.getpid()].lock.release()
    server.go.set()


def test_threads_that_are_the_first_to_tell_in_a_process_lose_nothing_and_share_one_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = threading.Barrier(2, timeout=60)

    class Late(_Gathered):
        def __init__(self) -> None:
            both.wait()
            super().__init__()

    monkeypatch.setattr("boxengine.adapters.announcer._Gathered", Late)
    server, senders = Server(), set[int]()

    def send(signals: list[Signal]) -> None:
        senders.add(threading.get_ident())
        server.send(signals)

    announcer = Announcer(lambda: nullcontext(send))
    threads = [threading.Thread(target=announcer.tell, args=[[Signal("a", bucket)]]) for bucket in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.go.set()
    eventually(lambda: {signal for sent in server.sent for signal in sent} == {Signal("a", 1), Signal("a", 2)})
    assert len(senders) == 1


def test_a_task_factory_of_the_application_has_no_part_in_it() -> None:
    sent: list[Signal] = []

    async def send(signals: list[Signal]) -> None:
        sent.extend(signals)

    async def run() -> None:
        asyncio.get_running_loop().set_task_factory(lambda loop, coroutine: asyncio.Task(coroutine, loop=loop))
        TaskAnnouncer(send).tell([Signal("a", None)])
        assert sent == [], "the task begins after the commit"
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "boxengine-announcer"))

    asyncio.run(run())
    assert sent == [Signal("a", None)]


def test_loops_of_two_threads_send_what_each_was_told() -> None:
    both = threading.Barrier(2, timeout=60)
    sent: dict[str, list[Signal]] = {"a": [], "b": []}

    async def send(signals: list[Signal]) -> None:
        sent[threading.current_thread().name] += signals

    announcer = TaskAnnouncer(send)

    async def run(name: str) -> None:
        announcer.tell([Signal(name, None)])
        both.wait()  # before either task has begun
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "boxengine-announcer"))

    threads = [threading.Thread(target=lambda name=name: asyncio.run(run(name)), name=name) for name in sent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sent == {name: [Signal(name, None)] for name in sent}
