"""A worker's connections never stay with a server that takes no writes: failovers by address, by several hosts, by switch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pymysql
import pytest
from sqlalchemy import create_engine, text

import boxengine
from boxengine.adapters.sql.checking.checkup import SqlCheckup
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.connecting.writes import refuses_writes
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.waking.listen import PostgresWakeups
from boxengine.adapters.system import SystemClock
from boxengine.app.overview import problems
from boxengine.app.servers.database import connect_store
from boxengine.domain.jobs import JobState
from boxengine.embedded import EmbeddedPostgres
from boxengine.engine.running.health import Health
from boxengine.errors import StoreUnavailable
from boxengine.ports.people.checkup import Remark
from boxengine.settings import Settings
from tests.cli.project import Project
from tests.eventually import eventually
from tests.integration.jobs.shop import Shop
from tests.servers.mariadb import MariaDBFromSystem
from tests.servers.postgres import PostgresFromWheel
from tests.servers.promised import promised_servers, require
from tests.servers.proxy import FaultProxy
from tests.servers.standby import cut_off, promote, standby_of, wait_until_followed
from tests.unit.engine.bench import make_box

BOX = make_box()
kept: list[str] = []
Both = tuple[EmbeddedPostgres, EmbeddedPostgres]
pytestmark = pytest.mark.xdist_group("standby")


@contextmanager
def made(folder: Path) -> Iterator[tuple[EmbeddedPostgres, EmbeddedPostgres]]:
    """A primary with the box's table, and a standby that follows it."""
    require(PostgresFromWheel().offer(), promised_servers(os.environ))
    with EmbeddedPostgres(folder / "primary", durable=False) as primary:
        engine = create_engine(primary.url())
        schema.create(engine, [BOX])
        engine.dispose()
        with standby_of(primary, folder / "standby") as standby:
            wait_until_followed(primary, standby)
            yield primary, standby


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedPostgres, EmbeddedPostgres]]:
    with made(tmp_path_factory.mktemp("standby")) as both:
        yield both


@contextmanager
def store_at(url: str) -> Iterator[SqlStore]:
    store = SqlStore(connect(url, connections=2, writes=True), writes=True)
    try:
        yield store
    finally:
        store.close()


def ready(store: SqlStore) -> bool:
    health = Health(clock=SystemClock(), checks={"database": store.ping}, check_timeout=timedelta(seconds=30))
    health.loop("loop", limit=timedelta(hours=1))
    return health.ready().ok


def claims(store: SqlStore) -> bool:
    """Whether a bucket can be claimed."""
    with store.claims(BOX).open({0: None}, 10) as claim:
        return not claim.refused


