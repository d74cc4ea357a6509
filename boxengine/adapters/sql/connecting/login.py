"""Logs in with a password that may change while the process runs."""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext

from boxengine.errors import StoreUnavailable, Unavailable
from boxengine.ports.credentials import Ask

_CHANGES = "boxengine_login_changes"
_DENIED, _DENIED_STATE = frozenset({1142, 1143}), "42501"
"""A privilege on a table or a column is missing; for MySQL and MariaDB, and for PostgreSQL."""


def log_in(engine: Engine, ask: Ask) -> None:
    """Has each new connection of the engine log in with what is in force."""
    event.listen(engine, "do_connect", partial(_complete, ask))
    event.listen(engine, "handle_error", partial(_drop_if_account_gone, engine))
    engine.update_execution_options(**{_CHANGES: True})


def denied(error: BaseException) -> bool:
    """Whether the connection's account lacks a privilege."""
    return next(iter(error.args), None) in _DENIED or getattr(error, "sqlstate", None) == _DENIED_STATE


def account_gone(engine: Engine, error: BaseException) -> bool:
    """Whether the connection's account may have been dropped, as Vault does at the end of a lease.

    Its sessions live on, without any privilege. New connections are those of the next account.
    """
    return denied(error) and bool(engine.get_execution_options().get(_CHANGES))


def login_options(ask: Ask) -> dict[str, str]:
    """The options, which all drivers call the same, for a connection that is made now.

    Raises:
        StoreUnavailable: there is no password at the moment.
    """
    try:
        user, password = ask()
    except Unavailable as error:
        raise StoreUnavailable(f"the database: {error}") from error
    return {"password": password} | ({} if user is None else {"user": user})


def _complete(ask: Ask, _dialect: object, _record: object, _arguments: object, options: dict[str, Any]) -> None:
    # In one step: older versions of SQLAlchemy give all threads the same options.
    options.update(login_options(ask))


def _drop_if_account_gone(engine: Engine, context: ExceptionContext) -> None:
    """For statements that run through SQLAlchemy, such as those of handlers, whose error stays what it is."""
    if account_gone(engine, context.original_exception):
        engine.dispose()
