"""How the adapters reach the server: the client, its time limits, its errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import SSLConnection, parse_url
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ConnectionError,  # noqa: A004 - as redis-py has it
    MovedError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    TimeoutError,  # noqa: A004 - as redis-py has it
)
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from boxengine.errors import BoxError, ConfigurationError, Problem, QueueUnavailable, Unavailable
from boxengine.ports.credentials import Ask

_NO_SCRIPTS = (
    "; boxengine needs scripts (EVAL, EVALSHA, SCRIPT LOAD): allow them to its user (+@scripting), and on the server"
)
NO_LIMIT = 2**31
"""Connections. Each thread has one at a time. Newer versions of redis-py allow a hundred, and fail the next thread's call."""
Arguments = list[str | int | float | bytes]
"""A script's arguments, after its keys."""

_NO_CLUSTER = (
    "Redis Cluster is not supported: a job, its mark and the leases of its buckets change in one script, and their "
    "keys lie in different slots; use one server, or Sentinel for failover (nothing in Redis needs to outlive it)"
)


def connect(
    url: str = "redis://127.0.0.1:6379/0",
    *,
    sentinels: Sequence[tuple[str, int]] = (),
    master_name: str | None = None,
    sentinel_username: str | None = None,
    sentinel_password: str | None = None,
    password: Ask | None = None,
    cluster: bool = False,
    connect_timeout: timedelta = timedelta(seconds=2),
    answer_timeout: timedelta = timedelta(seconds=5),
    health_check_interval: timedelta = timedelta(seconds=30),
    max_connections: int | None = None,
    tls: Mapping[str, str] = MappingProxyType({}),
) -> redis.Redis:
    """A client for all adapters and threads of this process; no connection is made yet. Closing it closes all that it has made.

    Args:
        url: ``redis://``, ``rediss://`` (TLS) or ``unix://``. With Sentinel it gives the user, password, database and
            whether to use TLS; its host and port are not used.
        sentinels: addresses of Sentinels, with ``master_name`` the name they know the server by.
        sentinel_username, sentinel_password: the Sentinels' own credentials.
        password: what is asked for the password in force before each connection, not to Sentinels; None: the URL holds it.
        cluster: refused with an explanation.
        connect_timeout: how long opening a connection may take.
        answer_timeout: how long any answer may take. A blocking take waits less than that, see ``RedisJobQueue``.
        health_check_interval: a connection that was idle for longer is tried before it is used.
        max_connections: of the pool; None: what the URL says, or no limit.
        tls: ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile``, where TLS is used.

    Raises:
        BoxError: a cluster was asked for, or Sentinels without a name of the master.
        ConfigurationError: the URL makes no sense.
    """
    if cluster:
        raise BoxError(_NO_CLUSTER)
    if sentinels and not master_name:
        raise BoxError("Redis Sentinel needs master_name: the name under which the Sentinels know the server")
    options = _options_of(url) | dict(tls)
    options |= {
        # Each attempt's outcome is reported to the loop that made it. redis-py would retry ten times in silence, which
        # hides an outage from logs and probes, and repeats a pop that may already have taken something.
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": answer_timeout.total_seconds(),
        "health_check_interval": health_check_interval.total_seconds(),
        "client_name": "boxengine",
        # RESP3 would only add a handshake, which old servers refuse.
        "protocol": 2,
        "decode_responses": False,
    }
    if "path" not in options:
        options |= {"socket_connect_timeout": connect_timeout.total_seconds(), "socket_keepalive": True}
    if password is not None:
        options["credential_provider"] = _Login(password, user=options.pop("username", None))
    if max_connections is not None:
        options["max_connections"] = max_connections
    else:
        options.setdefault("max_connections", NO_LIMIT)
    if master_name and sentinels:
        credentials = {"username": sentinel_username, "password": sentinel_password}
        client = _through_sentinels(sentinels, master_name, credentials, options)
    else:
        client = redis.Redis.from_pool(redis.ConnectionPool(**options))
    if refused := refused_options(client.connection_pool):
        raise _wrong_url(f"has an option that redis-py refuses: {refused}")
    return client


class _NoPassword(ConnectionError):
    """redis-py closes the connection only for an error of its own kind; otherwise it would use it without a login."""


class _Login(CredentialProvider):
    def __init__(self, ask: Ask, *, user: str | None) -> None:
        self._ask = ask
        self._user = user

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            user, password = self._ask()
        except Unavailable as error:
            raise _NoPassword(str(error)) from error
        user = user or self._user
        return (password,) if user is None else (user, password)


