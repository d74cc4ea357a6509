"""Boxes with ``storage: log`` in the test's database: their rows bear no outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, select, text
from sqlalchemy.orm import Session

import boxengine
from boxengine import Status
from boxengine.adapters.sql.making import schema
from boxengine.testing import DatabaseBoxes
from tests.testing.shop import Base, Invoice, OrderOutboxItem

CONFIGURATION = """
app: tests.testing.shop
outbox_items:
  order_outbox_item:
    model: tests.testing.shop.OrderOutboxItem
    storage: log
    strict_order: key
    max_retries: 2
    transports:
      tests.testing.shop.Announce: {}
  bill_outbox_item:
    storage: log
    subscriptions:
      billing: {transports: {tests.testing.shop.Announce: {}}}
      search: {transports: {tests.testing.shop.Announce: {}}}
inbox_items:
  payment_inbox_item:
    model: tests.testing.shop.PaymentInboxItem
    storage: log
    transports:
      tests.testing.shop.WriteInvoice: {}
"""


@pytest.fixture
def loaded(tmp_path: Path) -> boxengine.Boxes:
    file = tmp_path / "outbox.yml"
    file.write_text(CONFIGURATION)
    return boxengine.load(file)


@pytest.fixture
def engine(postgres_url: str, loaded: boxengine.Boxes) -> Iterator[Engine]:
    engine = create_engine(postgres_url)
    schema.create(engine, [pipeline.box for pipeline in loaded.resolved.pipelines.values()])
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def test_a_drain_delivers_what_the_open_transaction_wrote_and_remembers_it(
    engine: Engine, loaded: boxengine.Boxes
) -> None:
    with Session(engine) as session:
        boxes = DatabaseBoxes(loaded.resolved, session)
        for number in (1, 2):
            boxes.create_outbox_item(session, OrderOutboxItem, event_key=number, payload=b"a bicycle")
        assert len(boxes.emitted(OrderOutboxItem)) == 2
        assert len(boxes.drain().delivered) == 2
        assert {item.status for item in boxes.emitted(OrderOutboxItem)} == {Status.DELIVERED}
        assert boxes.drain().delivered == ()
        assert session.scalar(text("SELECT count(*) FROM order_outbox_items_log")) == 2
        session.rollback()
        assert len(boxes.emitted(OrderOutboxItem)) == 0


def test_an_item_of_a_log_that_fails_is_tried_again_and_then_fails_for_good(
    engine: Engine, loaded: boxengine.Boxes
) -> None:
    with Session(engine) as session:
        boxes = DatabaseBoxes(loaded.resolved, session)
        boxes.create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"fail")
        boxes.create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"behind it")
        boxes.create_outbox_item(session, OrderOutboxItem, event_key=2, payload=b"of another key")
        first = boxes.drain(raise_failures=False)
        assert [item.payload for item in first.delivered] == [b"of another key"]
        boxes.drain(until=timedelta(days=1), raise_failures=False)
        failed, behind, _ = boxes.emitted(OrderOutboxItem)
        assert (failed.status, failed.errors_count) == (Status.FAILED, 3)
        assert behind.status == Status.PENDING, "its key is parked"


def test_each_subscription_of_a_log_gets_every_item(engine: Engine, loaded: boxengine.Boxes) -> None:
    with Session(engine) as session:
        boxes = DatabaseBoxes(loaded.resolved, session)
        boxes.create_outbox_item(session, "bill_outbox_item", event_key=1, payload=b"twelve")
        delivered = boxes.drain("bill_outbox_item").delivered
        assert sorted(item.box.name for item in delivered) == ["bill_outbox_item.billing", "bill_outbox_item.search"]
        assert boxes.drain("bill_outbox_item").delivered == ()


def test_a_handler_of_a_log_writes_through_the_tests_own_transaction(engine: Engine, loaded: boxengine.Boxes) -> None:
    with Session(engine) as session:
        boxes = DatabaseBoxes(loaded.resolved, session)
        for payload in (b"broken", b"whole"):
            boxes.create_inbox_item(session, "payment_inbox_item", event_key=payload.decode(), payload=payload)
        with pytest.raises(ValueError, match="no such customer"):
            boxes.drain()
        assert session.scalars(select(Invoice.text)).all() == ["whole"]


def test_an_engine_as_well(engine: Engine, loaded: boxengine.Boxes) -> None:
    boxes = DatabaseBoxes(loaded.resolved, engine)
    with Session(engine) as session, session.begin():
        boxes.create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"a bicycle")
    assert len(boxes.drain().delivered) == 1
