"""Connections over TLS: who is trusted, and what is said to somebody who is not.

The servers are PostgreSQL and Valkey behind something that takes TLS off, as a load balancer does, and, where the system has
them, PgBouncer and redis-server, which speak TLS themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from boxengine.adapters.redis.connection import connect as connect_redis
from boxengine.adapters.sql.connecting.engine import connect as connect_database
from boxengine.app.servers import database
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.errors import BoxError, ConfigurationError, QueueUnavailable, StoreUnavailable
from tests.conftest import ServerLookup
from tests.integration.engine.receivers import Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.watcher import PATIENCE
from tests.servers.certificates import Certificate, certify
from tests.servers.redis_tls import TlsRedis
from tests.servers.tls import TlsTerminator

StartPostgres = Callable[..., str]
ITEMS = 100


@pytest.fixture
def trusted(tmp_path: Path) -> Certificate:
    return certify(tmp_path / "trusted")


@pytest.fixture
def stranger(tmp_path: Path) -> Certificate:
    """Another authority."""
    return certify(tmp_path / "stranger")


@pytest.fixture(params=["terminator", "pgbouncer"])
def postgres(request: pytest.FixtureRequest, postgres_url: str, trusted: Certificate) -> Iterator[Callable[[str], str]]:
    """The address of the test's database over TLS, with these parameters."""
    address = make_url(postgres_url)
    with ExitStack() as stack:
        if request.param == "pgbouncer":
            start = request.getfixturevalue("pgbouncer")
            address = make_url(start(pool_mode="session", certificate=trusted).url(postgres_url))
        else:
            assert address.host is not None
            assert address.port is not None
            front = TlsTerminator(address.host, address.port, certificate=trusted, postgres=True)
            address = address.set(port=stack.enter_context(front).port)

        def with_parameters(query: str, host: str = "127.0.0.1") -> str:
            return f"{address.set(host=host).render_as_string(hide_password=False)}?{query}"

        yield with_parameters


@pytest.fixture(params=["terminator", "redis-server"])
def redis_port(
    request: pytest.FixtureRequest, tmp_path: Path, redis_url: str, server_lookup: ServerLookup, trusted: Certificate
) -> Iterator[int]:
    """Of a Redis over TLS."""
    if request.param == "redis-server":
        program = server_lookup("redis-server").address
        with TlsRedis(tmp_path, program=program, certificate=trusted, client_certificates=False) as redis:
            yield redis.port
        return
    address = make_url(redis_url)
    assert address.host is not None
    assert address.port is not None
    with TlsTerminator(address.host, address.port, certificate=trusted) as front:
        yield front.port


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_delivers_and_is_woken_over_tls_that_it_has_verified(
    tmp_path: Path, postgres: Callable[[str], str], redis_url: str, trusted: Certificate
) -> None:
    url = postgres(f"sslmode=verify-full&sslrootcert={trusted.authority}")
    connection = {"listen_url": url}
    with Rig(tmp_path, database=url, redis=redis_url, wakeup="notify", connection=connection) as rig:
        rig.create_tables()
        receiver = Receiver()
        rig.carry(receiver)
        with rig.worker() as watcher:
            ids = rig.create(*range(ITEMS))
            watcher.wait_for_settled(ITEMS)
        assert sorted(receiver.ids) == ids
        assert watcher.outages == []
        with rig.engine.connect() as pooled:
            driver: Any = pooled.connection.driver_connection
            assert driver.pgconn.ssl_in_use
        assert [heard.box_name for heard in woken(rig)] == [BOX]


def woken(rig: Rig) -> list[Any]:
    """What the listener hears of a commit."""
    connected = connect_servers(rig.boxes.resolved.settings)
    assert connected.wakeups is not None
    connected.wakeups.wait(timedelta(0))
    rig.create("a")
    heard = connected.wakeups.wait(timedelta(seconds=PATIENCE))
    connected.close()
    return heard


def settings_of(tmp_path: Path, *, database: str = "postgresql://h/d", redis: str = "redis://h", **config: Any) -> Any:
    with Rig(tmp_path, database=database, redis=redis, **config) as rig:
        return rig.boxes.resolved.settings


@pytest.mark.parametrize(
    ("query", "host", "reason"),
    [
        ("sslmode=verify-full&sslrootcert={stranger}", "127.0.0.1", "certificate verify failed"),
        ("sslmode=verify-ca&sslrootcert={stranger}", "127.0.0.1", "certificate verify failed"),
        ("sslmode=verify-full&sslrootcert=/nowhere/ca.pem", "127.0.0.1", 'root certificate file "/nowhere/ca.pem"'),
        (
            "sslmode=verify-full&sslrootcert={trusted}&hostaddr=127.0.0.1",
            "db.example",
            'not match host name "db.example"',
        ),
        ("sslmode=disable", "127.0.0.1", ""),
    ],
    ids=["strange authority", "strange authority, any host", "no authority", "another host", "no TLS"],
)
def test_a_server_that_cannot_be_trusted_is_refused_and_the_reason_said(
    tmp_path: Path,
    postgres: Callable[..., str],
    trusted: Certificate,
    stranger: Certificate,
    query: str,
    host: str,
    reason: str,
) -> None:
    filled = query.format(trusted=trusted.authority, stranger=stranger.authority)
    settings = settings_of(tmp_path, database=postgres(filled, host))
    store = database.connect_store(settings)
    with pytest.raises(StoreUnavailable) as refused:
        store.ping()
    store.close()
    assert reason in str(refused.value)


