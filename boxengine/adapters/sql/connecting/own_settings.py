"""Settings of a database or an account that a worker on PostgreSQL must not be subject to."""

from __future__ import annotations

from typing import Any

import psycopg

from boxengine.adapters.sql.connecting.pooler import is_known_as_pooled, is_pooled

_NO_LIMITS = " UNION ALL ".join(
    # A worker's pool and its listener may rest for hours, and a batch lasts as long as the calls of its transports. Older
    # versions have no such settings.
    f"SELECT set_config('{name}', '0', false) WHERE current_setting('{name}', true) <> '0'"
    for name in ("idle_session_timeout", "transaction_timeout")
)
_KEEPALIVES = (
    # Where a worker's machine vanishes in the middle of a batch, the server frees its locks after half a minute. By the settings
    # of its system it would not notice for hours.
    "SELECT set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false), "
    "set_config('tcp_keepalives_count', '3', false)"
)
_READ_COMMITTED = (
    # What a transaction says when it begins does not hold for statements without one: looks, and deletions. Under a default of
    # SERIALIZABLE, a look at where items are inserted has the server fail transactions of applications.
    "SELECT set_config('default_transaction_isolation', 'read committed', false) "
    "WHERE current_setting('default_transaction_isolation') <> 'read committed'"
)
TEXTS = " UNION ALL ".join(
    # The first would make the text NULL of an array's missing values, and no outcome in a log could be recorded. Under the second
    # the names of types come in quotes, and SQLAlchemy does not know them.
    f"SELECT set_config('{name}', '{value}', false) WHERE current_setting('{name}') <> '{value}'"
    for name, value in (("array_nulls", "on"), ("quote_all_identifiers", "off"))
)
"""How values and names are read and written as texts."""
_ISO = (
    # The driver reads no other dates. Poolers keep this setting for each client.
    "SELECT set_config('datestyle', 'ISO', false) WHERE current_setting('datestyle') NOT LIKE 'ISO%'"
)


def set_on(connection: psycopg.Connection[Any]) -> None:
    """Makes the settings for the session of a new connection in autocommit mode."""
    if not is_pooled(connection):
        connection.execute(f"{_NO_LIMITS}; {_KEEPALIVES}; {_READ_COMMITTED}; {TEXTS}", prepare=False)
    if not (connection.info.parameter_status("DateStyle") or "").startswith("ISO"):
        connection.execute(_ISO, prepare=False)


def set_again(connection: psycopg.Connection[Any]) -> tuple[str, ...]:
    """The statements that do the same after a ``RESET ALL``. Behind a pooler the session itself is not ours."""
    return (_ISO,) if is_known_as_pooled(connection) else (_ISO, _NO_LIMITS, _KEEPALIVES, _READ_COMMITTED, TEXTS)
