"""What tells one PostgreSQL database from another, whatever the address at which they are reached."""

from __future__ import annotations

from boxengine.adapters.sql.connecting.cursors import Cursor

_MAY_ASK = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_IDENTITY = """
SELECT server.system_identifier || '/' || own.oid
FROM pg_catalog.pg_control_system() AS server, pg_catalog.pg_database AS own
WHERE own.datname = current_database()
"""


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