def test_a_query_on_a_standby_that_holds_back_vacuum_is_found(pair: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    primary, standby = pair
    monkeypatch.setattr("boxengine.adapters.sql.checking.checkup.BEHIND", 10)
    reports = {"hot_standby_feedback": "on", "wal_receiver_status_interval": "1s"}
    with (
        store_at(primary.url()) as store,
        psycopg.connect(primary.url().replace("+psycopg", ""), autocommit=True) as writer,
        configured(standby, **reports),
        psycopg.connect(standby.url().replace("+psycopg", "")) as report,
    ):
        checkup = SqlCheckup(store, now=SystemClock().now)

        def told() -> list[str]:
            return [alarm.text for alarm in checkup.alarms([BOX]) if alarm.text.startswith("The standby")]

        report.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        report.execute("SELECT 1")
        for _ in range(20):
            writer.execute("SELECT pg_current_xact_id()")
        (text,) = eventually(told)
        assert "hot_standby_feedback is on" in text
        report.rollback()
        eventually(lambda: not told())


def test_commits_that_wait_for_a_synchronous_standby_are_found(pair: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    primary, _ = pair
    monkeypatch.setattr("boxengine.adapters.sql.checking.checkup.HANGING", timedelta(0))
    with store_at(primary.url()) as store, ThreadPoolExecutor() as elsewhere:
        checkup = SqlCheckup(store, now=SystemClock().now)

        commits: list[Future[None]] = []

        def told() -> list[Remark]:
            return [alarm for alarm in checkup.alarms([BOX]) if alarm.stops]

        def told_of_commits() -> list[Remark]:
            if all(commit.done() for commit in commits):  # the server obeys a setting a moment after it was told
                commits.append(elsewhere.submit(write, primary))
            return told()

        assert told() == []
        with configured(primary, synchronous_standby_names="nobody"):
            (alarm,) = eventually(told_of_commits)
            assert "wait for a synchronous standby, the first for" in alarm.text
            assert not commits[-1].done()
        commits[-1].result(timeout=60)
        assert told() == []
        assert problems.alarm(alarm).kind == "database"


def write(server: EmbeddedPostgres) -> None:
    """One row of a table of its own."""
    with psycopg.connect(server.url().replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS written (id int)")
        connection.execute("INSERT INTO written VALUES (1)")


@contextmanager
def configured(server: EmbeddedPostgres, **settings: str) -> Iterator[None]:
    """The server with these settings."""
    with psycopg.connect(server.url().replace("+psycopg", ""), autocommit=True) as admin:
        try:
            for name, value in settings.items():
                admin.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            admin.execute("SELECT pg_reload_conf()")
            yield
        finally:
            for name in settings:
                admin.execute(f"ALTER SYSTEM RESET {name}".encode())
            admin.execute("SELECT pg_reload_conf()")


def hosts(*servers: EmbeddedPostgres) -> str:
    """A URL of several hosts, as PostgreSQL's library knows them."""
    places = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql+psycopg://postgres@/postgres?host={places.replace(',', '&host=')}"


def test_a_standby_is_not_ready_and_no_connection_stays_with_it_when_the_address_moves_on(pair: Both) -> None:
    primary, standby = pair
    with FaultProxy.before(primary.url()) as address, store_at(address.url(primary.url())) as store:
        assert ready(store)
        assert claims(store)
        address.redirect(standby.url())
        assert not ready(store)
        with pytest.raises(StoreUnavailable, match="read-only"):
            claims(store)
        # What is open stays open: only a connection that was not kept finds the primary.
        address.lead_new_to(primary.url())
        assert claims(store)
        assert ready(store)


def test_a_connection_to_a_server_that_becomes_read_only_is_let_go(pair: Both) -> None:
    primary, _ = pair
    with FaultProxy.before(primary.url()) as address, store_at(address.url(primary.url())) as store:
        assert claims(store)
        with read_only(primary):
            with pytest.raises(StoreUnavailable, match="read-only"):
                claims(store)
            assert not ready(store)
        assert claims(store)
        assert ready(store)


@contextmanager
def read_only(server: EmbeddedPostgres) -> Iterator[None]:
    """As tools for failover, and hosts whose disk is full, make it."""
    with psycopg.connect(server.url().replace("+psycopg", ""), autocommit=True) as admin:
        try:
            admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            admin.execute("SELECT pg_reload_conf()")
            eventually(lambda: admin.execute("SHOW default_transaction_read_only").fetchone() == ("on",))
            yield
        finally:
            admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
            admin.execute("SELECT pg_reload_conf()")
            eventually(lambda: admin.execute("SHOW default_transaction_read_only").fetchone() == ("off",))


def test_of_several_hosts_the_one_that_takes_writes_is_taken(pair: Both) -> None:
    primary, standby = pair
    with store_at(hosts(standby, primary)) as store:
        assert claims(store)
        assert ready(store)


def looks_at(store: SqlStore) -> int:
    """The port of the server at which polls look."""
    with store._looks.connect() as connection:
        return int(connection.exec_driver_sql("SHOW port").scalar_one())


@pytest.mark.parametrize("writes", [True, False], ids=["a worker", "a command"])
def test_of_several_hosts_looks_too_go_to_the_one_that_takes_writes(pair: Both, writes: bool) -> None:
    """A standby does not know which transactions are still open, so a look there would not wait for them."""
    primary, standby = pair
    with closing(connect_store(settings_at(hosts(standby, primary)), writes=writes)) as store:
        assert store.poll(BOX, [0], 10) == []
        assert looks_at(store) == primary.port


def test_of_several_hosts_a_command_looks_at_a_standby_where_none_takes_writes(pair: Both) -> None:
    _, standby = pair
    with closing(connect_store(settings_at(hosts(standby, standby)))) as store:
        assert store.counts(BOX) == {}


def test_looks_do_not_stay_with_a_server_that_has_become_read_only(pair: Both) -> None:
    """Nothing that only reads gets an error there."""
    primary, standby = pair
    with (
        FaultProxy.before(primary.url()) as address,
        closing(connect_store(settings_at(address.url(primary.url())), writes=True)) as store,
    ):
        assert store.poll(BOX, [0], 10) == []
        with read_only(primary):
            eventually(lambda: not may_look(store))
            address.lead_new_to(standby.url())
            with pytest.raises(StoreUnavailable, match="read-only"):
                store.poll(BOX, [0], 10)
        address.lead_new_to(primary.url())
        assert store.poll(BOX, [0], 10) == []


def test_a_command_that_stays_follows_the_address_when_its_server_becomes_read_only(pair: Both) -> None:
    """A console, for example. Where no server takes writes, it goes on reading."""
    primary, standby = pair
    with (
        FaultProxy.before(primary.url()) as address,
        closing(connect_store(settings_at(address.url(primary.url())))) as store,
    ):
        assert looks_at(store) == primary.port
        address.lead_new_to(standby.url())
        assert looks_at(store) == primary.port
        with read_only(primary):
            eventually(lambda: looks_at(store) == standby.port)
        assert looks_at(store) == standby.port
        address.lead_new_to(primary.url())
        assert looks_at(store) == standby.port, "connections to a standby are not made anew all the time"


def may_look(store: SqlStore) -> bool:
    try:
        store.poll(BOX, [0], 10)
    except StoreUnavailable:
        return False
    return True


def settings_at(url: str) -> Settings:
    return Settings.model_validate({"database": {"url": url}})


def test_of_several_hosts_the_listener_listens_at_the_one_that_takes_writes(pair: Both) -> None:
    primary, standby = pair
    with store_at(hosts(standby, primary)) as store:
        wakeups = PostgresWakeups(store.engine)
        assert wakeups.wait(timedelta(0)) == []
        assert wakeups.reliable
        wakeups.close()


def test_the_listener_follows_the_address_once_other_connections_were_dropped(pair: Both) -> None:
    """It only waits, so a server that has become read-only gives it no error."""
    primary, standby = pair
    with (
        FaultProxy.before(primary.url()) as address,
        store_at(address.url(primary.url())) as store,
        closing(PostgresWakeups(store.engine)) as wakeups,
    ):
        assert wakeups.wait(timedelta(0)) == []
        assert may_look(store)
        address.lead_new_to(standby.url())
        assert wakeups.wait(timedelta(0)) == []
        with read_only(primary):
            eventually(lambda: not may_look(store))
        with pytest.raises(StoreUnavailable, match="read-only"):
            wakeups.wait(timedelta(0))


def test_of_several_hosts_a_worker_inside_an_application_takes_the_one_that_takes_writes(
    pair: Both, tmp_path: Path, redis_url: str
) -> None:
    primary, standby = pair
    file = tmp_path / "outbox.yml"
    file.write_text(
        f'database: {{url: "{hosts(standby, primary)}"}}\nredis: {{url: "{redis_url}"}}\n'
        f"outbox_items: {{note_outbox_item: {{transports: {{{__name__}.keep: {{}}}}}}}}\n"
    )
    boxes = boxengine.load(file)
    engine = create_engine(primary.url())
    schema.create(engine, [boxes.box("note_outbox_item")])
    wait_until_followed(primary, standby)
    kept.clear()
    with engine.begin() as connection:
        boxes.create_outbox_item(connection, "note_outbox_item", event_key="7", payload=b"")
    with boxengine.running(boxes) as worker:
        eventually(lambda: kept == ["7"])
        assert worker.ready().ok
    engine.dispose()


def keep(item: boxengine.Item, payload: object) -> None:
    kept.append(item.event_key)


def test_what_only_looks_may_look_at_a_standby(pair: Both) -> None:
    _, standby = pair
    store = SqlStore(connect(standby.url(), connections=1))
    assert store.counts(BOX) == {}
    store.close()


def test_a_replica_may_be_a_standby(pair: Both) -> None:
    primary, standby = pair
    replica = connect(hosts(standby, primary), connections=1, anywhere=True)
    store = SqlStore(connect(primary.url(), connections=1, writes=True), replica=replica, writes=True)
    assert store.poll(BOX, [0], 10) == []
    assert ready(store)
    with replica.connect() as connection:
        assert connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar() is True
    store.close()


def test_a_worker_goes_on_where_a_standby_without_the_last_commits_was_promoted(tmp_path: Path, redis_url: str) -> None:
    with made(tmp_path) as (primary, standby), FaultProxy.before(primary.url()) as address:
        project = Project(tmp_path, database=address.url(primary.url()), redis=redis_url)
        project.fill(20)
        with project.worker() as worker:
            eventually(lambda: project.counts() == {2: 20})
            wait_until_followed(primary, standby)
            cut_off(standby)
            lost = project.fill(100, keys=10)
            eventually(lambda: project.counts() == {2: 120})
            primary.crash()
            address.redirect(standby.url())
            eventually(lambda: worker.logged("does not work"))
            promote(standby)
            written = project.fill(50, keys=10)
            eventually(lambda: project.counts() == {2: 70})
            assert worker.stop() == 0
        assert "Traceback" not in worker.log.read_text()
        assert worker.logged("after a later one") == [], "ids that were given once more are taken for late items"
    sent = [int(line["id"]) for line in project.deliveries()]
    assert set(sent[120:]) >= {each for ids in written.values() for each in ids}
    assert {each for ids in lost.values() for each in ids}.intersection(sent[120:]), "no id was given once more"


def test_jobs_do_again_what_a_promoted_standby_does_not_know(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with made(tmp_path) as (primary, standby), FaultProxy.before(primary.url()) as address:
        url = address.url(primary.url())
        with closing(Shop(tmp_path, url)) as shop, shop.worker(), ThreadPoolExecutor(1) as elsewhere:
            ended = shop.guarded(lease_ttl=3)
            steps = [shop.create("at_leisure", args={"test": shop.test}) for _ in range(2)]
            wait_for(shop, f"begun {ended}", *(f"made {each} 0" for each in steps))
            wait_until_followed(primary, standby)
            cut_off(standby)
            go_on(shop, f"go {ended}", *(f"after {each} 0" for each in steps))
            shop.becomes(ended, JobState.SUCCEEDED)
            created = shop.guarded()
            wait_for(shop, f"begun {created}", *(f"made {each} 1" for each in steps))
            primary.crash()
            promoted = elsewhere.submit(promote, standby)
            address.redirect(standby.url())
            promoted.result()
            shop.store.close()  # the connections of this test, not those of the worker
            for each in steps:
                # The first to go on meets the connection that is lost, the second gets a new one without a word.
                go_on(shop, f"after {each} 1", f"after {each} 2")
                assert shop.becomes(each, JobState.SUCCEEDED)["result"] == 2, "it went on beyond what was lost"
                with shop.engine.connect() as connection:
                    look = text(f"SELECT body FROM effects WHERE body LIKE '{each}:%' ORDER BY id")
                    assert connection.scalars(look).all() == [f"{each}: step {step}" for step in range(3)]
            assert "CheckpointLost: the database does not have the last checkpoint" in str(shop.job(steps[1])["events"])
            assert shop.becomes(ended, JobState.SUCCEEDED)["result"] == "by attempt 2"
            assert "fell silent" in str(shop.job(ended)["events"])
            go_on(shop, f"go {created}")
            assert shop.job(created) is None
    assert "Traceback" not in caplog.text


def wait_for(shop: Shop, *gates: str) -> None:
    for gate in gates:
        assert shop.gates[gate].wait(60), gate


def go_on(shop: Shop, *gates: str) -> None:
    for gate in gates:
        shop.gates[gate].set()


def test_a_mysql_server_that_becomes_read_only_hands_out_no_rows_and_is_not_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    require(MariaDBFromSystem().offer(), promised_servers(os.environ))
    with ExitStack() as stack:
        server = MariaDBFromSystem().start(tmp_path, stack)
        engine = create_engine(server.address)
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE DATABASE shop")
        url = f"{server.address}/shop"
        with store_at(url) as store:
            schema.create(store.engine, [BOX])
            assert claims(store)
            with engine.begin() as connection:
                # The superuser may write even so, on a replica of which nobody thinks that it is written to.
                connection.exec_driver_sql("SET GLOBAL read_only = 1")
            with pytest.raises(StoreUnavailable, match="takes no writes"):
                claims(store)
            assert not ready(store)
            assert [record.getMessage() for record in caplog.records if record.exc_info] == [], "a traceback was logged"
            with engine.begin() as connection:
                connection.exec_driver_sql("SET GLOBAL read_only = 0")
            assert claims(store)
            assert ready(store)
        engine.dispose()


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.ReadOnlySqlTransaction("cannot execute UPDATE in a read-only transaction"),
        pymysql.err.OperationalError(
            1290, "The server is running with the --read-only option so it cannot execute this"
        ),
        pymysql.err.OperationalError(1290, "The server is running with the --super-read-only option"),
        pymysql.err.OperationalError(1792, "Cannot execute statement in a READ ONLY transaction."),
        pymysql.err.InternalError(1836, "Running in read-only mode"),
    ],
)
def test_errors_that_mean_that_nothing_can_be_written(error: Exception) -> None:
    assert refuses_writes(error)


def test_an_option_that_forbids_something_else_does_not() -> None:
    assert not refuses_writes(
        pymysql.err.OperationalError(1290, "The server is running with the --secure-file-priv option")
    )
