"""Signals to ``boxengine start``, one process or several, to the process alone or to its whole group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boxengine.adapters.sql.making import schema
from tests.cli.project import Project, Worker
from tests.eventually import eventually

TWO_PROCESSES = ("--processes", "2")


@pytest.fixture
def gated(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    """A project whose transport holds each item until the file ``open`` is there."""
    gate = f"transports.Gate: {{folder: '{tmp_path}'}}"
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports=gate)
    with project.engine() as engine:
        schema.create(engine, [project.boxes().box("order_outbox_item")])
    project.fill(20, keys=20)
    return project


@contextmanager
def at_work(project: Project, *options: str) -> Iterator[Worker]:
    """A worker with an item in hand, all of its processes started."""
    with project.worker(*options) as worker:
        eventually((project.folder / "reached").exists)
        eventually(lambda: len(worker.logged("started: ")) == (2 if options else 1))
        yield worker


def stops_gracefully(project: Project, worker: Worker) -> None:
    """The worker ends with 0 once the items in hand are through: each that was sent is delivered, and was sent once."""
    eventually(lambda: worker.logged("stopping"))
    (project.folder / "open").touch()
    assert worker.process.wait(timeout=60) == 0
    calls = Counter((project.folder / "calls").read_text().split())
    assert set(calls.values()) == {1}
    assert project.counts().get(2, 0) == len(calls)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP])
def test_a_signal_lets_the_items_under_way_finish(gated: Project, number: signal.Signals) -> None:
    with at_work(gated) as worker:
        worker.signal(number)
        stops_gracefully(gated, worker)


def test_a_signal_to_the_parent_alone_lets_the_items_of_its_children_finish(gated: Project) -> None:
    with at_work(gated, *TWO_PROCESSES) as worker:
        worker.signal(signal.SIGTERM)
        stops_gracefully(gated, worker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_stops_as_gracefully_as_one_to_the_parent(
    gated: Project, number: signal.Signals
) -> None:
    with at_work(gated, *TWO_PROCESSES) as worker:
        worker.signal_group(number)
        stops_gracefully(gated, worker)


@pytest.mark.parametrize("whole_group", [False, True], ids=["the process", "the group"])
def test_a_second_signal_ends_all_processes_at_once(
    gated: Project, whole_group: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    with at_work(gated, *TWO_PROCESSES) as worker:
        pids = {worker.process.pid, *(int(line["pid"]) for line in worker.logged("started: "))}
        send = worker.signal_group if whole_group else worker.signal
        send(signal.SIGINT)
        eventually(lambda: worker.logged("stopping"))
        eventually(lambda: worker.ended_after(send, signal.SIGINT))
        assert worker.process.returncode == 128 + signal.SIGINT
        eventually(lambda: not any(map(runs, pids)))
        assert gated.counts() == {0: 20}
        assert list((tmp_path / "temporary").iterdir()) == [], "of the counters nothing is left"


def test_sighup_right_after_sigterm_does_not_count_as_a_second_signal(gated: Project) -> None:
    with at_work(gated) as worker:
        worker.signal(signal.SIGTERM)
        eventually(lambda: worker.logged("stopping"))
        worker.signal(signal.SIGHUP)
        stops_gracefully(gated, worker)


def test_children_that_are_still_starting_heed_a_signal_to_the_group(gated: Project) -> None:
    with gated.worker(*TWO_PROCESSES) as worker:
        eventually(lambda: worker.logged("process 2 started"))
        worker.signal_group(signal.SIGTERM)
        (gated.folder / "open").touch()
        assert worker.process.wait(timeout=60) == 0
    assert "Traceback" not in worker.log.read_text()


def test_a_worker_under_nohup_outlives_its_terminal(gated: Project) -> None:
    (gated.folder / "open").touch()
    program = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, sys.executable, "-m", "boxengine", "start"]
    with subprocess.Popen(command, cwd=gated.folder, stderr=subprocess.DEVNULL) as worker:
        try:
            eventually(lambda: gated.counts() == {2: 20})
            worker.send_signal(signal.SIGHUP)
            gated.fill(1)
            eventually(lambda: gated.counts() == {2: 21})
        finally:
            worker.terminate()
            assert worker.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("number", "at_first"),
    [
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGQUIT, signal.SIG_IGN),
    ],
)
def test_the_first_process_of_a_container_ends_while_it_starts(
    tmp_path: Path, number: signal.Signals, at_first: signal.Handlers
) -> None:
    (tmp_path / "outbox.yml").write_text("app: slow\noutbox_items: {a_item: {transports: {log: {}}}}")
    # In pauses: Python does not notice a signal that comes in the very moment in which it begins to wait without an end.
    slow = f"import time; open({str(tmp_path / 'starting')!r}, 'w')\nwhile True: time.sleep(0.1)"
    (tmp_path / "slow.py").write_text(slow)
    container = ["unshare", "--map-root-user", "--pid", "--fork"]
    if subprocess.run([*container, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make process numbers of their own")
    start = [sys.executable, "-m", "boxengine", "start"]
    begin = f"import os, signal; signal.signal({int(number)}, signal.Handlers({int(at_first)})); os.execv({start[0]!r}, {start})"
    with subprocess.Popen(
        [*container, sys.executable, "-c", begin], cwd=tmp_path, stderr=subprocess.DEVNULL
    ) as outside:
        eventually(lambda: outside.poll() is not None or (tmp_path / "starting").exists())
        (first,) = map(int, Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split())
        try:
            os.kill(first, number)
            assert outside.wait(timeout=20) == 128 + number
        finally:
            if outside.poll() is None:
                os.kill(first, signal.SIGKILL)


def test_a_wrapper_that_repeats_a_signal_at_once_does_not_cut_the_batch_off() -> None:
    """``timeout``, for one, signals the process and then its group."""
    program = """
