"""Columns that a user's class adds to a box's table, and what may be put into them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import JSON, Engine, Index, NullPool, String, create_engine, inspect, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from boxengine import InboxItem, JobItem
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.jobs.models import job_indexes
from boxengine.adapters.sql.making import checks, schema
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


class ListedInboxItem(InboxItem, Base):
    __tablename__ = "listed_inbox_items"
    __table_args__ = (Index("ix_listed_created", "created_at"), {"comment": "messages"})


class ListedJob(JobItem, Base):
    __tablename__ = "listed_jobs"
    __table_args__ = (Index("ux_listed_jobs_holds", "holds", unique=True),)


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


def test_a_class_with_arguments_for_its_table_keeps_what_recognises_a_repeated_message(engine: Engine) -> None:
    box = Box(name="listed_inbox_item", type=BoxType.INBOX, table="listed_inbox_items")
    assert checks.check(engine, [box], [ListedInboxItem]) == []
    row = {"event_key": "1", "bucket": 1, "payload": b"x", "uuid": str(uuid4())}
    with engine.begin() as connection:
        rows = SqlRows(box, ListedInboxItem)
        assert rows.insert(connection, [row]).ids == rows.insert(connection, [row]).ids
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM listed_inbox_items")).scalar_one() == 1
    assert "ix_listed_created" in {each["name"] for each in inspect(engine).get_indexes("listed_inbox_items")}


def test_a_job_class_with_arguments_for_its_table_has_each_index_once() -> None:
    names = [index.name for index in ListedJob.__table__.indexes]  # type: ignore[attr-defined]
    assert len(names) == len(job_indexes("listed_jobs"))
    assert set(names) == {index.name for index in job_indexes("listed_jobs")}


def test_an_inbox_that_would_store_a_message_twice_is_told(engine: Engine) -> None:
    drop = "DROP INDEX ux_listed_inbox_items_uuid"
    with engine.begin() as connection:
        connection.execute(text(drop if engine.dialect.name == "postgresql" else f"{drop} ON listed_inbox_items"))
    box = Box(name="listed_inbox_item", type=BoxType.INBOX, table="listed_inbox_items")
    (finding,) = checks.check(engine, [box], [ListedInboxItem])
    assert "no unique index over uuid: a message that comes twice is stored twice" in finding.message
    schema.create(engine, [box], [ListedInboxItem])
    assert checks.check(engine, [box], [ListedInboxItem]) == []


def test_a_table_whose_ids_are_no_numbers_is_refused(engine: Engine) -> None:
    box = Box(name="random_outbox_item", type=BoxType.OUTBOX, table="random_outbox_items")
    schema.create(engine, [box])
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE random_outbox_items DROP COLUMN id"))
        connection.execute(text("ALTER TABLE random_outbox_items ADD COLUMN id CHAR(36)"))
    (finding,) = checks.check(engine, [box])
    assert finding.severity == "error"
    assert "has an id of type CHAR(36); expected a whole number" in finding.message
