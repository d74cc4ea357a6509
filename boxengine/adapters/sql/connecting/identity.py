"""What tells one database, or one server, from another, whatever the address at which they are reached."""

from __future__ import annotations

from boxengine.adapters.sql.connecting.cursors import Cursor

_MAY_ASK = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_IDENTITY = """
SELECT server.system_identifier || '/' || own.oid
FROM pg_catalog.pg_control_system() AS server, pg_catalog.pg_database AS own
WHERE own.datname = current_database()
"""

START = "CAST(pg_postmaster_start_time() AS text)"
"""A server that has taken over was started at another moment."""
_SERVER, _MYSQL_SERVER = f"SELECT {START}", "SELECT CONCAT_WS('/', @@server_id, @@hostname, @@port)"


def identity(cursor: Cursor) -> str | None:
    """The server's identifier, which a standby shares with its primary, and the database's number.

    None: the role may not call ``pg_control_system()``.
    """
    cursor.execute(_MAY_ASK)
    if not cursor.fetchall()[0][0]:
        return None
    cursor.execute(_IDENTITY)
    ((found,),) = cursor.fetchall()
    return str(found)


def server(cursor: Cursor, dialect_name: str) -> str:
    """The server that answers. On PostgreSQL it counts as another one once it was restarted."""
    cursor.execute(_SERVER if dialect_name == "postgresql" else _MYSQL_SERVER)
    ((found,),) = cursor.fetchall()
    return str(found)
