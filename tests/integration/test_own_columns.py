"""Columns that a user's class adds to a box's table, and what may be put into them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import JSON, Engine, NullPool, String, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from boxengine import InboxItem
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.domain.box import Box, BoxType
from boxengine.errors import InvalidItem

BOX = Box(name="tenant_inbox_item", type=BoxType.INBOX, table="tenant_inbox_items")


class Base(DeclarativeBase):
    pass


class TenantInboxItem(InboxItem, Base):
    __tablename__ = "tenant_inbox_items"
    tenant: Mapped[str | None] = mapped_column(String(50))
    amount: Mapped[Decimal | None]
    due: Mapped[datetime | None]
    labels: Mapped[list[str] | None] = mapped_column(JSON)


@pytest.fixture(params=["postgres_url", "mysql_url"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = create_engine(request.getfixturevalue(request.param), poolclass=NullPool)
    Base.metadata.create_all(made)
    yield made
    made.dispose()


def insert(engine: Engine, **own: Any) -> None:
    row = {"event_key": "1", "bucket": 1, "payload": b"x", **own}
    with engine.begin() as connection:
        SqlRows(BOX, TenantInboxItem).insert(connection, [row])


def test_what_is_no_single_value_is_refused_as_the_items_fault(engine: Engine) -> None:
    """A rule that reads the tenant in a message's JSON returns an object, if that is what the message has there."""
    for column in ("tenant", "amount", "due"):
        for given in ({"id": 7}, {}, ["a", "b"], ["a"], [], ("a", "b"), {"a", "b"}):
            with pytest.raises(
                InvalidItem, match=f"item 0: {column}: expected a single value, got {type(given).__name__}"
            ):
                insert(engine, **{column: given})


def test_single_values_and_what_a_column_of_json_takes_are_stored(engine: Engine) -> None:
    insert(engine, tenant="ACME", amount=Decimal("1.5"), due=datetime.now(UTC).replace(tzinfo=None), labels=["a", "b"])
    with engine.connect() as connection:
        assert connection.execute(text("SELECT tenant FROM tenant_inbox_items")).scalar_one() == "ACME"
