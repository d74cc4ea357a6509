"""What stops a handler leaves nothing behind in its thread, nor in the interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from contextlib import suppress
from boxengine.engine.jobs.interrupting import interruptible
from boxengine.errors import JobLost

with suppress(JobLost), interruptible() as hit:
    {body}
for _ in range(1000):
    pass
sys.settrace(lambda *_: None)
(lambda: None)()
print("went on")
"""


@pytest.mark.parametrize("body", ["pass", "hit()", "hit(); hit()"])
def test_a_thread_goes_on_unharmed_also_under_a_tracer(body: str) -> None:
    # In a process of its own: a tracer is where an interpreter that was left looking for an error would hang.
    program = PROGRAM.format(body=body)
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("went on\n", "")
