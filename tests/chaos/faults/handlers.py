"""What users' code does to the worker that runs it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.chaos.checker import FAILED
from tests.chaos.database import WORKER
from tests.chaos.fault import Fault
from tests.chaos.recorder import DEADLY, ELSEWHERE, EXIT
from tests.chaos.stage import KEYED, ORDERS, PLAIN, STRICT, Stage
from tests.eventually import eventually

_BUCKET = 3
_PATIENCE = 120.0
"""Seconds for an item that ends workers to be found guilty: after each death leases must run out first."""


def _work_on(stage: Stage) -> None:
    """The transports misbehave by themselves, all the time."""
    stage.wait_for_work()
    with stage.injecting():
        stage.pause(1.0, 3.0)
    stage.wait_for_recovery()


@contextmanager
def _tables_elsewhere(stage: Stage) -> Iterator[None]:
    """Tables of the same names in another schema, with pending rows of which none may ever change."""
    with stage.sql() as connection:
        connection.execute(f"CREATE SCHEMA {ELSEWHERE}".encode())
        for box in ORDERS:
            connection.execute(f"CREATE TABLE {ELSEWHERE}.{box}s (LIKE public.{box}s INCLUDING ALL)".encode())
            connection.execute(
                f"INSERT INTO {ELSEWHERE}.{box}s (id, uuid, event_key, bucket, payload) "
                "SELECT n, gen_random_uuid(), 'k', 0, '0 ' FROM generate_series(1, 20000) AS n".encode()
            )
    yield
    _demand_that_they_are_untouched(stage)


@contextmanager
def _tables_in_another_database(stage: Stage) -> Iterator[None]:
    """The same on MariaDB, where a session changes its database."""
    with stage.session() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {ELSEWHERE}")
        connection.exec_driver_sql(f"GRANT ALL ON {ELSEWHERE}.* TO {WORKER}@'127.0.0.1'")
        for box in ORDERS:
            connection.exec_driver_sql(f"CREATE TABLE {ELSEWHERE}.{box}s LIKE {box}s")
            connection.exec_driver_sql(
                f"INSERT INTO {ELSEWHERE}.{box}s (id, uuid, event_key, bucket, payload) "
                "SELECT seq, uuid(), 'k', 0, '0 ' FROM seq_1_to_20000"
            )
    # Workers go there until the last item is delivered.
    stage.cleanup.callback(stage.servers.database.drop, ELSEWHERE)
    yield
    _demand_that_they_are_untouched(stage)


def _demand_that_they_are_untouched(stage: Stage) -> None:
    with stage.session() as connection:
        for box in ORDERS:
            changed = connection.exec_driver_sql(
                f"SELECT count(*) FROM {ELSEWHERE}.{box}s WHERE status <> 0"
            ).scalar_one()
            if changed:
                raise AssertionError(f"{changed} rows of tables elsewhere were written to")


def _kill_from_within(stage: Stage) -> None:
    """An item that ends every worker that sends it, until it is found guilty and fails."""
    stage.wait_for_work()
    with stage.injecting(), stage.session() as connection:
        inserted = connection.exec_driver_sql(
            f"INSERT INTO {PLAIN}s (uuid, event_key, bucket, payload) "
            f"VALUES (%s, 'deadly', {_BUCKET}, %s) RETURNING id",
            (str(uuid.uuid4()), b"0" + DEADLY),
        ).fetchone()
        assert inserted is not None
        stage.doomed.add((PLAIN, inserted.id))

        def has_failed() -> bool:
            stage.crew.replace_those_that_ended_with(EXIT)
            cursor = connection.exec_driver_sql(f"SELECT status FROM {PLAIN}s WHERE id = %s", tuple(inserted))
            return bool(cursor.scalar_one() == FAILED)

        eventually(has_failed, patience=_PATIENCE, what="the item that ends workers has failed")
    stage.crew.replace_those_that_ended_with(EXIT)
    stage.crew.wait_until_started()


FAULTS = {
    "misbehaving-handlers": Fault(
        inject=_work_on,
        times=5,
        transports={KEYED: "MisbehavingOneByOne", PLAIN: "MisbehavingInBatches", STRICT: "MisbehavingInBatches"},
        note="SystemExit and its like raised; coroutines, generators and errors returned",
    ),
    "session-surroundings": Fault(
        inject=_work_on,
        times=3,
        around=_tables_elsewhere,
        transports={KEYED: "InSession"},
        note="SET and SET LOCAL search_path in the engine's session",
    ),
    "killing-items": Fault(
        inject=_kill_from_within,
        times=2,
        least=1,
        repeats=True,
        transports={PLAIN: "DeadlyInBatches"},
        note="os._exit in the transport",
    ),
}
ON_MARIADB = {
    **FAULTS,
    "session-surroundings": replace(
        FAULTS["session-surroundings"], around=_tables_in_another_database, note="USE in the engine's session"
    ),
}