import signal
from boxengine.cli.signals import stop_request
request = stop_request()
signal.raise_signal(signal.SIGTERM)
signal.raise_signal(signal.SIGTERM)
assert request.wait()
print("stopping in good order")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "stopping in good order\n"


def test_a_process_that_a_handler_forks_ends_by_sigterm() -> None:
    """``multiprocessing`` ends those of a pool with it, and waits for them."""
    program = """
import os, signal
from boxengine.cli.signals import stop_request
request = stop_request()
child = os.fork()
if not child:
    signal.alarm(20)
    while True:
        signal.pause()
os.kill(child, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
assert not request.is_set
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)


def test_a_signal_that_another_thread_receives_is_heeded_too() -> None:
    """The kernel may choose any thread. It wakes that thread only, but Python runs the handler in the main thread."""
    program = """
import signal, threading
from boxengine.cli.signals import stop_request
request = stop_request()
def receive():
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    threading.Event().wait()
threading.Timer(0.2, receive).start()
assert request.wait()
signal.raise_signal(signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == -signal.SIGKILL


def test_sigusr1_logs_what_every_thread_of_every_process_does_and_nothing_dies(gated: Project) -> None:
    with at_work(gated, *TWO_PROCESSES) as worker:
        in_hand = set((gated.folder / "calls").read_text().split())
        worker.signal(signal.SIGUSR1)
        # The parent's own threads, and those of two children.
        eventually(lambda: len(worker.logged("SIGUSR1 received")) == 3)
        eventually(lambda: in_hand <= named(worker))
        (busy, *_) = worker.logged("transport transports.Gate")
        assert busy["message"].startswith("boxengine-processor-")
        assert "transports.py" in busy["message"], "the stack does not reach into the transport"
        eventually(lambda: worker.logged("boxengine-lease-keeper-0, with nothing in hand"))
        worker.signal(signal.SIGTERM)
        stops_gracefully(gated, worker)


def named(worker: Worker) -> set[str]:
    """The items that are said to be in a thread's hand."""
    return {
        line["message"].partition(", item ")[2].partition(":")[0] for line in worker.logged("transport transports.Gate")
    }


# ── a parent that dies or hangs ──────────────────────────────────────────────────────────────────────


def test_children_stop_gracefully_when_their_parent_is_killed(gated: Project) -> None:
    with at_work(gated, *TWO_PROCESSES) as worker:
        worker.signal(signal.SIGKILL)
        stops_without_parent(gated, worker)


def test_children_of_a_stopped_parent_work_on_and_stop_when_it_is_killed(gated: Project) -> None:
    with at_work(gated, *TWO_PROCESSES) as worker:
        worker.signal(signal.SIGSTOP)
        (gated.folder / "open").touch()
        eventually(lambda: gated.counts() == {2: 20})
        worker.signal(signal.SIGKILL)
        stops_without_parent(gated, worker)


def stops_without_parent(project: Project, worker: Worker) -> None:
    children = [int(line["pid"]) for line in worker.logged("started: ")]
    eventually(lambda: len(worker.logged("stopping")) == 2)
    (project.folder / "open").touch()
    eventually(lambda: not any(map(runs, children)))
    assert len(worker.logged("stopped")) == 2
    calls = Counter((project.folder / "calls").read_text().split())
    assert set(calls.values()) == {1}


def runs(pid: int) -> bool:
    """Whether the process is there and no zombie: nobody may have collected an orphan yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
