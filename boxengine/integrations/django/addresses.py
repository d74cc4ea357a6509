"""SQLAlchemy URLs of Django's databases, for workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from sqlalchemy import URL

_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_OF_LIBPQ = ("ssl", "gss", "channel_binding", "target_session_attrs", "options", "passfile", "service")
"""Prefixes of the libpq parameters that say which server to use and how to reach it."""


def database_url(alias: str) -> str:
    """SQLAlchemy's URL of one of Django's databases, including the password.

    TLS and Unix sockets come from ``OPTIONS``.

    Raises:
        ImproperlyConfigured: a worker cannot use that database.
    """
    connection = connections[alias]
    if connection.vendor not in _DRIVERS:
        known = "boxengine works with PostgreSQL, MySQL and MariaDB"
        raise ImproperlyConfigured(f"{known}; DATABASES[{alias!r}] is {connection.vendor}")
    return url_of(connection.vendor, connection.settings_dict)


def url_of(vendor: str, found: Mapping[str, Any]) -> str:
    """SQLAlchemy's URL of a database of ``DATABASES``; ``vendor`` is ``postgresql`` or ``mysql``."""
    host, port = str(found.get("HOST") or ""), str(found.get("PORT") or "")
    options = found.get("OPTIONS") or {}
    query = _of_postgres(options) if vendor == "postgresql" else _of_mysql(options)
    if host.startswith("/"):
        query["host" if vendor == "postgresql" else "unix_socket"] = host
        if port and vendor == "postgresql":
            query["port"] = port
    url = URL.create(
        _DRIVERS[vendor],
        username=str(found.get("USER") or "") or None,
        password=str(found.get("PASSWORD") or "") or None,
        host=host if host and not host.startswith("/") else None,
        port=int(port) if port and not host.startswith("/") else None,
        database=str(found.get("NAME") or ""),
        query=query,
    )
    return url.render_as_string(hide_password=False)


def _of_postgres(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if name.startswith(_OF_LIBPQ)}


def _of_mysql(options: Mapping[str, Any]) -> dict[str, str]:
    tls = options.get("ssl")
    found = {f"ssl_{name}": str(value) for name, value in tls.items()} if isinstance(tls, Mapping) else {}
    if "unix_socket" in options:
        found["unix_socket"] = str(options["unix_socket"])
    return found
