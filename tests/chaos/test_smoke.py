"""A few faults of the chaos suite, on a small scale; ``make chaos`` and ``make chaos-mariadb`` play all of them."""

from __future__ import annotations

import os
from pathlib import Path

from boxengine.domain.box import Storage
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.chaos.catalogue import FAULTS, NOT_ON_A_LOG, NOT_ON_MARIADB, ON_MARIADB, ON_PARTITIONS
from tests.chaos.database import MariaDB, PostgreSQL
from tests.chaos.play import Plan, play
from tests.chaos.snapshot import copy_of_the_code
from tests.chaos.stage import Servers
from tests.servers.mariadb import MariaDBFromSystem, MariaDBServer
from tests.servers.promised import promised_servers, require


def test_nothing_is_lost_and_nothing_reordered_when_the_database_crashes(
    tmp_path: Path, own_postgres: EmbeddedPostgres, own_redis: EmbeddedValkey
) -> None:
    servers = Servers(PostgreSQL(own_postgres), copy_of_the_code(tmp_path / "code"), own_redis)
    plan = Plan(items=2_000, rate=1_000.0, seed=1, most_times=1)
    row = play("postgres-immediate", FAULTS["postgres-immediate"], servers, tmp_path / "stage", plan)
    assert (row.times, row.items >= 2_000) == (1, True)
    assert (row.lost, row.reordered) == (0, 0), row.problems


def test_of_log_boxes_nothing_is_lost_nor_reordered_when_a_worker_is_killed(
    tmp_path: Path, own_postgres: EmbeddedPostgres, own_redis: EmbeddedValkey
) -> None:
    servers = Servers(PostgreSQL(own_postgres), copy_of_the_code(tmp_path / "code"), own_redis, Storage.LOG)
    plan = Plan(items=600, rate=1_000.0, seed=1, most_times=1)
    row = play("sigkill-worker", FAULTS["sigkill-worker"], servers, tmp_path / "stage", plan)
    assert (row.times, row.items >= 600) == (1, True)
    assert (row.lost, row.reordered) == (0, 0), row.problems


def test_partitions_that_retention_drops_take_nothing_along_that_was_not_delivered(
    tmp_path: Path, own_postgres: EmbeddedPostgres, own_redis: EmbeddedValkey
) -> None:
    code = copy_of_the_code(tmp_path / "code")
    servers = Servers(PostgreSQL(own_postgres), code, own_redis, Storage.LOG, {"log_partitions": "P1D"})
    plan = Plan(items=600, rate=1_000.0, seed=1, most_times=1)
    row = play("partitions-dropped", ON_PARTITIONS["partitions-dropped"], servers, tmp_path / "stage", plan)
    assert (row.times, row.items >= 600) == (1, True)
    assert (row.lost, row.reordered) == (0, 0), row.problems


def test_a_fault_that_a_log_does_not_have_is_one_that_tables_have() -> None:
    assert set(NOT_ON_A_LOG) < set(FAULTS)


def test_on_mariadb_nothing_is_lost_and_nothing_reordered_either(tmp_path: Path, own_redis: EmbeddedValkey) -> None:
    require(MariaDBFromSystem().offer(), promised_servers(os.environ))
    with MariaDBServer(tmp_path / "own") as server:
        servers = Servers(MariaDB(server), copy_of_the_code(tmp_path / "code"), own_redis)
        plan = Plan(items=1_000, rate=1_000.0, seed=1, most_times=1)
        row = play("mariadb-kill", ON_MARIADB["mariadb-kill"], servers, tmp_path / "stage", plan)
    assert (row.times, row.items >= 1_000) == (1, True)
    assert (row.lost, row.reordered) == (0, 0), row.problems


def test_a_fault_that_mariadb_does_not_have_is_named_with_its_reason() -> None:
    """Its own faults of the server and the network bear the database's name."""
    named_anew = {name for name in FAULTS if "postgres" in name or name == "terminate-connections"}
    assert set(FAULTS) - set(ON_MARIADB) - named_anew == set(NOT_ON_MARIADB)
