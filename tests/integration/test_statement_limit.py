"""What people ask has a time limit in the database, also behind a pooler, where the session is somebody else's too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from psycopg.pq import TransactionStatus

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.connecting.limiting import shortly, took_too_long
from boxengine.adapters.sql.connecting.reading import reading
from boxengine.errors import StoreUnavailable
from tests.servers.pgbouncer import PgBouncer

LIMIT = timedelta(milliseconds=200)


def breaks_off(engine: sa.Engine, statement: str) -> str:
    with pytest.raises(StoreUnavailable) as told, translated(engine), engine.connect() as connection:
        connection.execute(sa.text(statement))
    return str(told.value)


def limited(url: str, **options: Any) -> sa.Engine:
    return connect(url, connections=1, statement_limit=LIMIT, **options)


def test_a_statement_that_takes_too_long_is_broken_off_and_the_next_one_works(postgres_url: str) -> None:
    engine = limited(postgres_url)
    assert "statement timeout" in breaks_off(engine, "SELECT pg_sleep(30)")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert connection.execute(sa.text("SHOW statement_timeout")).scalar_one() == "200ms"
    engine.dispose()


def test_so_it_is_on_mariadb(mysql_url: str) -> None:
    engine = limited(mysql_url)
    slow = (
        "SELECT count(*) FROM information_schema.columns a, information_schema.columns b, information_schema.columns c"
    )
    assert "max_statement_time" in breaks_off(engine, slow)
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1
    engine.dispose()


def test_a_shorter_limit_ends_with_its_statements_and_the_connection_has_its_own_again(mysql_url: str) -> None:
    engine = connect(mysql_url, connections=1, statement_limit=timedelta(minutes=1))
    with engine.connect() as connection:
        with pytest.raises(sa.exc.DBAPIError) as told, shortly(connection, timedelta(milliseconds=50)):
            connection.exec_driver_sql(
                "SELECT count(*) FROM information_schema.columns a, information_schema.columns b, information_schema.columns c"
            )
        assert told.value.orig is not None
        assert took_too_long(told.value.orig)
        assert connection.exec_driver_sql("SELECT @@SESSION.max_statement_time").scalar_one() == 60
    engine.dispose()


def test_it_is_so_where_each_statement_is_a_transaction(postgres_url: str) -> None:
    engine = connect(postgres_url, connections=1, statement_limit=timedelta(minutes=1))
    with reading(engine) as connection:
        with pytest.raises(sa.exc.DBAPIError) as told, shortly(connection, timedelta(milliseconds=50)):
            connection.exec_driver_sql("SELECT pg_sleep(30)")
        assert told.value.orig is not None
        assert took_too_long(told.value.orig)
        assert connection.exec_driver_sql("SHOW statement_timeout").scalar_one() == "1min"
        with shortly(connection, timedelta(milliseconds=50)):
            assert connection.exec_driver_sql("SHOW statement_timeout").scalar_one() == "50ms"
        assert connection.exec_driver_sql("SHOW statement_timeout").scalar_one() == "1min"
        driver: Any = connection.connection.driver_connection
        assert driver.info.transaction_status == TransactionStatus.IDLE
    engine.dispose()


def test_what_reads_is_limited_behind_a_pooler_too(postgres_url: str, pgbouncer: Callable[..., PgBouncer]) -> None:
    engine = limited(pgbouncer(pool_size=1).url(postgres_url))
    with pytest.raises(sa.exc.DBAPIError) as told, reading(engine) as connection:
        connection.exec_driver_sql("SELECT pg_sleep(30)")
    assert told.value.orig is not None
    assert took_too_long(told.value.orig)
    engine.dispose()


def test_behind_a_pooler_the_limit_stays_with_its_transaction(
    postgres_url: str, pgbouncer: Callable[..., PgBouncer]
) -> None:
    url = pgbouncer(pool_size=1).url(postgres_url)
    engine = limited(url)
    assert "statement timeout" in breaks_off(engine, "SELECT pg_sleep(30)")
    engine.dispose()
    other = connect(url, connections=1)
    with other.connect() as connection:
        assert connection.execute(sa.text("SHOW statement_timeout")).scalar_one() == "0", "another client's own"
    other.dispose()
