"""Whether a connection pooler such as PgBouncer stands between us and PostgreSQL, and what must be different then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq.abc import PGconn

_FOUND: WeakKeyDictionary[PGconn, bool] = WeakKeyDictionary()
"""What ``is_pooled`` has found out, by libpq's connection: what adds comments wraps psycopg's anew each time."""


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Compares the server's process id with the one the client was given: a pooler gives clients invented ids. Asks once.

    This cannot tell a pooler by session, which would be harmless, from one by transaction.
    """
    known = _FOUND.get(connection.pgconn)
    if known is None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()", prepare=False)
            row = cursor.fetchone()
        connection.rollback()
        known = _FOUND[connection.pgconn] = row is not None and row[0] != connection.info.backend_pid
    return known


def is_known_as_pooled(connection: psycopg.Connection[Any]) -> bool:
    """What ``is_pooled`` has found out; False if nobody has asked yet."""
    return _FOUND.get(connection.pgconn, False)


@contextmanager
def committing(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Sends the statements of the block together, and commits.

    The commit travels with them, except where ``is_pooled`` has found a pooler. The driver ends a pipeline with a Sync and,
    if answers are missing, a Flush. A pooler by transaction may read the commit's answer before that Flush. It has then given
    the server away, gives the client another one for the Flush, which is never answered, and does not take it back: with few
    servers, all other clients wait (seen with PgBouncer 1.18).
    """
    pooled = is_known_as_pooled(connection)
    with connection.pipeline():
        yield
        if not pooled:
            # The connection's own commit() would cost two round trips within a pipeline.
            connection.execute("COMMIT", prepare=False)
    if pooled:
        connection.commit()


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
