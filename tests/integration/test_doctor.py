"""``boxengine doctor``: what hurts in production is found, each with what to do about it."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.kafka.checkup import KafkaCheckup
from boxengine.adapters.redis.checkup import RedisCheckup
from boxengine.adapters.redis.connection import connect as connect_redis
from boxengine.adapters.sql.checking.checkup import SqlCheckup
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.domain.box import Box
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from boxengine.errors import SourceUnavailable
from boxengine.ports.people.checkup import Checkup, Remark
from tests.cli.project import Project
from tests.conformance.log_stores import SqlLogHarness
from tests.conformance.sql_stores import SqlHarness, postgresql
from tests.eventually import eventually
from tests.servers.databases import with_setting
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresFromWheel
from tests.servers.promised import promised_servers, require


def now() -> datetime:
    return datetime.now(UTC)


def store_of(harness: SqlHarness) -> SqlStore:
    assert isinstance(harness.store, SqlStore)
    return harness.store


def found(checkup: Checkup, *boxes: Box) -> list[Remark]:
    return [remark for remark in checkup.remarks(boxes) if remark.is_finding]


def texts(remarks: list[Remark]) -> str:
    return "\n".join(f"{remark.text} -> {remark.advice}" for remark in remarks)


@contextmanager
def open_transaction(url: Any, table: str) -> Iterator[int]:
    """Somebody who has forgotten to commit, by the number of their session."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        connection.execute(sa.text(f"UPDATE {table} SET errors_count = 1"))
        own = "pg_backend_pid()" if engine.dialect.name == "postgresql" else "CONNECTION_ID()"
        yield int(connection.execute(sa.text(f"SELECT {own}")).scalar_one())
    engine.dispose()


def test_a_table_in_order_has_no_findings_but_what_the_server_risks(harness: SqlHarness) -> None:
    box = harness.make_box()
    remarks = SqlCheckup(store_of(harness), now=now).remarks([box])
    risky = ("fsync", "full_page_writes", "synchronous_commit", "innodb_flush_log_at_trx_commit")
    findings = [remark.text for remark in remarks if remark.is_finding and not remark.text.startswith(risky)]
    assert findings == []
    assert any(remark.text.startswith(("PostgreSQL 1", "MariaDB 1", "MySQL 8")) for remark in remarks)


def test_a_missing_index_is_found(harness: SqlHarness) -> None:
    box, store = harness.make_box(), store_of(harness)
    kind = "pending" if store.engine.dialect.name == "postgresql" else "status"
    on = "" if kind == "pending" else f" ON {box.table}"
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"DROP INDEX ix_{box.table}_{kind}{on}"))
    assert f"ix_{box.table}_{kind}" in texts(found(SqlCheckup(store, now=now), box))


def test_ids_that_run_out_are_found_before_they_do(harness: SqlHarness) -> None:
    box, store = harness.make_box(), store_of(harness)
    postgres = store.engine.dialect.name == "postgresql"
    integers = "ALTER COLUMN id TYPE integer" if postgres else "MODIFY id INT NOT NULL AUTO_INCREMENT"
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {box.table} {integers}")
    harness.set_row(box, harness.insert(box), id=1_400_000_000)
    checkup = SqlCheckup(store, now=now)
    assert "of its ids" not in texts(found(checkup, box))
    harness.set_row(box, 1_400_000_000, id=1_600_000_000)
    told = texts(found(checkup, box))
    assert f"{box.table} has used 75% of its ids: its column id, int" in told
    assert "ends at 2,147,483,647" in told
    for advice in re.findall(r"ALTER (?:TABLE|SEQUENCE) [^;.]*(?:\.[^;. ]+[^;.]*)*", told):
        with store.engine.begin() as connection:
            connection.exec_driver_sql(advice)
    assert "of its ids" not in texts(found(checkup, box))


