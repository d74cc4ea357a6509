"""How the worker's connections are made: what the URL says, and what boxengine adds to it."""

from __future__ import annotations

from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any
from unittest.mock import patch

import pytest
from pymysql._auth import sha2_rsa_encrypt
from pymysql.connections import Connection
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, event, inspect
from sqlalchemy.exc import OperationalError

from boxengine.adapters.sql.connecting import engine as connecting
from boxengine.adapters.sql.waking.listen import PostgresWakeups
from boxengine.app.servers.database import connect_store
from boxengine.errors import BoxError
from boxengine.settings import Settings
from boxengine.settings.schema import DatabaseSettings

POSTGRESQL = "postgresql+psycopg://h/n"
MYSQL = "mysql+pymysql://h/n"


class Asked(Exception):
    """The driver would connect now."""


def asked(engine: Engine) -> dict[str, Any]:
    """The options that the driver gets."""
    found: dict[str, Any] = {}

    def keep(*_arguments: object, **options: Any) -> None:
        found.update({name: value for name, value in options.items() if name != "context"})
        raise Asked

    with (
        patch.object(engine.dialect, "connect", keep),
        patch.object(connecting, "sharing", lambda _kind: keep),
        pytest.raises(Asked),
    ):
        engine.connect()
    return found


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("connect_timeout", "30"),
        ("application_name", "orders"),
        ("keepalives_idle", "60"),
        ("keepalives_interval", "20"),
        ("keepalives_count", "9"),
        ("tcp_user_timeout", "120000"),
    ],
)
def test_what_the_url_says_wins_on_postgresql(option: str, value: str) -> None:
    options = asked(connecting.connect(f"{POSTGRESQL}?{option}={value}", connections=1))
    own = asked(connecting.connect(POSTGRESQL, connections=1))
    assert options == own | {option: value}


def test_the_driver_gets_text_in_utf8_whatever_the_url_says() -> None:
    assert asked(connecting.connect(f"{POSTGRESQL}?client_encoding=latin1", connections=1))["client_encoding"] == "utf8"


@pytest.mark.parametrize("option", ["connect_timeout", "read_timeout", "write_timeout"])
def test_what_the_url_says_wins_on_mysql(option: str) -> None:
    options = asked(connecting.connect(f"{MYSQL}?{option}=300", connections=1))
    assert options == asked(connecting.connect(MYSQL, connections=1)) | {option: 300}


def test_a_package_that_pymysql_lacks_to_authenticate_with_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As caching_sha2_password, with which MySQL 8 makes its accounts, does without TLS."""
    monkeypatch.setattr("pymysql._auth._have_cryptography", False)
    engine = connecting.connect(MYSQL, connections=1)

    def authenticate(*_arguments: object, **_options: object) -> None:
        sha2_rsa_encrypt(b"secret", b"salt", b"key")

    with (
        patch.object(connecting, "sharing", lambda _kind: authenticate),
        pytest.raises(BoxError, match=r"^database\.url: 'cryptography' package is required .*; install it .* TLS"),
    ):
        engine.connect()


@pytest.mark.parametrize(("options", "counts"), [("", {0, 1}), ("?ssl_ca=authority.pem", {3})])
def test_attempts_to_connect_share_a_tls_context_unless_it_is_made_of_files(
    options: str, counts: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[SSLContext]()

    def make(*_: object) -> SSLContext:
        made.append(SSLContext(PROTOCOL_TLS_CLIENT))
        return made[-1]

    monkeypatch.setattr(Connection, "_create_ssl_ctx", make)
    engine = connecting.connect(f"mysql+pymysql://nobody@127.0.0.1:1/nothing{options}", connections=1)
    for _ in range(3):
        with pytest.raises(OperationalError, match="Can't connect"):
            engine.connect()
    assert len(made) in counts  # none: another test has made the shared one


def test_the_listener_keeps_its_connection_alive_as_the_url_says() -> None:
    engine = connecting.connect(f"{POSTGRESQL}?keepalives_idle=60", connections=1)
    options = PostgresWakeups(engine)._options
    assert (options["keepalives_idle"], options["keepalives_count"]) == ("60", 3)


@pytest.mark.parametrize("patient", [False, True])
def test_only_a_patient_connection_waits_for_an_answer_without_a_limit(*, patient: bool) -> None:
    store = connect_store(Settings(database=DatabaseSettings(url=MYSQL)), patient=patient)
    assert ("read_timeout" in asked(store.engine)) is not patient


def test_both_the_urls_settings_and_ours_are_in_force(mysql_url: str) -> None:
    theirs = "SET SESSION wait_timeout = 77, sql_mode = 'ANSI_QUOTES'"
    engine = connecting.connect(f"{mysql_url}{'&' if '?' in mysql_url else '?'}init_command={theirs}", connections=1)
    with engine.connect() as connection:
        settings = "@@wait_timeout, @@sql_mode, @@innodb_lock_wait_timeout, @@lock_wait_timeout"
        found = connection.exec_driver_sql(f"SELECT {settings}").one()
    engine.dispose()
    assert "ANSI_QUOTES" in found[1]
    assert (found[0], found[2], found[3]) == (77, connecting.ROW_LOCK_WAIT, connecting.ROW_LOCK_WAIT)


@pytest.mark.parametrize("first", ["STRICT_ALL_TABLES", "ANSI_QUOTES"])
def test_names_are_quoted_alike_on_all_connections_though_somebody_changes_the_servers_sql_mode(
    mysql_url: str, first: str
) -> None:
    modes = iter([first, "STRICT_ALL_TABLES" if first == "ANSI_QUOTES" else "ANSI_QUOTES"])
    engine = connecting.connect(mysql_url, connections=1)

    def begin_session(connection: Any, _record: object) -> None:
        connection.query(f"SET SESSION sql_mode = '{next(modes)}'")

    event.listen(engine, "connect", begin_session, insert=True)
    table = Table("order", MetaData(), Column("select", Integer))
    table.create(engine)
    engine.dispose()
    with engine.connect() as connection:
        assert [each["name"] for each in inspect(connection).get_columns("order")] == ["select"]
        assert connection.execute(table.select()).all() == []
    engine.dispose()
    assert next(modes, None) is None


@pytest.mark.parametrize(("theirs", "expected"), [("", 0), ("SET SESSION idle_transaction_timeout = 77", 77)])
def test_mariadb_ends_no_transaction_of_a_worker_that_waits_for_a_transport(
    mysql_url: str, theirs: str, expected: int
) -> None:
    url = f"{mysql_url}{'&' if '?' in mysql_url else '?'}init_command={theirs}" if theirs else mysql_url
    admin, engine = create_engine(mysql_url, isolation_level="AUTOCOMMIT"), connecting.connect(url, connections=1)
    with admin.connect() as connection:
        if not connection.dialect.is_mariadb:  # type: ignore[attr-defined]
            pytest.skip("the server has no idle_transaction_timeout")
        connection.exec_driver_sql(
            "SET GLOBAL idle_transaction_timeout = 3600"
        )  # long enough for the server's other users
        try:
            with engine.connect() as worker:
                found = worker.exec_driver_sql("SELECT @@SESSION.idle_transaction_timeout").scalar()
        finally:
            connection.exec_driver_sql("SET GLOBAL idle_transaction_timeout = DEFAULT")
    admin.dispose()
    engine.dispose()
    assert found == expected
