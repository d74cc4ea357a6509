"""What happens to PostgreSQL, and what it does to its clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tests.chaos.fault import Fault
from tests.chaos.scene import Scene
from tests.chaos.stage import Stage

# A trigger on every box's table does what the only row of chaos_mode says: nothing, dawdle, or refuse to write.
_MODE = """
CREATE TABLE chaos_mode (mode text NOT NULL);
INSERT INTO chaos_mode VALUES ('well');
CREATE FUNCTION chaos() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  CASE (SELECT mode FROM chaos_mode)
    WHEN 'slow' THEN IF random() < 0.5 THEN PERFORM pg_sleep(1); END IF;
    WHEN 'full' THEN RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    ELSE NULL;
  END CASE;
  RETURN NULL;
END $$
"""


def crash(stage: Scene) -> None:
    stage.wait_for_work()
    with stage.injecting():
        stage.servers.postgres.crash()
        stage.pause(0.0, 2.0)
        stage.servers.postgres.start()
    stage.wait_for_recovery()


def _restart(stage: Stage) -> None:
    stage.wait_for_work()
    with stage.injecting():
        stage.servers.postgres.stop()
        stage.pause(0.0, 2.0)
        stage.servers.postgres.start()
    stage.wait_for_recovery()


def terminate(stage: Scene) -> None:
    stage.wait_for_work()
    with stage.injecting(), stage.sql() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'boxengine'"
        )
    stage.wait_for_recovery()


@contextmanager
def _with_mode(stage: Stage) -> Iterator[None]:
    with stage.sql() as connection:
        connection.execute(_MODE.encode())
        for table in stage.written_tables():
            connection.execute(
                f"CREATE TRIGGER chaos BEFORE INSERT OR UPDATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION chaos()".encode()
            )
    yield


def _time_out(stage: Stage) -> None:
    """Statements that write take longer than the server allows: polls and reads work, outcomes cannot be recorded."""
    stage.wait_for_work()
    with stage.injecting(), _mode(stage, "slow"), _setting(stage, "statement_timeout", "100ms"):
        stage.pause(2.0, 4.0)
    stage.wait_for_recovery()


def _fill_the_disk(stage: Stage) -> None:
    """Nothing can be written for a while: by turns for want of space, and because the server has become read-only."""
    stage.wait_for_work()
    refusing = (
        _mode(stage, "full")
        if len(stage.injections) % 2 == 0
        else _setting(stage, "default_transaction_read_only", "on")
    )
    with stage.injecting(), refusing:
        stage.pause(2.0, 5.0)
    stage.wait_for_recovery()


@contextmanager
def _mode(stage: Stage, mode: str) -> Iterator[None]:
    with stage.sql() as connection:
        connection.execute("UPDATE chaos_mode SET mode = %s", (mode,))
        try:
            yield
        finally:
            connection.execute("UPDATE chaos_mode SET mode = 'well'")


@contextmanager
def _setting(stage: Stage, name: str, value: str) -> Iterator[None]:
    """A setting of the whole server, in force for running sessions too."""
    setting = sql.Identifier(name)
    with stage.sql() as connection:
        _configure(connection, sql.SQL("ALTER SYSTEM SET {} = {}").format(setting, value))
        try:
            yield
        finally:
            _configure(connection, sql.SQL("ALTER SYSTEM RESET {}").format(setting))


def _configure(connection: psycopg.Connection, statement: sql.Composed) -> None:
    connection.execute(statement)
    connection.execute("SELECT pg_reload_conf()")


FAULTS = {
    "postgres-immediate": Fault(inject=crash, times=5, repeats=True, note="pg_ctl stop -m immediate, start"),
    "postgres-restart": Fault(inject=_restart, times=5, repeats=True, note="pg_ctl stop -m fast, start"),
    "terminate-connections": Fault(inject=terminate, times=10, repeats=True),
    "statement-timeout": Fault(inject=_time_out, times=5, repeats=True, around=_with_mode),
    "disk-full": Fault(inject=_fill_the_disk, times=4, repeats=True, around=_with_mode),
}
