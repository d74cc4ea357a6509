from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from boxengine.adapters.telemetry.ledger import Ledger, ProcessLedgers, Reading


def test_amounts_add_up_and_values_replace() -> None:
    ledger = Ledger()
    ledger.add({("sent", "a"): 2, ("sent", "b"): 1})
    ledger.add({("sent", "a"): 3})
    ledger.put({("size",): 7}, stamp=1.0)
    ledger.put({("size",): 4}, stamp=2.0)
    assert ledger.read() == {("sent", "a"): Reading(5, 0), ("sent", "b"): Reading(1, 0), ("size",): Reading(4, 2.0)}
    ledger.close()


@pytest.mark.parametrize("in_file", [True, False])
def test_a_ledger_grows_past_its_first_size_and_keeps_every_number(tmp_path: Path, in_file: bool) -> None:
    ledgers = ProcessLedgers(tmp_path)
    ledger = Ledger(ledgers.path("one") if in_file else None)
    for number in range(3000):
        ledger.add({("family", f"label value {number} — ünïcödé"): number})
    expected = {("family", f"label value {number} — ünïcödé"): Reading(number, 0) for number in range(3000)}
    assert ledger.read() == expected
    if in_file:
        assert ledgers.read() == expected
    ledger.close()


def test_threads_lose_no_amount() -> None:
    ledger = Ledger()

    def count() -> None:
        for _ in range(2000):
            ledger.add({("sent",): 1})

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.read()[("sent",)].value == 8000
    ledger.close()


def test_processes_sum_their_amounts_and_the_latest_value_is_believed(tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path)
    one, two = Ledger(ledgers.path("one")), Ledger(ledgers.path("two"))
    one.add({("sent",): 2})
    two.add({("sent",): 3})
    one.put({("size",): 10}, stamp=5.0)
    two.put({("size",): 20}, stamp=4.0)
    assert ledgers.read() == {("sent",): Reading(5, 0), ("size",): Reading(10, 5.0)}
    two.put({("size",): 30}, stamp=6.0)
    assert ledgers.read()[("size",)].value == 30
    one.close()
    two.close()


def test_a_counter_never_goes_back_when_a_process_is_replaced(tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path)
    first = Ledger(ledgers.path("worker-1"))
    first.add({("sent",): 41})
    first.close()
    assert ledgers.read()[("sent",)].value == 41
    ledgers.retire("worker-1")
    assert ledgers.read()[("sent",)].value == 41
    assert list(tmp_path.iterdir()) == []
    successor = Ledger(ledgers.path("worker-1"))
    successor.add({("sent",): 1})
    assert ledgers.read()[("sent",)].value == 42
    ledgers.retire("never started")
    successor.close()


def test_what_a_process_said_of_its_own_state_is_gone_with_it(tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path, passing=["outage"])
    for name, seconds in (("one", 400), ("two", 3)):
        ledger = Ledger(ledgers.path(name))
        ledger.put({("outage", "poller"): seconds, ("last_id",): seconds}, stamp=float(seconds))
        ledger.close()
    ledgers.retire("one")
    assert ledgers.read() == {("outage", "poller"): Reading(3, 3.0), ("last_id",): Reading(400, 400.0)}
    ledgers.retire("two")
    assert ledgers.read() == {("last_id",): Reading(400, 400.0)}


def test_numbers_of_some_names_are_followed_as_they_change_and_come_and_go(tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path)
    one = Ledger(ledgers.path("one"))
    one.add({("sent", "a"): 1})
    one.put({("loop", "poller"): 5}, stamp=1.0)
    assert ledgers.living("loop") == {"one": {("loop", "poller"): Reading(5, 1.0)}}
    two = Ledger(ledgers.path("two"))
    one.add({("sent", str(number)): 1 for number in range(5000)})  # more than the file's first size
    one.put({("loop", "poller"): 6, ("loop", "processor"): 7}, stamp=2.0)
    later = {("loop", "poller"): Reading(6, 2.0), ("loop", "processor"): Reading(7, 2.0)}
    assert ledgers.living("loop") == {"one": later, "two": {}}
    one.put({("missing", "redis"): 8}, stamp=3.0)
    assert ledgers.living("missing") == {"one": {("missing", "redis"): Reading(8, 3.0)}, "two": {}}
    one.close()
    ledgers.retire("one")
    two.put({("loop", "poller"): 9}, stamp=4.0)
    assert ledgers.living("loop") == {"two": {("loop", "poller"): Reading(9, 4.0)}}
    two.close()


