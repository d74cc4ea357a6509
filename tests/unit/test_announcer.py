"""The announcer sends what many commits have left with it, together, and never keeps one of them waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from boxengine.adapters.announcer import MOST, Announcer
from boxengine.errors import QueueUnavailable
from boxengine.ports import Signal
from tests.eventually import eventually


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
    announcer = Announcer(server.send)
    announcer.tell([Signal("a", 1)])
    assert server.entered.wait(60)
    for bucket in (2, 3, 2, 2):
        announcer.tell([Signal("a", bucket)])
    server.go.set()
    eventually(lambda: len(server.sent) == 2)
    assert server.sent == [[Signal("a", 1)], [Signal("a", 2), Signal("a", 3)]]


def test_of_a_flood_for_a_server_that_is_slow_only_the_boxes_are_remembered() -> None:
    server = Server()
    announcer = Announcer(server.send)
    announcer.tell([Signal("a", 1)])
    assert server.entered.wait(60)
    announcer.tell([Signal("b" if bucket % 2 else "a", bucket) for bucket in range(MOST + 1)])
    server.go.set()
    eventually(lambda: len(server.sent) == 2)
    assert server.sent[1] == [Signal("a", None), Signal("b", None)]


def test_after_an_outage_it_sends_again() -> None:
    sent: list[list[Signal]] = []

    def send(signals: list[Signal]) -> None:
        sent.append(signals)
        if len(sent) == 1:
            raise QueueUnavailable("down")

    announcer = Announcer(send)
    for number in (1, 2):
        announcer.tell([Signal("a", number)])
        eventually(lambda number=number: len(sent) == number)  # type: ignore[misc]
    assert sent == [[Signal("a", 1)], [Signal("a", 2)]]


def test_a_program_that_ends_right_after_its_commit_loses_no_hint() -> None:
    program = (
        "import time\n"
        "from boxengine.adapters.announcer import Announcer\n"
        "from boxengine.ports import Signal\n"
        "def send(signals):\n"
        "    time.sleep(0.05)\n"
        "    print(signals[0].encode(), flush=True)\n"
        "Announcer(send).tell([Signal('a', 1)])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "a:1\n"


def test_a_forked_process_sends_though_its_parents_thread_was_in_the_middle_of_it() -> None:
    server = Server()
    announcer = Announcer(server.send)
    announcer.tell([Signal("a", 1)])
    assert server.entered.wait(60)
    reading, writing = os.pipe()
    announcer._process = -1  # as a fork would find it; forking a process with threads is not for a test suite

    def write(signals: list[Signal]) -> None:
        os.write(writing, signals[0].encode().encode())

    announcer._send = write
    announcer.tell([Signal("a", 2)])
    assert os.read(reading, 10) == b"a:2"
    server.go.set()
