"""The database's clock, by which rows are due and old."""

from __future__ import annotations

from datetime import UTC, datetime


def question(dialect: str) -> str:
    """The statement that asks for it."""
    return "SELECT clock_timestamp()" if dialect == "postgresql" else "SELECT UTC_TIMESTAMP(6)"


def in_utc(answer: datetime) -> datetime:
    """What was answered, with the zone UTC."""
    return answer.replace(tzinfo=UTC) if answer.tzinfo is None else answer.astimezone(UTC)