def test_what_a_killed_process_counted_is_there(tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path)
    program = (
        "import sys, pathlib\n"
        "from boxengine.adapters.telemetry.ledger import Ledger\n"
        "ledger = Ledger(pathlib.Path(sys.argv[1]))\n"
        "for _ in range(500): ledger.add({('sent', 'a'): 1})\n"
        "print('counted', flush=True)\n"
        "sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(ledgers.path("one"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == b"counted"
        os.kill(child.pid, signal.SIGKILL)
    ledgers.retire("one")
    assert ledgers.read() == {("sent", "a"): Reading(500, 0)}


def test_a_reader_sees_a_growing_ledger_only_ever_go_up(tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path)
    program = (
        "import sys, pathlib\n"
        "from boxengine.adapters.telemetry.ledger import Ledger\n"
        "ledger = Ledger(pathlib.Path(sys.argv[1]))\n"
        "print('open', flush=True)\n"
        "for number in range(20000): ledger.add({('sent', 'x' * (number % 90), str(number // 10)): 1})\n"
        "ledger.close()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(ledgers.path("one"))], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == b"open"
        before = 0.0
        while child.poll() is None:
            readings = ledgers.read()
            total = sum(reading.value for reading in readings.values())
            assert before <= total <= 20000
            assert {key[0] for key in readings} <= {"sent"}
            before = total
    assert child.returncode == 0
    assert sum(reading.value for reading in ledgers.read().values()) == 20000


def test_the_length_of_a_growing_ledger_is_never_seen_shorter(tmp_path: Path) -> None:
    """The parent would take that for a process without numbers, and Prometheus for counters that begin anew."""
    program = (
        "import sys, pathlib\n"
        "from boxengine.adapters.telemetry.ledger import Ledger\n"
        "ledger = Ledger(pathlib.Path(sys.argv[1]))\n"
        "print('open', flush=True)\n"
        "for number in range(100_000): ledger.add({('sent', str(number)): 1})\n"
        "ledger.close()\n"
    )
    path = tmp_path / "one.ledger"
    child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == b"open"
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ) as memory,
            memoryview(memory).cast("Q") as length,
        ):
            before = 0
            while child.poll() is None:
                seen = [before, *(length[0] for _ in range(10_000))]
                shorter = [later for earlier, later in pairwise(seen) if later < earlier]
                assert not shorter
                before = seen[-1]
    assert child.returncode == 0


FULL = """
import json, logging, pathlib, subprocess, sys
from boxengine.adapters.telemetry.ledger import Ledger, ProcessLedgers
logging.basicConfig(format="%(message)s")
folder = pathlib.Path(sys.argv[1])
def count(numbers):
    for number in numbers:
        ledger.add({("family", f"{number:05}"): 1})
    read = ProcessLedgers(folder).read()
    assert read == ledger.read() and all(each.value == 1 for each in read.values()), "the same numbers, each by itself"
    return len(read)
ledger = Ledger(folder / "1.ledger")
ledger.add({("abcd",): 1})  # so that a later entry is where those without room have counted
before = count(range(100))
full = count(range(100, 5000))
subprocess.run(["mount", "-o", "remount,size=10m", str(folder)], check=True)
print(json.dumps([before, full, count(range(5000, 10_000))]))
"""


def in_a_full_folder(folder: Path, size: str, program: str) -> subprocess.CompletedProcess[str]:
    """The program, with the name of a folder that has only so much room; skips where nobody may make mounts."""
    mount = f'mount -t tmpfs -o size={size} tmpfs "$1" || exit 77; exec "$0" -c "$2" "$1"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, sys.executable, str(folder), program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("this machine has no unshare")
    if done.returncode == 77 or done.stderr.startswith("unshare"):
        pytest.skip(f"this machine lets nobody make mounts of their own: {done.stderr}")
    return done


def test_on_a_full_disk_new_numbers_are_missing_until_there_is_room(tmp_path: Path) -> None:
    done = in_a_full_folder(tmp_path, "100k", FULL)
    assert done.returncode == 0, done.stderr
    before, full, with_room = json.loads(done.stdout)
    assert before == 101
    assert 101 < full < 5000
    assert with_room == full + 5000
    assert done.stderr == f"metrics are incomplete: {tmp_path}/1.ledger: No space left on device\n"


def test_a_disk_without_any_room_is_an_error_at_the_start(tmp_path: Path) -> None:
    program = "from boxengine.adapters.telemetry.ledger import *; import sys; Ledger(Path(sys.argv[1]) / '1')"
    done = in_a_full_folder(tmp_path, "4k", program)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


FORKING = """
import os
from boxengine.adapters.telemetry.ledger import Ledger

ledger = Ledger()
ledger.add({("sent", "orders"): 1})
child = os.fork()
mine = ("sent", "parents" if child else "childs")
for _ in range(2):
    ledger.add({mine: 1, ("sent", "orders"): 1})
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
ledger.add({mine: 1})
print(sorted((*key, reading.value) for key, reading in ledger.read().items()))
"""


def test_processes_that_a_server_forks_do_not_count_in_each_others_numbers() -> None:
    # In a process of its own: one with threads is not forked.
    counted = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    assert counted.stdout.strip() == "[('sent', 'orders', 3.0), ('sent', 'parents', 3.0)]"
