"""Whether a connection pooler such as PgBouncer stands between us and PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Compares the server's process id with the one the client was given: a pooler gives clients invented ids.

    This cannot tell a pooler by session, which would be harmless, from one by transaction.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()", prepare=False)
        row = cursor.fetchone()
    connection.rollback()
    return row is not None and row[0] != connection.info.backend_pid


def shares_servers(connection: psycopg.Connection[Any]) -> bool:
    """Whether the pooler gives a server to somebody else between two transactions of one client.

    Asks as two clients, neither of which has a transaction open: a pooler by session keeps the first one's server for it.
    Under load another client may have taken that server meanwhile, so a yes is certain and a no is not.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()", prepare=False)
        first = cursor.fetchone()
    connection.rollback()
    parameters: dict[str, Any] = {**connection.info.get_parameters(), "connect_timeout": 5}
    if connection.info.password:
        parameters["password"] = connection.info.password
    with psycopg.connect(**parameters, autocommit=True) as other:
        second = other.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    return first == second
