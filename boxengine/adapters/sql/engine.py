"""Connections to the database: how the worker's differ from an application's."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from boxengine.errors import BoxError

CONNECT_TIMEOUT = 5
"""Seconds."""
ROW_LOCK_WAIT = 10
"""Seconds for which a statement waits for rows that somebody else has locked (MySQL)."""
SILENCE_MS = 30_000
"""For how long the other end of a connection may acknowledge nothing before it is given up."""


def connect(url: str, *, connections: int, idle_timeout: timedelta = timedelta(seconds=180)) -> Engine:
    """An engine for the worker; no connection is made yet.

    Args:
        url: SQLAlchemy URL; ``postgresql://`` means psycopg, ``mysql://`` PyMySQL.
        connections: kept open at most; a few more for a short while.
        idle_timeout: after which MySQL closes a connection that has fallen silent, and with it ends its claim.
            PostgreSQL is told in each claim.

    Raises:
        BoxError: the URL makes no sense, or its driver is not installed.
    """
    try:
        address = make_url(url)
        if address.drivername in _DEFAULT_DRIVERS:
            address = address.set(drivername=_DEFAULT_DRIVERS[address.drivername])
        silence = max(1, math.ceil(idle_timeout.total_seconds()))
        return create_engine(
            address,
            # Between the locks and the rows the snapshot must move on, whatever the database's default is.
            isolation_level="READ COMMITTED",
            pool_size=connections,
            max_overflow=4,
            pool_timeout=30,
            # MySQL's limit also meets connections that lie in the pool: they are renewed well before it.
            pool_recycle=-1 if address.get_backend_name() == "postgresql" else silence / 2,
            connect_args=_connect_args(address.get_backend_name(), silence=silence),
        )
    except (ArgumentError, NoSuchModuleError) as error:
        raise BoxError(f"database.url: {error}") from error
    except ModuleNotFoundError as error:
        raise BoxError(f"database.url: the driver is not installed: {error.name}; pip install {error.name}") from error


_DEFAULT_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}


def _connect_args(backend: str, *, silence: int) -> dict[str, Any]:
    if backend == "postgresql":
        return {
            "application_name": "boxengine",
            "connect_timeout": CONNECT_TIMEOUT,
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": SILENCE_MS,
        }
    return {
        "connect_timeout": CONNECT_TIMEOUT,
        # Longer than any statement of boxengine's, lock waits included: the other end has gone.
        "read_timeout": max(silence, 2 * ROW_LOCK_WAIT),
        "write_timeout": max(silence, 2 * ROW_LOCK_WAIT),
        "init_command": f"SET SESSION innodb_lock_wait_timeout = {ROW_LOCK_WAIT}, wait_timeout = {silence}",
    }
