"""A log that goes on elsewhere, with real servers: out of a dump, and out of a copy that lacks the last commits."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from boxengine.adapters.sql.log.foreign import reposition
from boxengine.adapters.sql.looking.census import SqlCensus
from boxengine.adapters.sql.making import checks
from boxengine.domain.item import Status
from boxengine.embedded import EmbeddedPostgres
from boxengine.embedded.account import unprivileged_account
from boxengine.embedded.wheels import postgres_installation
from boxengine.errors import StoreUnavailable
from boxengine.ports import Count
from tests.eventually import eventually
from tests.integration.log.bench import Bench
from tests.servers.postgres import PostgresFromWheel
from tests.servers.promised import promised_servers, require
from tests.servers.standby import standby_of

pytestmark = pytest.mark.xdist_group("moved servers")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that no other test knows."""
    require(PostgresFromWheel().offer(), promised_servers(os.environ))
    folder = tmp_path_factory.mktemp("moved") / "other"
    with EmbeddedPostgres(folder, durable=False, settings={"wal_level": "logical"}) as server:
        yield server


@contextmanager
def bench_at(url: str) -> Iterator[Bench]:
    bench = Bench(url)
    try:
        yield bench
    finally:
        bench.engine.dispose()


def copy_by_dump(source: str, target: str) -> None:
    programs = f"{postgres_installation(unprivileged_account())}/bin"
    plain = source.replace("+psycopg", "")
    dump = subprocess.run([f"{programs}/pg_dump", plain], check=True, capture_output=True, timeout=300)
    restore = [f"{programs}/psql", "--quiet", "--set=ON_ERROR_STOP=1", target.replace("+psycopg", "")]
    subprocess.run(restore, input=dump.stdout, check=True, capture_output=True, timeout=300)


@pytest.mark.parametrize("burned", [0, 5000])
def test_a_dump_goes_on_in_another_cluster_whatever_its_count_of_transactions_and_loses_nothing(
    postgres_url: str, other: EmbeddedPostgres, burned: int, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"restored_{burned}"
    with ExitStack() as stack:
        old = stack.enter_context(bench_at(postgres_url))
        passed = [old.commit() for _ in range(5)]
        assert old.take() == passed
        failed = old.commit()
        assert old.take(fail=(failed,)) == [failed]
        # Its item has a lower id than one that was passed.
        slow = stack.enter_context(old.engine.connect())
        late = old.put(slow)
        quick = old.commit()
        assert old.take() == [quick]
        slow.commit()
        partly = [old.commit() for _ in range(4)]
        assert old.take(send=2) == [late, partly[0]]
        pending = old.commit(bucket=1)
        with bench_at(other.url()) as server:
            server.engine.update_execution_options(isolation_level="AUTOCOMMIT")
            with server.engine.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
                connection.exec_driver_sql(
                    f"DO $$ BEGIN FOR i IN 1..{burned} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
                )
        copy_by_dump(postgres_url, other.url(name))
    with caplog.at_level(logging.WARNING), bench_at(other.url(name)) as new:
        written = [new.commit() for _ in range(3)]
        told = SqlCensus(new.store).take(new.box).pending
        delivered = new.take(buckets=(0, 1))
        delivered += new.take(buckets=(0, 1))
        due = {*partly[1:], pending, *written}
        assert due <= set(delivered)
        assert set(delivered) <= due | {late, *partly}, "what was passed long ago must not go out again"
        assert (failed, Status.PENDING, 1) in new.side()
        assert told == Count(len({*delivered, failed}))
        again = new.commit()
        assert new.take(buckets=(0, 1)) == [again]
    assert sum("another server's transactions" in each.getMessage() for each in caplog.records) == 1


def test_a_copy_of_the_disk_without_the_last_commits_goes_on_where_its_own_positions_are(
    other: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("moved") / "copy"
    with bench_at(other.url()) as old:
        passed, waiting = [old.commit(), old.commit()], [old.commit(key="2"), old.commit(key="3")]
        assert old.take(send=2) == passed
        copy = standby_of(other, folder)
        (folder / "postgres" / "standby.signal").unlink()  # it follows nobody
        assert old.take() == waiting
        lost = old.commit()
        assert old.take() == [lost]
    with copy, bench_at(copy.url()) as new:
        assert new.take() == waiting
        assert reposition(new.engine, new.box) is None
        after = [new.commit(), new.commit()]
        assert new.take() == after


@pytest.mark.parametrize("burned", [0, 20_000])
def test_a_logical_copy_delivers_once_no_row_arrives_any_more_and_loses_nothing(
    postgres_url: str, other: EmbeddedPostgres, burned: int
) -> None:
    name = f"published_{burned}"
    with bench_at(other.url()) as server, ExitStack() as stack:
        alone = stack.enter_context(server.engine.connect().execution_options(isolation_level="AUTOCOMMIT"))
        alone.exec_driver_sql(f"CREATE DATABASE {name}")
        old = stack.enter_context(bench_at(other.url(name)))
        new = stack.enter_context(bench_at(postgres_url))
        here = stack.enter_context(new.engine.connect().execution_options(isolation_level="AUTOCOMMIT"))
        here.exec_driver_sql(
            f"DO $$ BEGIN FOR i IN 1..{burned} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
        )
        old.run("CREATE PUBLICATION leaving FOR TABLE order_items_log")
        items = [old.commit()]
        source = other.url(name).replace("+psycopg", "")
        here.exec_driver_sql(f"CREATE SUBSCRIPTION arriving CONNECTION '{source}' PUBLICATION leaving")
        try:
            eventually(lambda: len(new.ask("SELECT FROM order_items_log")) == len(items))
            with pytest.raises(StoreUnavailable, match=r"still arrive .* \(arriving\)"):
                new.take()
            with pytest.raises(StoreUnavailable, match=r"still arrive .* \(arriving\)"):
                reposition(new.engine, new.box, anyway=True)
            (told,) = [each for each in checks.check(new.engine, [new.box]) if each.severity == "error"]
            assert "still arrive" in told.message
            items.append(old.commit())
            eventually(lambda: len(new.ask("SELECT FROM order_items_log")) == len(items))
        finally:
            here.exec_driver_sql("DROP SUBSCRIPTION arriving")
        new.run(f"SELECT setval('order_items_id_seq', {items[-1]})")
        items.append(new.commit())
        assert new.take() == items
        assert checks.check(new.engine, [new.box]) == []
