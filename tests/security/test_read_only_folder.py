"""A configuration may lie on a read-only filesystem: nothing is written beside it, nor into the folder of the application."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.project import Project

WATCHED = """
import os, sys

def refuse(event, arguments):
    # As a read-only filesystem answers. Compiled modules Python writes where it can and does without where it cannot.
    if event == "open" and isinstance(arguments[0], str) and "__pycache__" not in arguments[0]:
        flags = arguments[2] if isinstance(arguments[2], int) else 0
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    else:
        writes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")
    if writes and os.path.abspath(arguments[0]).startswith(os.getcwd()):
        raise OSError(30, "Read-only file system", arguments[0])

sys.addaudithook(refuse)
from boxengine.cli import main
main.run(sys.argv[1:])
"""


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_write_nothing_beside_their_configuration(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.call("db", "create")
    run(tmp_path, "create", "order_outbox_item", "--event-key", "1", "--payload", "x")
    assert "works" in run(tmp_path, "config", "check", "--deep")
    assert "order_outbox_item" in run(tmp_path, "status")


def test_the_watch_refuses_what_a_read_only_filesystem_would(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Read-only file system"):
        run(tmp_path, "init")
