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
_ISO = (
    # The driver reads no other dates. Poolers keep this setting for each client.
    "SELECT set_config('datestyle', 'ISO', false) WHERE current_setting('datestyle') NOT LIKE 'ISO%'"
)


def set_on(connection: psycopg.Connection[Any]) -> None:
    """Makes the settings for the session of a new connection in autocommit mode."""
    if not is_pooled(connection):
        connection.execute(_NO_LIMITS, prepare=False)
    if not (connection.info.parameter_status("DateStyle") or "").startswith("ISO"):
        connection.execute(_ISO, prepare=False)


def set_again(connection: psycopg.Connection[Any]) -> tuple[str, ...]:
    """The statements that do the same after a ``RESET ALL``. Behind a pooler the session itself is not ours."""
    return (_ISO,) if is_known_as_pooled(connection) else (_ISO, _NO_LIMITS)
