"""Column types and defaults that differ between databases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    CHAR,
    TEXT,
    VARCHAR,
    BigInteger,
    Boolean,
    Date,
    DateTime,
    Dialect,
    Enum,
    Float,
    Integer,
    LargeBinary,
    Numeric,
    SmallInteger,
    String,
    Table,
    Text,
    TypeDecorator,
    Uuid,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import JSON, TypeEngine

from boxengine.domain.new_values import NO_LIMIT

_MYSQL = ("mysql", "mariadb")


class DashedUuid(TypeDecorator[UUID]):
    """A UUID as its canonical text of 36 characters, as Rails applications keep it in MySQL."""

    impl = CHAR(36)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy passes it
        """Takes a ``UUID``, or its text with dashes or without."""
        return None if value is None else str(value if isinstance(value, UUID) else UUID(str(value)))

    def process_result_value(self, value: Any, dialect: Dialect) -> UUID | None:  # noqa: ARG002 - SQLAlchemy passes it
        return value if value is None or isinstance(value, UUID) else UUID(str(value))


class BareUuid(DashedUuid):
    """A UUID as its 32 hexadecimal digits."""

    impl = CHAR(32)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """As ``DashedUuid`` does, without the dashes."""
        dashed = super().process_bind_param(value, dialect)
        return None if dashed is None else dashed.replace("-", "")


class UtcMoment(TypeDecorator[datetime]):
    """A moment in a column without a zone: converted to UTC before it is stored."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Asks MySQL for microseconds, which it does not store by default."""
        return dialect.type_descriptor(mysql.DATETIME(fsp=6) if dialect.name in _MYSQL else DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - see above
        """Converts the moment to UTC; one without a zone counts as UTC."""
        if value is not None and not isinstance(value, datetime):
            raise TypeError(f"expected a datetime, such as datetime.now(UTC), not {value!r:.80}")
        return value if value is None or value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - see above
        return None if value is None else value.replace(tzinfo=UTC)


_SINGLE = frozenset(
    {String, Text, VARCHAR, TEXT, Integer, SmallInteger, BigInteger, Numeric, Float, Boolean, Date, DateTime, Uuid}
)

# Keys that differ only in case are different keys; MySQL's default collations would compare them as equal.
_EXACT = mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin")

# SQLite serves documentation examples and nothing else; it increments only plain INTEGER keys.
Id = BigInteger().with_variant(Integer(), "sqlite")
Identity = Uuid().with_variant(DashedUuid(), *_MYSQL)
Name = String(255).with_variant(_EXACT, *_MYSQL)
# None means no options (SQL NULL), not the JSON value null.
Json = JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
Payload = LargeBinary().with_variant(mysql.MEDIUMBLOB(), *_MYSQL)
Log = Text().with_variant(mysql.TEXT(charset="utf8mb4"), *_MYSQL)
Moment = DateTime(timezone=True).with_variant(UtcMoment(), *_MYSQL, "sqlite")


def length_of(kind: object) -> int:
    """How many characters a column of this type takes.

    There is no limit for None, a column that is not known, and for types that store another text than the one they are given.
    """
    length: int | None = None if isinstance(kind, Enum | TypeDecorator) else getattr(kind, "length", None)
    return NO_LIMIT if length is None else length


def takes_one_value(kind: object) -> bool:
    """Whether a column of this type surely takes no object, list or set. Users' types may, and so does MySQL's SET."""
    return type(kind) in _SINGLE


def names_events_by_texts(table: Table) -> bool:
    """Whether the table has a column for the names of events that surely stores the text it is given. Users' types and
    enumerations may store another."""
    column = table.columns.get("event_name")
    return column is not None and isinstance(column.type, String) and not isinstance(column.type, Enum)
