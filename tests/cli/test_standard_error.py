"""A worker whose log nobody reads, or that has no standard error, delivers and stops as ever."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from boxengine.adapters.sql.making import schema
from tests.cli.project import Project
from tests.eventually import eventually

SET_PIPE_SIZE = 1031
CHATTY = """
import logging

class Chatty:
    def __call__(self, item, payload):
        logging.getLogger("shop").warning("x" * 1000)
"""


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports="chatty.Chatty: {}")
    (tmp_path / "chatty.py").write_text(CHATTY)
    with project.engine() as engine:
        schema.create(engine, [project.boxes().box("order_outbox_item")])
    project.fill(200)
    return project


@pytest.mark.parametrize("options", [[], ["--processes", "2"]], ids=["one process", "two processes"])
def test_a_full_pipe_on_standard_error_stops_neither_delivery_nor_sigterm(project: Project, options: list[str]) -> None:
    unread, full = os.pipe()
    fcntl.fcntl(full, SET_PIPE_SIZE, 4096)
    command = [sys.executable, "-m", "boxengine", "start", *options]
    with subprocess.Popen(command, cwd=project.folder, stderr=full) as worker:
        try:
            eventually(lambda: project.counts() == {2: 200})
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(timeout=60) == 0
        finally:
            worker.kill()
    os.close(unread)
    os.close(full)


def test_a_worker_without_standard_error_delivers_and_stops(project: Project) -> None:
    command = ["/bin/sh", "-c", 'exec "$0" -m boxengine start 2>&-', sys.executable]
    with subprocess.Popen(command, cwd=project.folder) as worker:
        try:
            eventually(lambda: project.counts() == {2: 200})
            # What was closed must not have become a connection, into which errors would then be written.
            assert Path(f"/proc/{worker.pid}/fd/2").readlink() == Path("/dev/null")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(timeout=60) == 0
        finally:
            worker.kill()
