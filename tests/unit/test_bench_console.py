"""What the console's load benchmark counts: whole statements, every kind of click, and all processes of a database."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.console import processes
from bench.console.processes import Sessions, postmaster_of, whole
from bench.console.statements import executions, statements_in
from bench.console.tabs import KINDS, Items, clicks_of

LOG = """\
app=boxengine pid=7 LOG:  duration: 0.2 ms  parse <unnamed>: SELECT id
\tFROM orders WHERE id = $1
app=boxengine pid=8 LOG:  duration: 1.0 ms  bind _pg3_0: SELECT 8
app=boxengine pid=7 LOG:  duration: 0.3 ms  bind <unnamed>: SELECT id
\tFROM orders WHERE id = $1
app=boxengine pid=7 DETAIL:  Parameters: $1 = '5'
app=boxengine pid=8 LOG:  duration: 2.0 ms  execute _pg3_0: SELECT 8
app=boxengine pid=7 LOG:  duration: 4.0 ms  execute <unnamed>: SELECT id
\tFROM orders WHERE id = $1
app=boxengine pid=7 LOG:  duration: 0.1 ms  bind <unnamed>: SELECT refused
app=boxengine pid=7 LOG:  duration: 0.5 ms  statement: ROLLBACK
app=feeder pid=9 LOG:  checkpoint complete
"""


def test_the_phases_of_one_execution_are_one_statement() -> None:
    found = list(executions(LOG.splitlines(keepends=True)))
    assert found == [
        ("SELECT 8", 3.0),
        ("SELECT id\n\tFROM orders WHERE id = $1", pytest.approx(4.5)),
        ("ROLLBACK", 0.5),
    ]


def test_statements_that_differ_in_numbers_are_counted_together(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(LOG + LOG.replace("SELECT 8", "SELECT 9, 10"))
    found = statements_in(log)
    assert found["SELECT N"] == [3.0, 3.0]
    assert found["SELECT id FROM orders WHERE id = $N"] == [pytest.approx(4.5)] * 2


@pytest.mark.parametrize("tabs", [1, 3, 10, 40])
def test_tabs_together_soon_make_every_kind_of_click(tabs: int) -> None:
    items, clicks = Items([1, 2], [3, 4]), -(-len(KINDS) // tabs) + 1
    made = [kind for number in range(tabs) for kind, *_ in itertools.islice(clicks_of(number, tabs, items), clicks)]
    assert set(made) == set(KINDS)


def test_no_two_rounds_act_on_one_item() -> None:
    items = Items(range(100), range(100, 200))
    paths = [
        path
        for number in range(3)
        for kind, _, path, _ in itertools.islice(clicks_of(number, 3, items), 2 * len(KINDS))
        if kind == "retry one"
    ]
    assert len(set(paths)) == len(paths) >= 5


BUSY = "import time\nwhile time.process_time() < 0.2: pass\n"


def test_a_database_is_all_of_its_processes_also_those_that_have_ended() -> None:
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])\nprint(flush=True)\ninput()"
    with _python(code) as server:
        assert server.stdout is not None
        server.stdout.readline()
        assert whole(server.pid) >= 0.2 - 2 / processes.TICK


def test_a_session_counts_on_after_its_end_and_others_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    titles = dict[int, str]()
    monkeypatch.setattr(processes, "_title", lambda pid: titles.get(pid, ""))
    sessions = Sessions(os.getpid(), "console")
    with _python(f"{BUSY}print(flush=True)\ninput()") as ours, _python(f"{BUSY}print(flush=True)\ninput()") as other:
        titles |= {ours.pid: "postgres: console bench idle", other.pid: "postgres: console_logged bench idle"}
        for each in (ours, other):
            assert each.stdout is not None
            each.stdout.readline()
            assert postmaster_of(each.pid) == os.getpid()
        seconds = sessions.seconds()
        assert seconds >= 0.2 - 2 / processes.TICK
        titles[other.pid] = f"postgres: parallel worker for PID {ours.pid}"
        both = sessions.seconds()
        assert both >= seconds + 0.2 - 2 / processes.TICK
    assert sessions.seconds() >= both


@contextmanager
def _python(code: str) -> Iterator[subprocess.Popen[str]]:
    """A child process, until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.communicate("\n")
