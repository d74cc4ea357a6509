"""What happens to MariaDB, and what it does to its clients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from tests.chaos.database import WORKER
from tests.chaos.fault import Fault
from tests.chaos.scene import Scene
from tests.chaos.stage import ORDERS, Stage

# A trigger for every row that is written does what the only row of chaos_mode says: nothing, dawdle, or refuse.
_MODE = """
BEGIN
  DECLARE mode TEXT DEFAULT (SELECT mode FROM chaos_mode);
  IF mode = 'slow' AND rand() < 0.005 THEN DO sleep(1); END IF;
  IF mode = 'full' THEN
    SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, MESSAGE_TEXT = 'Disk full; waiting for someone to free some space';
  END IF;
END
"""


def crash(stage: Scene) -> None:
    stage.wait_for_work()
    with stage.injecting():
        stage.servers.mariadb.crash()
        stage.pause(0.0, 2.0)
        stage.servers.mariadb.start()
    stage.wait_for_recovery()


def _restart(stage: Stage) -> None:
    stage.wait_for_work()
    with stage.injecting():
        stage.servers.mariadb.stop()
        stage.pause(0.0, 2.0)
        stage.servers.mariadb.start()
    stage.wait_for_recovery()


def _freeze(stage: Stage) -> None:
    """Connections stay open and nothing is answered: shorter and longer than leases and time limits."""
    stage.wait_for_work()
    with stage.injecting():
        stage.servers.mariadb.freeze()
        stage.pause(1.0, 13.0)
        stage.servers.mariadb.thaw()
    stage.wait_for_recovery()


def kill_connections(stage: Scene) -> None:
    stage.wait_for_work()
    with stage.injecting(), stage.session() as connection:
        _end_workers_connections(connection)
    stage.wait_for_recovery()


def _end_workers_connections(connection: Connection) -> None:
    connection.exec_driver_sql(f"KILL USER {WORKER}@'127.0.0.1'")


@contextmanager
def _with_mode(stage: Stage) -> Iterator[None]:
    with stage.session() as connection:
        connection.exec_driver_sql("CREATE TABLE chaos_mode (mode TEXT NOT NULL)")
        connection.exec_driver_sql("INSERT INTO chaos_mode VALUES ('well')")
        for box, moment in itertools.product(ORDERS, ("INSERT", "UPDATE")):
            connection.exec_driver_sql(f"CREATE TRIGGER {box}_{moment} BEFORE {moment} ON {box}s FOR EACH ROW {_MODE}")
    yield


def _time_out(stage: Stage) -> None:
    """Statements that write take longer than the server allows: polls and reads work, outcomes cannot be recorded."""
    stage.wait_for_work()
    with stage.injecting(), _mode(stage, "slow"), _setting(stage, "max_statement_time", "0.1", usual="0"):
        stage.pause(2.0, 4.0)
    stage.wait_for_recovery()


def _fill_the_disk(stage: Stage) -> None:
    """Nothing can be written for a while: by turns for want of space, and because the server has become read-only."""
    stage.wait_for_work()
    refusing = _mode(stage, "full") if len(stage.injections) % 2 == 0 else _setting(stage, "read_only", "1", usual="0")
    with stage.injecting(), refusing:
        stage.pause(2.0, 5.0)
    stage.wait_for_recovery()


def _look_for_long(stage: Stage) -> None:
    """A report reads from one snapshot, and another transaction keeps pending rows locked."""
    stage.wait_for_work()
    with stage.injecting(), stage.session() as report, stage.session() as locks:
        report.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        locks.exec_driver_sql("START TRANSACTION")
        for box in ORDERS:
            report.exec_driver_sql(f"SELECT count(*) FROM {box}s").scalar_one()
            locks.exec_driver_sql(f"SELECT id FROM {box}s WHERE status = 0 LIMIT 20 FOR UPDATE SKIP LOCKED").all()
        stage.pause(3.0, 8.0)
        for transaction in (report, locks):
            transaction.exec_driver_sql("ROLLBACK")
    stage.wait_for_recovery()


@contextmanager
def _mode(stage: Stage, mode: str) -> Iterator[None]:
    with stage.session() as connection:
        connection.exec_driver_sql("UPDATE chaos_mode SET mode = %s", (mode,))
        try:
            yield
        finally:
            connection.exec_driver_sql("UPDATE chaos_mode SET mode = 'well'")


@contextmanager
def _setting(stage: Stage, name: str, value: str, *, usual: str) -> Iterator[None]:
    """A setting of the whole server. Some hold for new connections only, so the workers have to connect anew."""
    with stage.session() as connection:
        connection.exec_driver_sql(f"SET GLOBAL {name} = {value}")
        _end_workers_connections(connection)
        try:
            yield
        finally:
            connection.exec_driver_sql(f"SET GLOBAL {name} = {usual}")
            _end_workers_connections(connection)


FAULTS = {
    "mariadb-kill": Fault(inject=crash, times=5, repeats=True, note="SIGKILL, start"),
    "mariadb-restart": Fault(inject=_restart, times=5, repeats=True, note="SIGTERM, start"),
    "mariadb-freeze": Fault(inject=_freeze, times=4, repeats=True, note="SIGSTOP for 1 to 13 s, SIGCONT"),
    "kill-connections": Fault(inject=kill_connections, times=10, repeats=True, note="KILL USER"),
    "statement-timeout": Fault(inject=_time_out, times=5, repeats=True, around=_with_mode, note="max_statement_time"),
    "disk-full": Fault(inject=_fill_the_disk, times=4, repeats=True, around=_with_mode, note="error 1021, read_only"),
    "long-transaction": Fault(inject=_look_for_long, times=4, note="a snapshot, and locks on pending rows"),
}
