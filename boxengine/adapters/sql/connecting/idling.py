"""Keeps PostgreSQL from ending a worker's connections while there is nothing to do (``idle_session_timeout``).

A worker's pool and its listener may rest for hours. Whoever sets that limit means clients that were forgotten.
"""

from __future__ import annotations

from typing import Any

import psycopg

from boxengine.adapters.sql.connecting.pooler import is_pooled

NO_LIMIT = (
    # Versions before 14 do not know it.
    "SELECT set_config('idle_session_timeout', '0', false) WHERE current_setting('idle_session_timeout', true) <> '0'"
)


def stay(connection: psycopg.Connection[Any]) -> None:
    """Lifts the limit for the session of a connection in autocommit mode. Behind a pooler the session is not ours."""
    if not is_pooled(connection):
        connection.execute(NO_LIMIT, prepare=False)
