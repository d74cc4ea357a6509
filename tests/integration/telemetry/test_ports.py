"""Two processes of one machine that want the same port."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.project import Project

CONSUMER = """
inbox_items:
  payment_inbox_item:
    transports: {log: {}}
    source: {kafka: {topics: [payments], group: shop, bootstrap_servers: "127.0.0.1:1"}}
"""


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on, as the first of the two would."""
    with socket.create_server(("0.0.0.0", 0)) as listening:
        yield int(listening.getsockname()[1])


@pytest.mark.parametrize("key", ["probes", "metrics"])
@pytest.mark.parametrize("command", [["start"], ["start", "--processes", "2"], ["consume"]])
def test_a_port_that_is_taken_ends_the_command_with_2_and_says_which_and_what_to_do(
    tmp_path: Path, postgres_url: str, redis_url: str, taken: int, command: list[str], key: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more=CONSUMER)
    project.call("db", "create")
    (tmp_path / "ports.yml").write_text(f"{key}: {{enabled: true, port: {taken}}}")
    project.run("--config", "outbox.yml", "--config", "ports.yml", *command, expect=2)
    (line,) = [line for line in project.errors.splitlines() if not line.startswith("{")]
    assert line.startswith(
        f"boxengine: {key}.port: cannot listen on 0.0.0.0:{taken}: [Errno 98] Address already in use"
    )
    assert f"needs another {key}.port: in a second --config FILE, or from the environment" in line
