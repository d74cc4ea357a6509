"""Converts a row's values as SQLAlchemy would, for rows that go directly to the driver."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter
from typing import Any

from sqlalchemy import Column, Connection
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from boxengine.domain.signatures import signature_of


def processor(type_: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    """The function that converts a value for the driver; None if the driver accepts the value unchanged."""
    return type_.dialect_impl(dialect).bind_processor(dialect)


def default_maker(column: Column[Any]) -> Callable[[], Any] | None:
    """The function that makes a missing value of a column in Python; None if there is none, or only SQLAlchemy can."""
    default: Any = column.default
    if default is None:
        return None
    if default.is_scalar:
        return lambda: default.arg
    # SQLAlchemy wraps a function without arguments; one that it has not wrapped reads the statement's context.
    wrapped = getattr(default.arg, "__wrapped__", None) if default.is_callable else None
    return wrapped if callable(wrapped) and _takes_nothing(wrapped) else None


def _takes_nothing(function: Callable[..., Any]) -> bool:
    """Whether it needs no argument. A decorator of the application's may have wrapped a function of the context, too."""
    try:
        parameters = signature_of(function).parameters.values()
    except ValueError:  # built in
        return True
    named = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return not any(each.kind in named and each.default is Parameter.empty for each in parameters)


def left_to_sqlalchemy(column: Column[Any]) -> bool:
    """Whether the column has a default that only SQLAlchemy can make: one that reads the statement's context."""
    default = column.default
    return default is not None and not default.is_clause_element and default_maker(column) is None


def translates_schemas(connection: Connection) -> bool:
    """Whether the application replaces tables' schemas by others (``schema_translate_map``)."""
    return bool(connection.get_execution_options().get("schema_translate_map"))
