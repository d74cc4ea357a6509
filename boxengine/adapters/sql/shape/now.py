"""The database's clock. Not with the column types, which import the dialects of all databases."""

from __future__ import annotations

from typing import Any

from sqlalchemy import DateTime, Dialect, func
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class utc_now(FunctionElement[Any]):  # noqa: N801 - it stands where func.now() would
    """The database's clock as a box's moments are stored: with a zone where columns have one, else in UTC."""

    type = DateTime(timezone=True)
    inherit_cache = True


@compiles(utc_now)
def _now(_element: utc_now, _compiler: SQLCompiler, **_options: Any) -> str:
    return "CURRENT_TIMESTAMP"


@compiles(utc_now, "postgresql")
def _postgresql_now(_element: utc_now, _compiler: SQLCompiler, **_options: Any) -> str:
    return "now()"


@compiles(utc_now, "mysql", "mariadb")
def _mysql_now(_element: utc_now, _compiler: SQLCompiler, **_options: Any) -> str:
    # CURRENT_TIMESTAMP would be in the session's zone. As a default, an expression needs its parentheses.
    return "(utc_timestamp(6))"


def stored_now(dialect: Dialect, *, zoned: bool) -> FunctionElement[Any]:
    """The database's clock in the form that a column with, or without, a zone stores."""
    if dialect.name == "postgresql" and not zoned:
        return func.timezone("UTC", func.now())
    return utc_now()


def now_in_text(*, postgresql: bool, zoned: bool) -> str:
    """The database's clock in the form that a column with, or without, a zone stores, as SQL text."""
    if not postgresql:
        return "UTC_TIMESTAMP(6)"
    return "now()" if zoned else "(now() AT TIME ZONE 'UTC')"
