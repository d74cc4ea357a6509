"""Chooses the insert statements of a table. Each dialect is imported only when needed: it imports a SQLAlchemy dialect."""

# ruff: noqa: PLC0415
from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Table

from boxengine.adapters.sql.dialects.inserts import Inserts
from boxengine.errors import BoxError


def inserts_for(dialect: str, table: Table, *, identities: Sequence[str], inbox: bool) -> Inserts:
    """The insert statements of a table in this database's dialect.

    Raises:
        BoxError: a database that boxengine does not write to.
    """
    match dialect:
        case "postgresql":
            from boxengine.adapters.sql.dialects.postgresql_inserts import PostgresInserts

            return PostgresInserts(table, identities=identities, inbox=inbox)
        case "mysql" | "mariadb":
            from boxengine.adapters.sql.dialects.mysql_inserts import MySqlInserts

            return MySqlInserts(table, identities=identities, inbox=inbox)
        case "sqlite":
            from boxengine.adapters.sql.dialects.sqlite_inserts import SqliteInserts

            return SqliteInserts(table, identities=identities, inbox=inbox)
        case _:
            raise BoxError(f"boxengine writes to PostgreSQL, MySQL, MariaDB and SQLite, not to {dialect}")
