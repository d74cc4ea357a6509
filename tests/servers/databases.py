"""A fresh database for one test, on any server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pymysql
from psycopg import sql
from sqlalchemy.engine import URL, make_url


@contextmanager
def fresh_postgres_database(server_url: str) -> Iterator[str]:
    """Create an empty database, yield its URL, and drop it even if clients are still connected."""
    server = make_url(server_url)
    name = _name()
    with psycopg.connect(_conninfo(server), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 STRATEGY FILE_COPY").format(sql.Identifier(name)))
    try:
        yield server.set(database=name).render_as_string(hide_password=False)
    finally:
        with psycopg.connect(_conninfo(server), autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def fresh_mysql_database(server_url: str) -> Iterator[str]:
    """Create an empty database, yield its URL, and drop it."""
    server = make_url(server_url)
    name = _name()
    _execute(server, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    try:
        yield server.set(database=name).render_as_string(hide_password=False)
    finally:
        _execute(server, f"DROP DATABASE IF EXISTS {name}")


def with_setting(url: str, setting: str) -> str:
    """The URL of a PostgreSQL database for sessions that begin with a setting: ``datestyle=German``."""
    changed = make_url(url).update_query_dict({"options": f"-c{setting}"})
    return changed.render_as_string(hide_password=False)


def numbered(redis_url: str, number: int) -> str:
    """The logical Redis database ``number`` places after the one that ``redis_url`` names."""
    parsed = urlsplit(redis_url)
    return urlunsplit(parsed._replace(path=f"/{int(parsed.path.strip('/') or 0) + number}"))


def _name() -> str:
    return f"t_{uuid.uuid4().hex[:16]}"


def _conninfo(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _execute(url: URL, statement: str) -> None:
    with (
        pymysql.connect(
            host=url.host, port=url.port or 3306, user=url.username, password=url.password or "", autocommit=True
        ) as admin,
        admin.cursor() as cursor,
    ):
        cursor.execute(statement)
