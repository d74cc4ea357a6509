"""Whether a connection pooler such as PgBouncer stands between us and PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Asks the server for its process id: a pooler has given the client another, for it makes them up.

    Whether it pools by session, which would change nothing, or by transaction cannot be asked.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()", prepare=False)
        row = cursor.fetchone()
    connection.rollback()
    return row is not None and row[0] != connection.info.backend_pid
