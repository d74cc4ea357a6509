"""``boxengine demo`` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.servers.postgres import PostgresFromWheel
from tests.servers.promised import promised_servers, require

IN_THE_BACKGROUND = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
)
"""Starts its arguments as a shell without job control starts what stands before ``&``."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_stops_the_worker_before_its_servers(
    tmp_path: Path, number: signal.Signals
) -> None:
    require(PostgresFromWheel().offer(), promised_servers(os.environ))
    said = tmp_path / "said"
    demo_command = [sys.executable, "-m", "boxengine", "demo", "--items", "100", "--keep"]
    command = [sys.executable, "-c", IN_THE_BACKGROUND, *demo_command]
    with said.open("wb") as output:
        demo = subprocess.Popen(
            command,
            cwd=tmp_path,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            process_group=0,
        )
    try:
        eventually(lambda: "Still running" in said.read_text())
        log = Path(said.read_text().split(" --config ")[1].split()[0]).with_name("worker.log")
        with log.open() as worker_says:
            os.killpg(demo.pid, number)
            demo.wait(timeout=60)
            told = worker_says.read()
    finally:
        demo.kill()
        demo.wait()
    assert told.splitlines()[-1].endswith("stopped")
    assert "does not work" not in told
    assert not log.exists()
