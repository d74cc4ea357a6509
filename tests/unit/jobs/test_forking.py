"""What a handler forks ends where the handler does. In a process of its own, for a fault would go on with the tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKS = """
import os, sys
from boxengine.engine.jobs.interrupting import interruptible
from boxengine.engine.jobs.ways import InThread

statuses = []

class Run:
    def begin(self, _interrupt): ...
    def leave(self): ...

def handler(_job):
    child = os.fork()
    if child:
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return "parent"
    {child}

print(InThread(handler, interruptible).call(Run(), None), statuses)
"""


@pytest.mark.parametrize(
    ("child", "status"), [("return 'child'", 0), ("sys.exit()", 0), ("sys.exit(3)", 1), ("raise ValueError('lost')", 1)]
)
def test_a_forked_process_ends_where_its_handler_does(child: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS.replace("{child}", child)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"parent [{status}]\n"
    assert ("lost" in done.stderr) == ("lost" in child)