def test_the_listener_trusts_no_more_than_the_worker(
    tmp_path: Path, postgres: Callable[[str], str], stranger: Certificate
) -> None:
    settings = settings_of(
        tmp_path, database=postgres(f"sslmode=verify-full&sslrootcert={stranger.authority}"), wakeup="notify"
    )
    connected = connect_servers(settings)
    assert connected.wakeups is not None
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        connected.wakeups.wait(timedelta(0))
    connected.close()


# ── Redis ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_delivers_with_its_queue_and_wake_ups_in_a_redis_over_tls(
    tmp_path: Path, postgres_url: str, redis_port: int, trusted: Certificate
) -> None:
    redis = {"url": f"rediss://localhost:{redis_port}/0", "ssl_ca_certs": str(trusted.authority)}
    with Rig(tmp_path, database=postgres_url, redis="", wakeup="redis", coordinator=redis) as rig:
        rig.create_tables()
        receiver = Receiver()
        rig.carry(receiver)
        with rig.worker() as watcher:
            ids = rig.create(*range(ITEMS))
            watcher.wait_for_settled(ITEMS)
        assert sorted(receiver.ids) == ids
        assert watcher.outages == []


def test_the_authority_may_stand_in_the_url_too(redis_port: int, trusted: Certificate) -> None:
    with connect_redis(f"rediss://localhost:{redis_port}/0?ssl_ca_certs={trusted.authority}") as client:
        assert client.ping()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("rediss://localhost:{port}/0?ssl_ca_certs={stranger}", "CERTIFICATE_VERIFY_FAILED"),
        ("rediss://localhost:{port}/0", "CERTIFICATE_VERIFY_FAILED"),
        ("rediss://ip6-localhost:{port}/0?ssl_ca_certs={trusted}", "ip6-localhost"),
        ("redis://localhost:{port}/0", ""),
    ],
    ids=["strange authority", "the system's authorities", "another host", "no TLS"],
)
def test_a_redis_that_cannot_be_trusted_is_refused_and_the_reason_said(
    tmp_path: Path, redis_port: int, trusted: Certificate, stranger: Certificate, url: str, reason: str
) -> None:
    filled = url.format(port=redis_port, trusted=trusted.authority, stranger=stranger.authority)
    settings = settings_of(tmp_path, redis=filled)
    connected = connect_servers(settings)
    with pytest.raises(QueueUnavailable) as refused:
        connected.queue.ping()
    connected.close()
    assert reason in str(refused.value)


def test_a_redis_that_asks_for_a_clients_certificate_gets_it(
    tmp_path: Path, server_lookup: ServerLookup, trusted: Certificate
) -> None:
    program = server_lookup("redis-server").address
    own = {"ssl_certfile": str(trusted.certificate), "ssl_keyfile": str(trusted.key)}
    with TlsRedis(tmp_path, program=program, certificate=trusted, client_certificates=True) as redis:
        keys = {"url": f"rediss://localhost:{redis.port}/0", "ssl_ca_certs": str(trusted.authority)}
        for more, served in ((own, True), ({}, False)):
            connected = connect_servers(settings_of(tmp_path, coordinator={**keys, **more}))
            if served:
                connected.queue.ping()
            else:
                with pytest.raises(QueueUnavailable):
                    connected.queue.ping()
            connected.close()


# ── mistakes in the configuration ────────────────────────────────────────────────────────────────────


def test_certificates_without_tls_are_a_mistake_that_is_found_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"redis\.ssl_ca_certs: has a meaning only with TLS"):
        settings_of(tmp_path, coordinator={"url": "redis://h", "ssl_ca_certs": "/ca.pem"})


def test_a_missing_file_of_certificates_is_said(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, coordinator={"url": "rediss://127.0.0.1:1", "ssl_ca_certs": "/nowhere/ca.pem"})
    connected = connect_servers(settings)
    with pytest.raises(BoxError, match=r"Redis: cannot read /nowhere/ca\.pem; check ssl_ca_certs$"):
        connected.queue.ping()
    connected.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("ssl_ca=/nowhere/ca.pem", r"No such file or directory; check /nowhere/ca\.pem"),
        ("ssl_ca=/nowhere/ca.pem&ssl_cert=/own.pem", r"No such file or directory; check /nowhere/ca\.pem, /own\.pem"),
        ("foo=bar", "unexpected keyword argument 'foo'"),
    ],
)
def test_options_that_pymysql_cannot_connect_with_are_said_with_their_key(options: str, said: str) -> None:
    engine = connect_database(f"mysql+pymysql://127.0.0.1:1/n?{options}", connections=1)
    with pytest.raises(BoxError, match=rf"^database\.url: .*{said}$"):
        engine.connect()