@pytest.mark.parametrize("storage", [postgresql, SqlLogHarness])
def test_a_sequence_of_integers_behind_a_larger_column_is_found(
    storage: Callable[[str], SqlHarness], postgres_url: str
) -> None:
    harness = storage(postgres_url)
    box, store = harness.make_box(), store_of(harness)
    checkup = SqlCheckup(store, now=now)
    with store.engine.begin() as connection:
        sequence = connection.exec_driver_sql(f"SELECT pg_get_serial_sequence('{box.table}', 'id')").scalar_one()
        connection.exec_driver_sql(f"ALTER SEQUENCE {sequence} AS integer")
        connection.exec_driver_sql(f"SELECT setval('{sequence}', 1600000000)")  # retention has deleted the items
    (remark,) = [each for each in found(checkup, box) if "of its ids" in each.text]
    assert "its sequence ends at 2,147,483,647" in remark.text
    with store.engine.begin() as connection:
        connection.exec_driver_sql(str(remark.advice).partition(": ")[2])
    assert "of its ids" not in texts(found(checkup, box))
    harness.close()


def test_a_transaction_that_has_been_open_for_long_is_found_and_alarms(
    harness: SqlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, store = harness.make_box(), store_of(harness)
    harness.insert(box)
    checkup = SqlCheckup(store, now=now)
    monkeypatch.setattr("boxengine.adapters.sql.checking.checkup.LONG_TRANSACTION", timedelta(seconds=-5))
    with open_transaction(store.engine.url, box.table) as session:
        ends = (f"pg_terminate_backend({session})", f"KILL {session}")

        def alarms() -> list[Remark]:
            # InnoDB tells anew only what nobody has asked for in the last tenth of a second.
            threading.Event().wait(0.15)
            return [each for each in checkup.alarms([box]) if str(each.advice).endswith(ends)]

        (alarm,) = eventually(alarms)
    assert alarm.alarming
    assert "A transaction has been open for" in alarm.text


def test_an_old_transaction_is_found_where_intervals_are_written_in_another_style(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.checking.checkup.LONG_TRANSACTION", timedelta(seconds=-5))
    store = SqlStore(connect(with_setting(postgres_url, "intervalstyle=iso_8601"), connections=1))
    engine = sa.create_engine(postgres_url)
    with closing(store), engine.connect() as session:
        pid = session.scalar(sa.text("SELECT pg_backend_pid()"))
        alarms = SqlCheckup(store, now=now).alarms([])
    engine.dispose()
    assert [each for each in alarms if str(each.advice).endswith(f"pg_terminate_backend({pid})")]


def test_a_clock_that_differs_is_found(harness: SqlHarness) -> None:
    ahead = SqlCheckup(store_of(harness), now=lambda: now() + timedelta(seconds=30))
    assert "The database's clock is 30 s behind this machine's." in texts(found(ahead))


def test_privileges_that_are_missing_are_found(postgres_url: str) -> None:
    harness = postgresql(postgres_url)
    box, store = harness.make_box(), store_of(harness)
    role = "doctor_" + str(store.engine.url.database)
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN")
        connection.exec_driver_sql(f"GRANT SELECT, UPDATE ON {box.table} TO {role}")
    limited = connect(store.engine.url.set(username=role).render_as_string(hide_password=False), connections=1)
    assert f"{box.table} TO {role}" in texts(found(SqlCheckup(SqlStore(limited), now=now), box))
    assert "may not DELETE on" in texts(found(SqlCheckup(SqlStore(limited), now=now), box))
    limited.dispose()
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {role}; DROP ROLE {role}")
    harness.close()


def test_an_account_whose_sessions_are_read_only_is_found_first(postgres_url: str) -> None:
    harness = postgresql(postgres_url)
    box, url = harness.make_box(), store_of(harness).engine.url
    role = "doctor_" + str(url.database)
    with store_of(harness).engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN")
        connection.exec_driver_sql(f"GRANT ALL ON {box.table} TO {role}")
        connection.exec_driver_sql(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    limited = connect(url.set(username=role).render_as_string(hide_password=False), connections=1)
    first, *_ = found(SqlCheckup(SqlStore(limited), now=now), box)
    assert first.text == "Sessions of this account are read-only: a worker that uses it delivers nothing."
    assert f"ALTER ROLE {role} RESET default_transaction_read_only" in str(first.advice)
    limited.dispose()
    with store_of(harness).engine.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {role}; DROP ROLE {role}")
    harness.close()


@pytest.mark.parametrize(("mode", "told"), [("", True), ("ANSI_QUOTES", True), ("TRADITIONAL", False)])
def test_a_database_that_cuts_values_off_is_found(mysql_url: str, mode: str, told: bool) -> None:
    engine = connect(f"{mysql_url}?init_command=SET SESSION sql_mode = '{mode}'", connections=1)
    remarks = found(SqlCheckup(SqlStore(engine), now=now))
    assert any("sql_mode is not strict" in remark.text for remark in remarks) is told
    engine.dispose()


def test_an_account_that_may_not_see_transactions_is_told_in_the_servers_words(mysql_url: str) -> None:
    url = sa.make_url(mysql_url)
    name = f"d_{url.database}"[:30]
    owner = sa.create_engine(url)
    with owner.begin() as connection:
        connection.exec_driver_sql(f"CREATE USER {name}")
        connection.exec_driver_sql(f"GRANT SELECT ON {url.database}.* TO {name}")
    engine = connect(url.set(username=name).render_as_string(hide_password=False), connections=1)
    remarks = SqlCheckup(SqlStore(engine), now=now).remarks([])
    assert any("(the database: Access denied; you need" in remark.text for remark in remarks)
    engine.dispose()
    with owner.begin() as connection:
        connection.exec_driver_sql(f"DROP USER {name}")
    owner.dispose()


def test_a_redis_that_takes_no_writes_is_found(own_redis: EmbeddedValkey) -> None:
    client = connect_redis(own_redis.url())
    client.replicaof("127.0.0.1", "9")
    (replica,) = found(RedisCheckup(client, now=now))
    assert "Redis is a replica and takes no writes, so nothing is delivered." in replica.text
    client.replicaof("NO", "ONE")
    client.config_set("maxmemory", "1kb")
    (full,) = found(RedisCheckup(client, now=now))
    assert "Redis is full and takes no jobs, so nothing is delivered" in full.text
    client.close()


def test_a_limit_that_cuts_the_doctors_questions_short_is_no_server_to_bring_back(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.call("db", "create")
    engine = sa.create_engine(postgres_url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f'ALTER DATABASE "{engine.url.database}" SET statement_timeout = 1')
    engine.dispose()
    told = project.call("doctor", expect=1)
    assert "! database: the database: canceling statement due to statement timeout" in told
    assert "raise the statement_timeout of this account" in told
    assert "Bring it back" not in told


def test_dead_rows_that_nobody_clears_away_are_found(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.checking.postgresql.FEW", 100)
    harness = postgresql(postgres_url)
    box, store = harness.make_box(), store_of(harness)
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"ALTER TABLE {box.table} SET (autovacuum_enabled = false)")
        connection.exec_driver_sql(
            f"INSERT INTO {box.table} (uuid, event_key, bucket, payload) "
            "SELECT gen_random_uuid(), 'k', 0, 'x' FROM generate_series(1, 200)"
        )
        connection.exec_driver_sql(f"UPDATE {box.table} SET status = 2")
        connection.exec_driver_sql(f"UPDATE {box.table} SET status = 3")
        connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        connection.exec_driver_sql("SELECT 1")
    (alarm,) = [each for each in SqlCheckup(store, now=now).alarms([box]) if each.box == box.name]
    assert "400 dead rows" in alarm.text
    assert "VACUUM" in str(alarm.advice)
    harness.close()


def test_where_dead_rows_lie_about_a_younger_transaction_is_suspicious(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.checking.checkup.SUSPICIOUS", timedelta(0))
    harness = postgresql(postgres_url)
    box, store = harness.make_box(), store_of(harness)
    harness.insert(box)
    checkup = SqlCheckup(store, now=now)
    dead = Remark(area="database", text="dead", advice="VACUUM", alarming=True)
    with open_transaction(store.engine.url, box.table) as session:

        def told() -> bool:
            return f"pg_terminate_backend({session})" in texts(checkup.alarms([box]))

        assert not told(), "ten minutes are not over"
        monkeypatch.setattr(
            "boxengine.adapters.sql.checking.postgresql.PostgresChecks.dead_rows", lambda *_: iter([dead])
        )
        assert told()
    harness.close()


def test_a_prepared_transaction_and_a_slot_that_nobody_reads_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(PostgresFromWheel().offer(), promised_servers(os.environ))
    monkeypatch.setattr("boxengine.adapters.sql.checking.checkup.LONG_TRANSACTION", timedelta(0))
    settings = {"max_prepared_transactions": "2", "wal_level": "logical"}
    with EmbeddedPostgres(tmp_path / "own", durable=False, settings=settings) as server:
        store = SqlStore(connect(server.url(), connections=1))
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("SELECT pg_create_physical_replication_slot('forgotten', true)")
            connection.exec_driver_sql("BEGIN")
            connection.exec_driver_sql("CREATE TABLE left_over (id int)")
            connection.exec_driver_sql("PREPARE TRANSACTION 'nobody''s'")
        told = texts(found(SqlCheckup(store, now=now)))
        store.close()
    assert "ROLLBACK PREPARED 'nobody''s'" in told
    assert "pg_drop_replication_slot('forgotten')" in told


def test_autovacuum_that_is_off_or_late_for_a_table_is_found(postgres_url: str) -> None:
    harness = postgresql(postgres_url)
    box, store = harness.make_box(), store_of(harness)
    checkup = SqlCheckup(store, now=now)
    assert "Autovacuum cleans" in "".join(remark.text for remark in checkup.remarks([box]) if not remark.is_finding)
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {box.table} SET (autovacuum_vacuum_threshold = 1000000)")
    assert "which is late" in texts(found(checkup, box))
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {box.table} SET (autovacuum_enabled = off)")
    assert f"autovacuum is off for {box.table}" in texts(found(checkup, box))
    harness.close()


def test_autovacuum_that_is_off_for_a_table_of_a_log_is_found(postgres_url: str) -> None:
    harness = SqlLogHarness(postgres_url)
    box, store = harness.make_box(), store_of(harness)
    checkup = SqlCheckup(store, now=now)
    assert "autovacuum" not in texts(checkup.decay([box]))
    for table in (f"{box.table}_log", f"{box.table}_positions"):
        with store.engine.begin() as connection:
            connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        assert f"autovacuum is off for {table}: " in texts(found(checkup, box))
        assert f"autovacuum is off for {table}: " in texts(checkup.decay([box]))
    harness.close()


def test_room_that_no_row_needs_is_found_in_a_table_and_its_indexes(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.checking.bloat.MUCH", 200_000)
    harness = postgresql(postgres_url)
    box, store = harness.make_box(), store_of(harness)
    checkup = SqlCheckup(store, now=now)
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(
            f"INSERT INTO {box.table} (uuid, event_key, bucket, payload) "
            "SELECT gen_random_uuid(), 'k', 0, convert_to(repeat('x', 300), 'UTF8') FROM generate_series(1, 20000)"
        )
        connection.exec_driver_sql(f"VACUUM (ANALYZE) {box.table}")
        assert "takes" not in texts(found(checkup, box)), "its rows fill it"
        # Rows that are left all over it keep vacuum from cutting it off.
        connection.exec_driver_sql(f"DELETE FROM {box.table} WHERE id %% 50 <> 0")
        connection.exec_driver_sql(f"VACUUM (ANALYZE) {box.table}")
        told = texts(found(checkup, box))
        assert f"{box.table} takes 8 MiB, and its rows need about 1 MiB" in told
        assert "REINDEX INDEX CONCURRENTLY" in told
        for statement in re.findall(r"VACUUM \(FULL\) .*|REINDEX .*", told):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f"VACUUM (ANALYZE) {box.table}")
    assert "takes" not in texts(found(checkup, box))
    harness.close()


@pytest.mark.parametrize(("mode", "said"), [("transaction", "between transactions"), ("session", "in session mode")])
def test_a_pooler_is_told_with_its_mode(
    postgres_url: str, pgbouncer: Callable[..., PgBouncer], mode: str, said: str
) -> None:
    pooled = connect(pgbouncer(pool_mode=mode).url(postgres_url), connections=2)
    remarks = SqlCheckup(SqlStore(pooled), now=now).remarks([])
    assert [said in remark.text for remark in remarks if "pooler" in remark.text] == [True]
    pooled.dispose()


def test_a_redis_that_drops_keys_is_found(own_redis: EmbeddedValkey) -> None:
    client = connect_redis(own_redis.url())
    checkup = RedisCheckup(client, now=now)
    assert found(checkup) == []
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    assert "maxmemory-policy is allkeys-lru" in texts(found(checkup))
    late = RedisCheckup(client, now=lambda: now() - timedelta(seconds=60))
    assert "Redis's clock is 60 s ahead of" in texts(found(late))
    client.close()


def test_topics_that_are_missing_or_have_one_replica_are_found(kafka_bootstrap: str, kafka_topic: str) -> None:
    topics = {kafka_topic: "order_outbox_item", "never-made-by-anybody": "order_outbox_item"}
    checkup = KafkaCheckup(
        bootstrap_servers=kafka_bootstrap, config={"allow.auto.create.topics": "false"}, topics=topics
    )
    remarks = texts(checkup.remarks([]))
    assert f"Topic {kafka_topic} has 4 partitions" in remarks
    assert "Topic never-made-by-anybody of order_outbox_item does not exist." in remarks


def test_a_broker_that_does_not_answer_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxengine.adapters.kafka.checkup.PATIENCE", 0.2)
    checkup = KafkaCheckup(bootstrap_servers="127.0.0.1:9", config={}, topics={"orders": "order_outbox_item"})
    with pytest.raises(SourceUnavailable, match="Kafka at"):
        checkup.remarks([])


def test_the_command_ends_with_1_on_a_finding_and_says_what_to_do(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    told = json.loads(project.call("doctor", "--json", expect=1))
    assert any("there is no table" in each["text"] and each["advice"] for each in told)
    project.call("db", "create")
    told = project.call("doctor", expect=1)  # the tests' own server does not keep what it commits
    assert "! database: fsync is off" in told
    assert "  redis: Valkey" in told


def test_an_applications_driver_is_told_and_is_no_finding(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    project = Project(tmp_path, database=postgres_url.replace("+psycopg", "+asyncpg"), redis=redis_url)
    told = json.loads(project.call("doctor", "--json", expect=1))  # the tests' own server does not keep what it commits
    (driver,) = [each for each in told if "asyncpg is the application's driver" in each["text"]]
    assert driver["advice"] is None


def test_a_client_certificate_of_a_webhook_is_looked_at(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    hook = "http: {url: 'https://bank.example', cert_file: /nowhere/bank.pem}"
    told = Project(tmp_path, database=postgres_url, redis=redis_url, transports=hook).call("doctor", expect=1)
    assert "! http: order_outbox_item: cert_file '/nowhere/bank.pem' cannot be used: No such file or directory." in told


def test_what_does_not_answer_hides_nothing_else(tmp_path: Path, postgres_url: str) -> None:
    project = Project(tmp_path, database=postgres_url, redis="redis://127.0.0.1:9/0")
    told = project.call("doctor", expect=1)
    assert told.count("! redis: Redis: ") == 1
    assert "database: PostgreSQL" in told
    project.config.write_text(project.config.read_text().replace(postgres_url, "postgresql+psycopg://x@127.0.0.1:1/x"))
    told = project.call("doctor", expect=1)
    assert told.count("! database: the database: ") == 1
    assert told.count("! redis: Redis: ") == 1
    assert told.count("the database: ") == 1, "another part that asks the same server says it no second time"
