"""The database under a stage: how it is filled, read, crashed and started again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import psycopg
from sqlalchemy import Connection, NullPool, create_engine

from boxengine.embedded import EmbeddedPostgres
from tests.servers.mariadb import MariaDBServer

WORKER = "boxengine"
"""The account of the workers on MariaDB; the feed, the faults and the checker are root there."""


class Database(Protocol):
    """One server, for all faults of a run."""

    feed_arguments: Mapping[str, Any]
    """Of the feed's connections: it must outlast limits that a fault sets for the workers."""

    def url(self, name: str) -> str:
        """What workers are configured with."""

    def own_url(self, name: str) -> str:
        """For the feed, the faults and the checker."""

    def create(self, name: str) -> None:
        """Makes an empty database."""

    def drop(self, name: str) -> None:
        """Drops it, with whatever is still connected."""

    def session(self, name: str) -> AbstractContextManager[Connection]:
        """A connection in autocommit, free of the limits that a fault may have set."""


class PostgreSQL:
    """The wheel's."""

    feed_arguments: Mapping[str, Any] = {
        "connect_timeout": 5,
        "options": "-c statement_timeout=30s -c default_transaction_read_only=off",
    }

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server

    def url(self, name: str) -> str:
        return self.server.url(name)

    def own_url(self, name: str) -> str:
        return self.server.url(name)

    def create(self, name: str) -> None:
        self.server.create_database(name)

    def drop(self, name: str) -> None:
        with psycopg.connect(self.server.url().replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    @contextmanager
    def session(self, name: str) -> Iterator[Connection]:
        options = "-c statement_timeout=0 -c default_transaction_read_only=off"
        with _autocommit(self.server.url(name), {"options": options, "application_name": "chaos"}) as connection:
            yield connection


class MariaDB:
    """The system's."""

    feed_arguments: Mapping[str, Any] = {
        "connect_timeout": 5,
        "read_timeout": 30,
        "init_command": "SET SESSION max_statement_time = 30",
    }

    def __init__(self, server: MariaDBServer) -> None:
        self.server = server

    def url(self, name: str) -> str:
        return self.server.url(name, user=WORKER)

    def own_url(self, name: str) -> str:
        return self.server.url(name)

    def create(self, name: str) -> None:
        with self.session() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
            connection.exec_driver_sql(f"CREATE USER IF NOT EXISTS {WORKER}@'127.0.0.1'")
            # Without rights over the server, so that read_only holds for the workers.
            connection.exec_driver_sql(f"GRANT ALL ON {name}.* TO {WORKER}@'127.0.0.1'")

    def drop(self, name: str) -> None:
        with self.session() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}")

    @contextmanager
    def session(self, name: str = "") -> Iterator[Connection]:
        with _autocommit(self.server.url(name), {"init_command": "SET SESSION max_statement_time = 0"}) as connection:
            yield connection


@contextmanager
def _autocommit(url: str, arguments: Mapping[str, Any]) -> Iterator[Connection]:
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=dict(arguments))
    with engine.connect() as connection:
        yield connection
