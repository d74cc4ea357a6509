"""The drivers that URLs of the database name: which the worker can use, and which only an application can."""

from __future__ import annotations

from collections.abc import Iterator

from boxengine.errors import BadUsage, Problem
from boxengine.settings.diagnosis import Finding
from boxengine.settings.origin import dotted
from boxengine.settings.schema import Settings

_DRIVERS = {
    "postgresql": ("psycopg",),
    "mysql": ("pymysql", "mysqldb"),
    "mariadb": ("pymysql", "mysqldb"),
}
"""By the database: what the worker can use, the usual one first."""
_OF_APPLICATIONS = {
    "postgresql": frozenset({"asyncpg", "psycopg_async", "psycopg2", "psycopg2cffi", "pg8000"}),
    "mysql": frozenset({"aiomysql", "asyncmy", "mysqlconnector", "mariadbconnector"}),
    "mariadb": frozenset({"aiomysql", "asyncmy", "mysqlconnector", "mariadbconnector"}),
}
"""Drivers that an application may use: the worker reaches the same database by its own."""
_KEYS = ("url", "replica_url", "listen_url")
"""Of the section ``database``."""


def check(settings: Settings) -> Iterator[Finding]:
    """URLs of the database that the worker cannot use."""
    for key in _KEYS:
        url = getattr(settings.database, key)
        fault = None if url is None else fault_of_driver(url)
        if fault is not None:
            yield Finding(("database", key), fault)


def demand_url(settings: Settings) -> str:
    """The URL of the worker's database.

    Raises:
        BadUsage: it is missing, or names what the worker cannot use.
    """
    url = settings.database.url
    if url is None:
        raise BadUsage(
            "database.url is missing: set DATABASE_URL, or add the key to the configuration, such as "
            "postgresql+psycopg://user@host/name"
        )
    fault = fault_of_driver(url)
    if fault is not None:
        raise BadUsage(f"database.url: {fault}")
    return url


def fault_of_driver(url: str) -> str | None:
    """Why the worker cannot work with what this URL names; None if it can."""
    drivername = url.partition("://")[0]
    backend, _, driver = drivername.partition("+")
    usable = _DRIVERS.get(backend)
    if usable is None:
        return (
            f"the worker does not work with {backend}; "
            "expected PostgreSQL (postgresql+psycopg://), MySQL or MariaDB (mysql+pymysql://)"
        )
    if not driver or driver in usable or driver in _OF_APPLICATIONS[backend]:
        return None
    return (
        f"the driver {driver} is not supported; expected {backend}+{usable[0]}:// "
        "(an application may use another URL of its own)"
    )


def note_on_driver(url: str) -> str | None:
    """What is said where the URL names an application's driver; None where it names the worker's own, or none."""
    backend, _, driver = url.partition("://")[0].partition("+")
    if driver not in _OF_APPLICATIONS.get(backend, ()):
        return None
    return f"{driver} is the application's driver; the worker reaches the same database by {_DRIVERS[backend][0]}"


def drivers_of_applications(settings: Settings) -> list[Problem]:
    """To be logged at start, and asking for nothing: URLs of the database that name an application's driver."""
    urls = {key: getattr(settings.database, key) for key in _KEYS}
    notes = {("database", key): note_on_driver(url) for key, url in urls.items() if url is not None}
    return [Problem(settings.origin.file(path), dotted(path), note) for path, note in notes.items() if note is not None]
