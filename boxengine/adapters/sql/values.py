"""What SQLAlchemy does with a row's values before the driver gets them, for rows that go past it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from sqlalchemy import Column, Connection
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine


def processor(type_: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    """What makes of a value what the driver takes; None where it takes the value as it is."""
    return type_.dialect_impl(dialect).bind_processor(dialect)


def default_maker(column: Column[Any]) -> Callable[[], Any] | None:
    """What makes the value of a column in Python where the row has none; None where nothing, or only SQLAlchemy, can."""
    default: Any = column.default
    if default is None:
        return None
    if default.is_scalar:
        return lambda: default.arg
    # A function of no arguments is wrapped by SQLAlchemy; one that is not looks at the statement's context.
    wrapped = getattr(default.arg, "__wrapped__", None) if default.is_callable else None
    return wrapped if callable(wrapped) and _takes_nothing(wrapped) else None


def _takes_nothing(function: Callable[..., Any]) -> bool:
    """The application's own decorator may have wrapped a function of the context, too."""
    try:
        parameters = signature(function).parameters.values()
    except ValueError:  # built in
        return True
    named = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return not any(each.kind in named and each.default is Parameter.empty for each in parameters)


def left_to_sqlalchemy(column: Column[Any]) -> bool:
    """Whether the column has a default that nothing but SQLAlchemy can make: one that looks at the statement."""
    default = column.default
    return default is not None and not default.is_clause_element and default_maker(column) is None


def translates_schemas(connection: Connection) -> bool:
    """Whether the application puts other schemas in place of a table's own (``schema_translate_map``)."""
    return bool(connection.get_execution_options().get("schema_translate_map"))
