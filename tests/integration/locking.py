"""A table that somebody has locked, as a long migration does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy import make_url

from tests.servers.databases import with_setting


@contextmanager
def locked(engine: sa.Engine, table: str) -> Iterator[None]:
    """The whole table, against readers too."""
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
        else:
            connection.execute(sa.text(f"LOCK TABLES {table} WRITE"))
        try:
            yield
        finally:
            if connection.dialect.name != "postgresql":
                connection.execute(sa.text("UNLOCK TABLES"))
            connection.rollback()


def impatient(url: str) -> str:
    """The URL for sessions that wait some seconds for an answer, so that what would wait for ever fails, with another error."""
    if url.startswith("postgresql"):
        return with_setting(url, "statement_timeout=15s")
    return make_url(url).update_query_dict({"read_timeout": "25"}).render_as_string(hide_password=False)
