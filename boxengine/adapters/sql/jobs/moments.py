"""The database's clock in jobs' statements, and moments so many seconds from it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, DateTime, Float
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement, GenericFunction


class clock_now(FunctionElement[Any]):  # noqa: N801 - it stands where func.now() would
    """The moment of the statement, also in a transaction that has been open for long; no index is read by it."""

    type = DateTime(timezone=True)
    inherit_cache = True


@compiles(clock_now)
@compiles(clock_now, "postgresql")
def _clock(_element: clock_now, _compiler: SQLCompiler, **_options: Any) -> str:
    return "clock_timestamp()"


@compiles(clock_now, "mysql", "mariadb")
def _mysql_clock(_element: clock_now, _compiler: SQLCompiler, **_options: Any) -> str:
    return "utc_timestamp(6)"


@compiles(clock_now, "sqlite")
def _sqlite_clock(_element: clock_now, _compiler: SQLCompiler, **_options: Any) -> str:
    return "CURRENT_TIMESTAMP"


class later(GenericFunction[Any]):  # noqa: N801 - see clock_now
    """``later(seconds)``: that long after ``clock_now``."""

    type = DateTime(timezone=True)
    inherit_cache = True


@compiles(later)
@compiles(later, "postgresql")
def _later(element: later, compiler: SQLCompiler, **options: Any) -> str:
    seconds = compiler.process(element.clauses, **options)
    return f"(clock_timestamp() + {seconds} * interval '1 second')"


@compiles(later, "mysql", "mariadb")
def _mysql_later(element: later, compiler: SQLCompiler, **options: Any) -> str:
    seconds = compiler.process(element.clauses, **options)
    return f"(utc_timestamp(6) + INTERVAL ({seconds}) SECOND)"


@compiles(later, "sqlite")
def _sqlite_later(element: later, compiler: SQLCompiler, **options: Any) -> str:
    seconds = compiler.process(element.clauses, **options)
    return f"datetime('now', ({seconds}) || ' seconds')"


class ago(GenericFunction[Any]):  # noqa: N801 - see clock_now
    """``ago(seconds)``: that long before the transaction began. An index can be read by it, for it stands still."""

    type = DateTime(timezone=True)
    inherit_cache = True


@compiles(ago)
@compiles(ago, "postgresql")
def _ago(element: ago, compiler: SQLCompiler, **options: Any) -> str:
    seconds = compiler.process(element.clauses, **options)
    return f"(now() - {seconds} * interval '1 second')"


@compiles(ago, "mysql", "mariadb")
def _mysql_ago(element: ago, compiler: SQLCompiler, **options: Any) -> str:
    seconds = compiler.process(element.clauses, **options)
    return f"(utc_timestamp(6) - INTERVAL ({seconds}) SECOND)"


class clock_number(FunctionElement[Any]):  # noqa: N801 - see clock_now
    """``clock_now`` in microseconds since 1970."""

    type = BigInteger()
    inherit_cache = True


@compiles(clock_number)
@compiles(clock_number, "postgresql")
def _number(_element: clock_number, _compiler: SQLCompiler, **_options: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"


@compiles(clock_number, "mysql", "mariadb")
def _mysql_number(_element: clock_number, _compiler: SQLCompiler, **_options: Any) -> str:
    return "timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(6))"


class seconds_until(GenericFunction[Any]):  # noqa: N801 - see clock_now
    """``seconds_until(moment)``: from ``clock_now`` on; below zero where it is past."""

    type = Float()
    inherit_cache = True


@compiles(seconds_until)
@compiles(seconds_until, "postgresql")
def _until(element: seconds_until, compiler: SQLCompiler, **options: Any) -> str:
    return f"extract(epoch FROM {compiler.process(element.clauses, **options)} - clock_timestamp())"


@compiles(seconds_until, "mysql", "mariadb")
def _mysql_until(element: seconds_until, compiler: SQLCompiler, **options: Any) -> str:
    moment = compiler.process(element.clauses, **options)
    return f"(timestampdiff(MICROSECOND, utc_timestamp(6), {moment}) / 1000000)"