def refused_options(pool: redis.ConnectionPool) -> str | None:
    """What redis-py has against the options of a pool's connections: it would say so at each command, and not before."""
    try:
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError, RedisError) as error:
        return str(error)
    return None


def _options_of(url: str) -> dict[str, Any]:
    try:
        return dict(parse_url(url))  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
    except ValueError:
        # Both the URL and the error, which quotes what it took for the port, may hold a password.
        raise _wrong_url("is not understood; in a password, / ? # and @ must be written %2F %3F %23 and %40") from None


def _wrong_url(message: str) -> ConfigurationError:
    return ConfigurationError([Problem("", "redis.url", message)])


def _through_sentinels(
    sentinels: Sequence[tuple[str, int]], master_name: str, credentials: dict[str, str | None], options: dict[str, Any]
) -> redis.Redis:
    tls = issubclass(options.pop("connection_class", object), SSLConnection)
    for own_address in ("host", "port", "path"):
        options.pop(own_address, None)
    timeouts = {name: value for name, value in options.items() if name.startswith("socket_")}
    trusting = {name: value for name, value in options.items() if name.startswith("ssl_")}
    reach = {**timeouts, **credentials, **trusting, "retry": options["retry"], "protocol": 2, "ssl": tls}
    # redis-py leaves both untyped.
    sentinel = Sentinel(list(sentinels), sentinel_kwargs=reach)  # type: ignore[no-untyped-call]
    client: redis.Redis = sentinel.master_for(master_name, ssl=tls, **options)  # type: ignore[no-untyped-call]
    return client


@contextmanager
def translated(what: str, client: redis.Redis) -> Iterator[None]:
    """Turns errors of redis-py and of the network into ``QueueUnavailable``; ``what`` was being done with the client."""
    try:
        yield
    except (MovedError, AskError, ClusterCrossSlotError) as error:
        raise QueueUnavailable(f"Redis: cannot {what}: {_NO_CLUSTER}") from error
    except _NoPassword as error:
        raise QueueUnavailable(f"Redis: {error}") from error
    except (ConnectionError, TimeoutError, OSError) as error:
        if unreadable := _unreadable_file(client):
            raise QueueUnavailable(f"Redis: {unreadable}") from error
        # The same words whatever was being done, so that an outage met by several loops is reported once.
        reason = str(error).rstrip(".") or type(error).__name__
        raise QueueUnavailable(f"Redis: {reason}; check redis.url, and that the server runs") from error
    except RedisError as error:
        if takes_no_writes(error):
            client.connection_pool.disconnect(inuse_connections=False)
        hint = _NO_SCRIPTS if _refuses_scripts(error) else ""
        raise QueueUnavailable(f"Redis: cannot {what}: {str(error) or type(error).__name__}{hint}") from error


def _unreadable_file(client: redis.Redis) -> str | None:
    """Of those that TLS needs; the error names none, and seems to be about the server's address."""
    options = client.connection_pool.connection_kwargs
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        path = options.get(name)
        if path and not os.access(path, os.R_OK):
            return f"cannot read {path}; check {name}"
    return None


def takes_no_writes(error: RedisError) -> bool:
    """Whether the server is a replica, or has just become one: after a failover, its name leads to another server.

    A kept connection never would. In older servers' words for a script's error, the code is in the middle.
    """
    told = str(error)
    return isinstance(error, ReadOnlyError) or "READONLY" in told or "UNBLOCKED" in told


def server_of(client: redis.Redis) -> str | None:
    """The run id of the server that the client calls, behind Sentinels of the one that they name; None if nobody tells."""
    pool = client.connection_pool
    with suppress(RedisError, OSError):
        if isinstance(pool, SentinelConnectionPool):
            pool.get_master_address()  # type: ignore[no-untyped-call]  # closes unused connections to another one
        told: Any = client.info("server")
        return str(told["run_id"]) if "run_id" in told else None
    return None


def _refuses_scripts(error: RedisError) -> bool:
    """Whether scripts cannot run, because the user lacks the right or the server has renamed or removed the command."""
    told = str(error).lower()
    refused = isinstance(error, NoPermissionError) or "unknown command" in told
    return refused and ("eval" in told or "'script" in told)


def milliseconds(span: timedelta) -> int:
    """For ``PX``, which refuses zero."""
    return max(1, int(span / timedelta(milliseconds=1)))
