"""The Redis client: time limits, no hidden retries, TLS, Sentinel, and a clear no to Cluster."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.sentinel import SentinelConnectionPool, SentinelManagedSSLConnection

from boxengine.adapters.redis.connection import connect, milliseconds, translated
from boxengine.app.servers.redis import redis_client
from boxengine.errors import BoxError, ConfigurationError, QueueUnavailable
from boxengine.settings import load

SENTINELS = [("10.0.0.1", 26379), ("10.0.0.2", 26379)]


def settings(client: redis.Redis) -> dict[str, Any]:
    return client.connection_pool.connection_kwargs


def test_answers_and_connections_have_time_limits() -> None:
    with connect("redis://127.0.0.1:1/3") as client:
        assert settings(client)["socket_timeout"] == 5.0
        assert settings(client)["socket_connect_timeout"] == 2.0
        assert settings(client)["db"] == 3
        assert settings(client)["client_name"] == "boxengine"


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "rediss://127.0.0.1:1/0", "unix:///nowhere/redis.sock"])
def test_a_failed_command_is_not_tried_again_in_silence(url: str) -> None:
    with connect(url) as client:
        connection = client.connection_pool.make_connection()
        assert connection.retry.get_retries() == 0


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://127.0.0.1:1/0", Connection),
        ("rediss://127.0.0.1:1/0", SSLConnection),
        ("unix:///nowhere/redis.sock?db=2", UnixDomainSocketConnection),
    ],
)
def test_the_scheme_decides_how_to_connect(url: str, kind: type[Connection]) -> None:
    with connect(url) as client:
        assert type(client.connection_pool.make_connection()) is kind


def test_with_sentinels_the_url_gives_credentials_database_and_tls() -> None:
    with connect("rediss://app:secret@ignored:1/4", sentinels=SENTINELS, master_name="main") as client:
        assert isinstance(client.connection_pool, SentinelConnectionPool)
        assert client.connection_pool.connection_class is SentinelManagedSSLConnection
        assert "host" not in settings(client)
        assert (settings(client)["username"], settings(client)["password"]) == ("app", "secret")
        assert settings(client)["db"] == 4
        assert settings(client)["socket_timeout"] == 5.0


def test_sentinels_have_credentials_and_time_limits_of_their_own() -> None:
    with connect("redis://ignored:1/0", sentinels=SENTINELS, master_name="main", sentinel_password="other") as client:
        pool = client.connection_pool
        assert isinstance(pool, SentinelConnectionPool)
        reached = [settings(sentinel) for sentinel in pool.sentinel_manager.sentinels]
        assert [(kwargs["host"], kwargs["port"]) for kwargs in reached] == SENTINELS
        assert {kwargs["password"] for kwargs in reached} == {"other"}
        assert {kwargs["socket_timeout"] for kwargs in reached} == {5.0}


def test_certificates_hold_for_the_sentinels_and_their_master() -> None:
    tls = {"ssl_ca_certs": "/ca.pem", "ssl_certfile": "/own.pem"}
    with connect("rediss://ignored:1/0", sentinels=SENTINELS, master_name="main", tls=tls) as client:
        pool = client.connection_pool
        assert isinstance(pool, SentinelConnectionPool)
        for kwargs in (pool.connection_kwargs, *map(settings, pool.sentinel_manager.sentinels)):
            assert kwargs.items() >= tls.items()


def test_a_password_with_signs_of_a_url_in_it_reaches_the_master(tmp_path: Path) -> None:
    (tmp_path / "outbox.yml").write_text(
        "redis: {sentinels: ['s:1'], master_name: m, password: 'p@s/s%#', username: u}"
    )
    with redis_client(load(None, env=None, environ={}, cwd=tmp_path)) as client:
        assert client.connection_pool.connection_kwargs["password"] == "p@s/s%#"


def test_sentinels_without_a_master_name_are_refused() -> None:
    with pytest.raises(BoxError, match="master_name"):
        connect(sentinels=SENTINELS)


def test_a_cluster_is_refused_with_the_reason() -> None:
    with pytest.raises(BoxError, match="different slots"):
        connect(cluster=True)


@pytest.mark.parametrize(
    "rest", ["redis://h/0?foo=bar", "redis://h/0?ssl_cert_reqs=none", "rediss://h/0?ssl_cert_reqs=perhaps"]
)
@pytest.mark.parametrize(
    "reach", [{}, {"sentinels": SENTINELS, "master_name": "main"}], ids=["directly", "by-sentinel"]
)
def test_an_option_that_redis_py_would_refuse_at_each_command_is_refused_at_once(
    rest: str, reach: dict[str, Any]
) -> None:
    with pytest.raises(
        ConfigurationError, match=r"redis\.url: has an option that redis-py refuses: .*(foo|ssl_cert|perhaps)"
    ):
        connect(rest, **reach)


@pytest.mark.parametrize("option", ["socket_timeout=soon", "db=x"])
def test_an_option_without_a_number_is_a_mistake_of_the_configuration(option: str) -> None:
    with pytest.raises(ConfigurationError, match=r"redis\.url: is not understood"):
        connect(f"redis://h/0?{option}")


@pytest.mark.parametrize("url", ["rediss://h/0?ssl_cert_reqs=none", "redis://h/0?max_connections=4", "unix:///r?db=1"])
def test_options_that_redis_py_knows_stand_in_the_url(url: str) -> None:
    connect(url).close()


def test_a_wrong_url_is_refused_without_repeating_its_password() -> None:
    with pytest.raises(BoxError, match=r"redis\.url") as caught:
        connect("http://user:hunter2@example/0")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        *(redis.exceptions.ConnectionError("gone"), redis.exceptions.TimeoutError(), OSError(104, "reset")),
        *(redis.exceptions.BusyLoadingError("LOADING"), redis.exceptions.ResponseError("WRONGTYPE")),
    ],
)
def test_errors_of_the_driver_are_translated_with_their_cause(error: Exception) -> None:
    with pytest.raises(QueueUnavailable, match=r"Redis: .+") as caught, translated("push jobs", connect()):
        raise error
    assert caught.value.__cause__ is error


def test_a_server_that_turns_out_to_be_a_cluster_is_named_as_such() -> None:
    moved = redis.exceptions.MovedError("3999 10.0.0.3:6381")
    with pytest.raises(QueueUnavailable, match="Cluster is not supported"), translated("push jobs", connect()):
        raise moved


def test_other_errors_pass_untranslated() -> None:
    with pytest.raises(KeyError), translated("push jobs", connect()):
        raise KeyError("bug")


def test_a_time_limit_never_becomes_zero() -> None:
    assert milliseconds(timedelta(microseconds=1)) == 1
    assert milliseconds(timedelta(minutes=1)) == 60_000


def test_an_address_of_ipv6_is_one_without_its_brackets(tmp_path: Path) -> None:
    (tmp_path / "outbox.yml").write_text("redis: {sentinels: '[::1]:26379, sentinel:26380', master_name: m}")
    with redis_client(load(None, env=None, environ={}, cwd=tmp_path)) as client:
        pool = client.connection_pool
        assert isinstance(pool, SentinelConnectionPool)
        asked = map(settings, pool.sentinel_manager.sentinels)
        assert [(each["host"], each["port"]) for each in asked] == [("::1", 26379), ("sentinel", 26380)]
