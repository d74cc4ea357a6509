"""``boxengine servers`` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from tests.eventually import eventually
from tests.servers.postgres import PostgresFromWheel
from tests.servers.promised import promised_servers, require


@contextmanager
def servers(folder: Path) -> Iterator[tuple[str, str]]:
    """The addresses that the command tells, while it runs."""
    said = folder / "said"
    with said.open("w") as output:
        process = subprocess.Popen([sys.executable, "-m", "boxengine", "servers"], cwd=folder, stdout=output)
    try:
        eventually(lambda: "REDIS_URL" in said.read_text())
        told = dict(line.removeprefix("export ").split("=", 1) for line in said.read_text().splitlines())
        yield told["DATABASE_URL"], told["REDIS_URL"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()


def test_a_second_one_in_the_folder_tells_the_addresses_of_the_first(tmp_path: Path) -> None:
    require(PostgresFromWheel().offer(), promised_servers(os.environ))
    with servers(tmp_path) as (database, cache):
        command = [sys.executable, "-m", "boxengine", "servers"]
        second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert second.stdout == f"export DATABASE_URL={database}\nexport REDIS_URL={cache}\n"
    assert second.stderr == (
        "boxengine: the servers with their data in .boxengine run already, at the addresses above; stop them where they were "
        "started, or name another --folder\n"
    )
    assert second.returncode == 1


def test_data_and_addresses_survive_a_restart(tmp_path: Path) -> None:
    require(PostgresFromWheel().offer(), promised_servers(os.environ))
    with servers(tmp_path) as first:
        with psycopg.connect(first[0].replace("+psycopg", "")) as database:
            database.execute("CREATE TABLE kept AS SELECT 7 AS number")
        with redis.Redis.from_url(first[1]) as valkey:
            valkey.set("kept", 8)
    with servers(tmp_path) as second:
        assert second == first
        with psycopg.connect(second[0].replace("+psycopg", "")) as database:
            assert database.execute("SELECT number FROM kept").fetchone() == (7,)
        with redis.Redis.from_url(second[1]) as valkey:
            assert valkey.get("kept") == b"8"
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(first[0].replace("+psycopg", ""))
