"""A streaming standby of an embedded PostgreSQL."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg

from boxengine.embedded import EmbeddedPostgres
from boxengine.embedded.account import private_folder, unprivileged_account
from boxengine.embedded.process import ServerNotStarted
from boxengine.embedded.wheels import postgres_installation


def standby_of(primary: EmbeddedPostgres, folder: Path) -> EmbeddedPostgres:
    """A hot standby that follows the primary, not started yet."""
    account = unprivileged_account()
    data = private_folder(folder / "postgres", account=account)
    program = f"{postgres_installation(account)}/bin/pg_basebackup"
    where = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres", "-D", str(data)]
    made = subprocess.run(
        [program, *where, "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd="/",
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=() if account else None,
    )
    if made.returncode != 0:
        raise ServerNotStarted(f"pg_basebackup ended with exit code {made.returncode}:\n{made.stderr}")
    return EmbeddedPostgres(folder, durable=False)


def wait_until_followed(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    """Returns when the standby has everything that the primary has committed."""
    with (
        psycopg.connect(_plain(primary), autocommit=True) as here,
        psycopg.connect(_plain(standby), autocommit=True) as there,
    ):
        row = here.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        while there.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", row).fetchone() != (True,):
            there.execute("SELECT pg_sleep(0.01)")


def cut_off(standby: EmbeddedPostgres) -> None:
    """The standby gets nothing more: what the primary commits once this returns is lost at a failover."""
    with psycopg.connect(_plain(standby), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SELECT count(*) FROM pg_stat_wal_receiver").fetchone() != (0,):
            connection.execute("SELECT pg_sleep(0.01)")


def promote(standby: EmbeddedPostgres) -> None:
    """Promotes the standby; it accepts writes once this returns."""
    with psycopg.connect(_plain(standby), autocommit=True) as connection:
        assert connection.execute("SELECT pg_promote()").fetchone() == (True,)


def _plain(server: EmbeddedPostgres) -> str:
    return server.url().replace("+psycopg", "")
