"""Moments in columns without a zone, as Rails makes them, written through the user's own class."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import BigInteger, DateTime, Engine, NullPool, String, create_engine, event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from boxengine import OutboxItem
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.dialects.copying import WORTHWHILE
from boxengine.domain.box import Box, BoxType

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items")
TOKYO = ZoneInfo("Asia/Tokyo")
DUE = datetime(2026, 1, 31, 12, tzinfo=TOKYO)
COLUMNS = {
    "postgresql": "id bigserial PRIMARY KEY, uuid uuid, options jsonb, payload bytea",
    "mysql": "id bigint AUTO_INCREMENT PRIMARY KEY, uuid char(36), options json, payload mediumblob",
}
RAILS = """
    CREATE TABLE order_outbox_items (
        {columns}, event_name varchar(255), event_key varchar(255), bucket integer, status integer DEFAULT 0,
        errors_count integer DEFAULT 0, error_log text, dedup_key varchar(255), {moments}
    )
"""


class Base(DeclarativeBase): ...


class TakenOver(OutboxItem, Base):
    """A class that says of the columns that they have zones."""

    __tablename__ = BOX.table


class OwnBase(DeclarativeBase): ...


class Own(OwnBase):
    """A class that says what Rails has made."""

    __tablename__ = BOX.table
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    uuid: Mapped[UUID] = mapped_column(TakenOver.__table__.c.uuid.type, default=uuid4)
    event_key: Mapped[str] = mapped_column(String(255))
    bucket: Mapped[int]
    payload: Mapped[bytes]
    available_at: Mapped[datetime | None] = mapped_column(DateTime)
    created_at: Mapped[datetime] = mapped_column(DateTime)
    updated_at: Mapped[datetime] = mapped_column(DateTime, default=lambda: datetime.now(TOKYO))


@pytest.fixture(params=["postgres_url", "mysql_url"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A database with the table, whose sessions are in Tokyo."""
    found = create_engine(request.getfixturevalue(request.param), poolclass=NullPool)
    postgresql = found.dialect.name == "postgresql"
    names = ("processed_at", "created_at", "updated_at", "available_at")
    # PostgreSQL's has no defaults, as Rails makes it.
    kind = "timestamp(6)" if postgresql else "datetime(6) DEFAULT (utc_timestamp(6))"
    moments = ", ".join(f"{name} {kind}" for name in names)
    move = "SET TIME ZONE 'Asia/Tokyo'" if postgresql else "SET time_zone = '+09:00'"

    @event.listens_for(found, "connect")
    def _move(connection: Any, _record: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(move)
        connection.commit()

    with found.begin() as connection:
        connection.execute(text(RAILS.format(columns=COLUMNS[found.dialect.name], moments=moments)))
    yield found
    found.dispose()


@pytest.mark.parametrize("model", [TakenOver, Own])
@pytest.mark.parametrize("count", [1, 2, WORTHWHILE])
def test_they_are_in_utc_whatever_the_sessions_zone_and_their_own(engine: Engine, model: type, count: int) -> None:
    rows = [{"event_key": f"k{n}", "bucket": 0, "payload": b"", "available_at": DUE} for n in range(count)]
    with engine.begin() as connection:
        SqlRows(BOX, model).insert(connection, [dict(row) for row in rows])
        found = connection.execute(text("SELECT available_at, created_at, updated_at FROM order_outbox_items")).all()
    now = datetime.now(UTC).replace(tzinfo=None)
    assert {row.available_at for row in found} == {DUE.astimezone(UTC).replace(tzinfo=None)}
    assert all(abs(now - moment) < timedelta(hours=1) for row in found for moment in (row.created_at, row.updated_at))
    assert len(found) == count
