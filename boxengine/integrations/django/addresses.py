"""SQLAlchemy URLs of Django's databases, for workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from configparser import Error as NotReadable
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_OF_LIBPQ = (
    "ssl",
    "gss",
    "channel_binding",
    "hostaddr",
    "krbsrvname",
    "load_balance_hosts",
    "options",
    "passfile",
    "require",
    "service",
    "target_session_attrs",
)
"""Prefixes of the libpq parameters that say which server to use and how to reach it."""
_OF_MYSQL = ("init_command", "read_default_file", "read_default_group", "sql_mode", "unix_socket")
"""The options that PyMySQL has under the same names."""
_OF_TLS = frozenset({"ca", "capath", "cert", "check_hostname", "cipher", "key"})
_SETTINGS = {
    "host": "HOST",
    "port": "PORT",
    "user": "USER",
    "password": "PASSWORD",
    "passwd": "PASSWORD",
} | dict.fromkeys(("database", "db", "dbname"), "NAME")
"""The settings that can stand in ``OPTIONS``, too, under the drivers' own names."""


def has_driver(alias: str) -> bool:
    """Whether workers can use such a database at all."""
    return connections[alias].vendor in _DRIVERS


def database_url(alias: str) -> str:
    """SQLAlchemy's URL of one of Django's databases, including the password.

    How the server is reached comes from ``OPTIONS``, too: TLS, Unix sockets, files with defaults.

    Raises:
        ImproperlyConfigured: a worker cannot use that database, or reach it as Django does.
    """
    connection = connections[alias]
    if not has_driver(alias):
        known = "boxengine works with PostgreSQL, MySQL and MariaDB"
        advice = 'name the worker\'s database in BOXENGINE_DATABASE, or its address in BOXENGINE["database"]["url"]'
        raise ImproperlyConfigured(f"{known}, and DATABASES[{alias!r}] is {connection.vendor}; {advice}")
    try:
        return url_of(connection.vendor, connection.settings_dict)
    except ImproperlyConfigured as error:
        advice = 'set BOXENGINE["database"]["url"], for the worker alone'
        raise ImproperlyConfigured(f"DATABASES[{alias!r}]: {error}; or {advice}") from None


def url_of(vendor: str, given: Mapping[str, Any]) -> str:
    """SQLAlchemy's URL of a database of ``DATABASES``; ``vendor`` is ``postgresql`` or ``mysql``.

    Raises:
        ImproperlyConfigured: an option cannot be carried over.
    """
    options = given.get("OPTIONS") or {}
    from sqlalchemy import URL  # noqa: PLC0415 - slow, and every `manage.py` imports this module

    query = _of_postgres(options) if vendor == "postgresql" else _of_mysql(options)
    if vendor == "postgresql" and given.get("NAME") is None:
        query.pop("service", None)
        given = {**given, "NAME": "postgres"}  # as Django has it
    found = _with_settings_of(options, given)
    host, port = str(found.get("HOST") or ""), str(found.get("PORT") or "")
    elsewhere = host.startswith("/") or "," in host + port
    if elsewhere and vendor == "postgresql":
        query |= {"host": host, **({"port": port} if port else {})}
    elif elsewhere:
        query["unix_socket"] = host
    url = URL.create(
        _DRIVERS[vendor],
        username=str(found.get("USER") or "") or None,
        password=str(found.get("PASSWORD") or "") or None,
        host=host if host and not elsewhere else None,
        port=int(port) if port and not elsewhere else None,
        database=str(found.get("NAME") or ""),
        query=query,
    )
    return url.render_as_string(hide_password=False)


