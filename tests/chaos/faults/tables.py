"""What others do to the boxes' tables while workers use them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from tests.chaos.fault import Fault
from tests.chaos.stage import ORDERS, PLAIN, Stage

_BUCKET = 5
_FUZZING = 5.0
"""Seconds of random writes."""
_CHANGES = 3
"""Transactions that change pending rows, one after the other."""
_CHANGED_AT_ONCE = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Speech:
    """How it is said to one database."""

    ddl: Sequence[str]
    """One after the other they lead back to the table that was there."""
    unreadable: Sequence[Mapping[str, str]]
    """Columns with what the database stores and Python has no value for."""
    lenient: str
    """Before writing what no application should."""
    impatient: str
    """Before the random writes: what is locked stays as it is."""
    patient: str
    """After them."""
    moments: Sequence[str]
    json: str
    """A placeholder."""


_TO_POSTGRES = _Speech(
    ddl=(
        "ALTER COLUMN bucket TYPE bigint",
        "DROP COLUMN error_log",
        "ADD COLUMN of_another_team text DEFAULT 'x'",
        "ADD COLUMN error_log text",
        "ALTER COLUMN bucket TYPE integer",
        "DROP COLUMN of_another_team",
    ),
    unreadable=[
        {"created_at": moment}
        for moment in ("infinity", "-infinity", "294276-12-31 23:59:59", "0044-03-15 12:00:00 BC")
    ],
    lenient="SET application_name = 'chaos'",
    impatient="SET lock_timeout = '200ms'",
    patient="RESET lock_timeout",
    moments=("now", "epoch", "infinity", "-infinity", "4000-01-01", "0044-03-15 BC"),
    json="%(json)s::jsonb",
)
_TO_MARIADB = _Speech(
    ddl=(
        "MODIFY bucket bigint NOT NULL",
        "DROP COLUMN error_log",
        "ADD COLUMN of_another_team text DEFAULT 'x'",
        "ADD COLUMN error_log text",
        "MODIFY bucket integer NOT NULL",
        "DROP COLUMN of_another_team",
    ),
    unreadable=[
        {"created_at": "0000-00-00 00:00:00"},
        {"created_at": "2026-00-00 00:00:00"},
        {"uuid": "no uuid at all"},
    ],
    lenient="SET SESSION sql_mode = ''",
    impatient="SET SESSION sql_mode = '', innodb_lock_wait_timeout = 1",
    patient="SET SESSION innodb_lock_wait_timeout = 50",
    moments=("2026-01-01", "1970-01-01", "0000-00-00", "2026-00-00", "4000-01-01", "9999-12-31 23:59:59.999999"),
    json="%(json)s",
)

# The fuzzer's statements; %(id)s was there a moment ago. What they touch is not judged, everything else is.
_FUZZ = (
    "UPDATE {table} SET payload = %(payload)s WHERE id = %(id)s",
    "UPDATE {table} SET event_key = %(text)s WHERE id = %(id)s",
    "UPDATE {table} SET bucket = %(number)s WHERE id = %(id)s",
    "UPDATE {table} SET status = %(status)s WHERE id = %(id)s",
    "UPDATE {table} SET errors_count = %(number)s WHERE id = %(id)s",
    "UPDATE {table} SET processed_at = %(moment)s WHERE id = %(id)s",
    "UPDATE {table} SET created_at = %(moment)s WHERE id = %(id)s",
    "UPDATE {table} SET options = {json} WHERE id = %(id)s",
    "UPDATE {table} SET uuid = %(uuid)s, updated_at = %(moment)s WHERE id = %(id)s",
    "DELETE FROM {table} WHERE id = %(id)s",
    "SELECT 1 FROM {table} WHERE id = %(id)s FOR UPDATE",
    (
        "INSERT INTO {table} (uuid, event_key, bucket, payload, status, errors_count, created_at) "
        "VALUES (%(uuid)s, %(text)s, %(number)s, %(payload)s, %(status)s, %(number)s, %(moment)s) RETURNING id"
    ),
)


def _alter(speech: _Speech, stage: Stage) -> None:
    stage.wait_for_work()
    statement = speech.ddl[len(stage.injections) % len(speech.ddl)]
    with stage.injecting(), stage.session() as connection:
        for box in ORDERS:
            connection.exec_driver_sql(f"ALTER TABLE {box}s {statement}")
        # A worker learns of it when a statement fails, and what that batch had sent comes again.
        stage.wait_for_recovery()


def _write_hostile_rows(speech: _Speech, stage: Stage) -> None:
    """Rows that no worker can read fail by themselves; a count at its maximum is no reason to fail."""
    stage.wait_for_work()
    with stage.injecting(), stage.session() as connection:
        connection.exec_driver_sql(speech.lenient)
        for columns in speech.unreadable:
            stage.doomed.add((PLAIN, _insert_hostile(connection, columns)))
        _insert_hostile(connection, {"errors_count": str(2**31 - 1)})
    stage.wait_for_recovery()


def _insert_hostile(connection: Connection, columns: Mapping[str, str]) -> int:
    """Returns its id."""
    values = {
        "uuid": str(uuid.uuid4()),
        "event_key": "hostile",
        "bucket": str(_BUCKET),
        "payload": "0 ",
        **columns,
    }
    placeholders = ", ".join(f"%({name})s" for name in values)
    insert = f"INSERT INTO {PLAIN}s ({', '.join(values)}) VALUES ({placeholders}) RETURNING id"
    id_: int = connection.exec_driver_sql(insert, values).scalar_one()
    return id_


def _lock_rows(stage: Stage) -> None:
    """The application changes pending rows, from the last to the first, and takes its time to commit."""
    stage.wait_for_work()
    with stage.injecting(), ThreadPoolExecutor(len(ORDERS)) as application:
        for changing in [application.submit(_change_backwards, stage, box) for box in ORDERS]:
            changing.result()  # no transaction of the application's is aborted for a worker's sake
    stage.wait_for_recovery()


def _change_backwards(stage: Stage, box: str) -> None:
    pending = f"SELECT id FROM {box}s WHERE status = 0 ORDER BY id DESC LIMIT {_CHANGED_AT_ONCE}"
    with stage.session() as connection:
        for _ in range(_CHANGES):
            ids = connection.exec_driver_sql(pending).scalars().all()
            connection.exec_driver_sql("START TRANSACTION")
            for id_ in ids:
                connection.exec_driver_sql(f"UPDATE {box}s SET options = '{{}}' WHERE id = %s AND status = 0", (id_,))
            stage.pause(0.5, 3.0)
            connection.exec_driver_sql("COMMIT")


def _fuzz(speech: _Speech, stage: Stage) -> None:
    """Another application writes into the tables whatever its columns take."""
    until = time.monotonic() + _FUZZING
    with stage.injecting(), stage.session() as connection:
        connection.exec_driver_sql(speech.impatient)
        while time.monotonic() < until:
            box = stage.randomness.choice(list(ORDERS))
            known = connection.exec_driver_sql(f"SELECT id FROM {box}s ORDER BY id DESC LIMIT 300").scalars().all()
            if known:
                _write(speech, stage, connection, box, stage.randomness.choice(known))
        connection.exec_driver_sql(speech.patient)
        _take_away(stage, connection)
    stage.wait_for_recovery()


def _write(speech: _Speech, stage: Stage, connection: Connection, box: str, id_: int) -> None:
    random = stage.randomness
    values = {
        "id": id_,
        "uuid": str(uuid.uuid4()),
        "payload": random.choice([b"", b"0 ", b"\x00\xff", b"9 never", b"0 " + b"x" * 100_000]),
        "text": random.choice(["1", "", "\N{SNOWMAN}", "'; --", "x" * 255]),
        "number": random.choice([0, 1, 7, -1, 16, 10**6, 2**31 - 1]),
        "status": random.choice([0, 0, 1, 2, 3, 9, -1]),
        "moment": random.choice(speech.moments),
        "json": random.choice(["{}", "[]", "null", "7", '"text"', '{"headers": 7}', '{"headers": {"a": null}}']),
    }
    stage.touched.add((box, id_))
    statement = random.choice(_FUZZ).format(table=f"{box}s", json=speech.json)
    try:
        cursor = connection.exec_driver_sql(statement, values)
        if statement.startswith("INSERT"):
            stage.touched.update((box, inserted) for inserted in cursor.scalars())
    except DBAPIError:
        return  # the table refuses it, or a worker holds the row


def _take_away(stage: Stage, connection: Connection) -> None:
    """What would wait for ever: rows in buckets that nobody serves, or that keep others back."""
    for box in ORDERS:
        ids = ", ".join(str(id_) for name, id_ in stage.touched if name == box)
        if ids:
            connection.exec_driver_sql(f"DELETE FROM {box}s WHERE id IN ({ids}) AND status IN (0, 1)")


def _faults(speech: _Speech, *, hostile: str) -> Mapping[str, Fault]:
    return {
        "ddl": Fault(
            inject=partial(_alter, speech),
            times=6,
            repeats=True,
            note="columns changed, dropped and added under the workers",
        ),
        "locked-rows": Fault(
            inject=_lock_rows, times=5, note="30 pending rows of each box, for 0.5 to 3 s, three times"
        ),
        "hostile-rows": Fault(inject=partial(_write_hostile_rows, speech), times=3, note=hostile),
        "random-sql": Fault(
            inject=partial(_fuzz, speech), times=60, repeats=True, note="5 s of random writes each time"
        ),
    }


FAULTS = _faults(_TO_POSTGRES, hostile="infinite moments, years that Python has not")
ON_MARIADB = _faults(_TO_MARIADB, hostile="zero dates, a uuid that is none")