def _with_settings_of(options: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings, and for those that are empty what the options say."""
    also = {setting: options[name] for name, setting in _SETTINGS.items() if options.get(name)}
    return {**also, **{setting: value for setting, value in given.items() if value}}


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────────────


def _of_postgres(options: Mapping[str, Any]) -> dict[str, str]:
    found = {name: str(value) for name, value in options.items() if name.startswith(_OF_LIBPQ)}
    if role := options.get("assume_role"):
        # In libpq's options a backslash takes the character after it for part of a word.
        escaped = re.sub(r"([\\\s])", r"\\\1", str(role))
        found["options"] = f"{found.get('options', '')} -c role={escaped}".strip()
    return found


# ── MySQL ────────────────────────────────────────────────────────────────────────────────────────────


def _of_mysql(options: Mapping[str, Any]) -> dict[str, str]:
    found = {name: str(options[name]) for name in _OF_MYSQL if options.get(name)}
    if "read_default_file" in found or "read_default_group" in found:
        found["charset"] = "utf8mb4"  # which Django, too, takes rather than that of the file
    return found | _tls(options)


def _tls(options: Mapping[str, Any]) -> dict[str, str]:
    """How the connection is encrypted, in the words of SQLAlchemy's URLs for PyMySQL."""
    file = _defaults(options)
    given = _given_tls(options)
    if str(given.pop("disabled", "")).lower() in ("1", "true"):
        return {"ssl_disabled": "true"}
    found = {f"ssl_{name}": str(value) for name, value in given.items()}
    mode = str(options.get("ssl_mode") or file.get("ssl-mode") or "").upper()
    verified = bool(found.keys() & {"ssl_ca", "ssl_capath"} or file.keys() & {"ssl-ca", "ssl-capath"})
    match mode:
        case "":
            # A mapping without a CA encrypts; without an option in it, SQLAlchemy would drop it.
            return found or ({"ssl_check_hostname": "false"} if options.get("ssl") else {})
        case "DISABLED":
            return {"ssl_disabled": "true"}
        case "PREFERRED":
            return found
        case "REQUIRED":
            return {"ssl_check_hostname": "false"} | found
        case "VERIFY_CA" | "VERIFY_IDENTITY" if verified:
            return found | {"ssl_check_hostname": str(mode == "VERIFY_IDENTITY").lower()}
        case "VERIFY_CA" | "VERIFY_IDENTITY":
            # Without one, PyMySQL would verify nothing.
            raise ImproperlyConfigured(f'OPTIONS: ssl_mode {mode} needs a CA for the worker: "ssl": {{"ca": "/path"}}')
        case _:
            raise ImproperlyConfigured(f"OPTIONS: ssl_mode {mode} is not understood")


def _given_tls(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of TLS by their names within ``ssl``, in which some drivers have them beside it."""
    given = options.get("ssl")
    if given and not isinstance(given, Mapping) and given is not True:
        raise ImproperlyConfigured("OPTIONS: the worker takes ssl only as a dict of files, or True")
    beside = {
        name.removeprefix("ssl_"): value
        for name, value in options.items()
        if name.startswith("ssl_") and name != "ssl_mode" and value is not None
    }
    found = {**beside, **(given if isinstance(given, Mapping) else {})}
    unknown = found.keys() - _OF_TLS - {"disabled"}
    if unknown:
        named, known = ", ".join(sorted(unknown)), ", ".join(sorted(_OF_TLS))
        raise ImproperlyConfigured(f"OPTIONS: ssl: {named} cannot be carried over to the worker, which knows {known}")
    return found


def _defaults(options: Mapping[str, Any]) -> Mapping[str, str | None]:
    """What the file with defaults says about TLS: of the mode PyMySQL knows nothing."""
    file, group = options.get("read_default_file"), str(options.get("read_default_group") or "client")
    reader = RawConfigParser(allow_no_value=True, strict=False)
    try:
        reader.read(Path(str(file)).expanduser() if file else [], encoding="utf-8")
    except (NotReadable, UnicodeDecodeError, OSError):
        return {}  # the driver will say what is wrong with it
    if not reader.has_section(group):
        return {}
    return {name.replace("_", "-"): value and value.strip("'\"") for name, value in reader.items(group)}
