"""Boxes in the test's database: inside a transaction that is rolled back, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, func, select, text
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import boxengine
from boxengine import Item, Status, create_inbox_item, create_job, create_outbox_item
from boxengine.adapters.sql.creating.sequence import counters
from boxengine.settings import Resolved
from boxengine.testing import DatabaseBoxes, RecordingTransport
from tests.testing.shop import (
    CONFIGURATION,
    Base,
    Invoice,
    OrderOutboxItem,
    PaymentInboxItem,
    ReportJob,
    RoutingSession,
    TicketOutboxItem,
    place_order,
)

MakeBoxes = Callable[..., DatabaseBoxes]


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found


def test_a_drain_sees_what_the_open_transaction_wrote_and_goes_with_it(
    engine: Engine, database_boxes: MakeBoxes
) -> None:
    with engine.connect() as connection:
        whole = connection.begin()
        session = Session(connection, join_transaction_mode="create_savepoint")
        boxes = database_boxes(session)
        place_order(session, 1, "a bicycle")
        session.commit()
        assert boxes.emitted(OrderOutboxItem) == [{"event_key": "1", "payload": {"what": "a bicycle"}}]
        assert len(boxes.drain().delivered) == 1
        assert session.scalars(select(OrderOutboxItem.status)).all() == [Status.DELIVERED]
        session.close()
        whole.rollback()
    with Session(engine) as later:
        assert later.scalars(select(OrderOutboxItem.id)).all() == []


class BoundByModel(Session):
    """Has an engine for each model, as the sessions of Flask-SQLAlchemy have."""

    def __init__(self, own: Engine, other: Engine) -> None:
        super().__init__()
        self._own, self._other = own, other

    def get_bind(self, mapper: Any = None, **_options: Any) -> Any:
        return self._other if mapper is None else self._own


SEVERAL_ENGINES: dict[str, Callable[[Engine, Engine], Session]] = {
    "by base": lambda own, other: Session(other, binds={Base: own}),
    "by base alone": lambda own, _other: Session(binds={Base: own}),
    "by table": lambda own, other: Session(other, binds=dict.fromkeys(Base.metadata.sorted_tables, own)),
    "by model": BoundByModel,
    "by statement": RoutingSession,
}


@pytest.mark.parametrize("how", SEVERAL_ENGINES)
def test_a_session_with_several_engines_chooses_the_models_as_for_its_own_rows(
    sqlite: Engine, postgres: Engine, database_boxes: MakeBoxes, how: str
) -> None:
    with SEVERAL_ENGINES[how](postgres, sqlite) as session:
        boxes = database_boxes(session)
        session.add(Invoice(text="twelve"))
        place_order(session, 1, "a bicycle")
        create_job(session, ReportJob, task="export")
        assert len(boxes.drain().delivered) == 1
        session.commit()
    with postgres.connect() as connection, sqlite.connect() as other:
        for model in (Invoice, OrderOutboxItem, ReportJob):
            assert connection.scalar(select(func.count()).select_from(model)) == 1
            assert other.scalar(select(func.count()).select_from(model)) == 0


def test_a_handler_writes_through_the_tests_own_transaction(engine: Engine, database_boxes: MakeBoxes) -> None:
    with Session(engine) as session:
        boxes = database_boxes(session)
        create_inbox_item(session, PaymentInboxItem, event_key=1, payload=b"twelve")
        boxes.drain()
        assert session.scalars(select(Invoice.text)).all() == ["twelve"]
        session.rollback()
        assert session.scalars(select(Invoice.text)).all() == []


def test_what_a_failed_handler_wrote_is_undone_and_its_failure_is_recorded(
    engine: Engine, database_boxes: MakeBoxes
) -> None:
    with Session(engine) as session:
        boxes = database_boxes(session)
        create_inbox_item(session, PaymentInboxItem, event_key=1, payload=b"broken")
        create_inbox_item(session, PaymentInboxItem, event_key=2, payload=b"whole")
        with pytest.raises(ValueError, match="no such customer"):
            boxes.drain()
        assert session.scalars(select(Invoice.text)).all() == ["whole"]
        rows = session.execute(
            select(PaymentInboxItem.status, PaymentInboxItem.errors_count).order_by(PaymentInboxItem.id)
        )
        assert [tuple(row) for row in rows] == [(Status.FAILED, 1), (Status.DELIVERED, 0)]


def test_a_handler_that_breaks_a_deferred_constraint_fails_its_item(
    postgres: Engine, boxengine_resolved: Resolved
) -> None:
    with postgres.begin() as connection:
        connection.execute(
            text("ALTER TABLE invoices ADD CONSTRAINT one_text UNIQUE (text) DEFERRABLE INITIALLY DEFERRED")
        )
    with Session(postgres) as session:
        boxes = DatabaseBoxes(boxengine_resolved, session)
        for number in (1, 2):
            boxes.create_inbox_item(session, PaymentInboxItem, event_key=number, payload=b"twelve")
        drained = boxes.drain(raise_failures=False)
        assert [item.event_key for item in drained.delivered] == ["1"]
        assert ["one_text" in each.reason for each in drained.undelivered] == [True]
        assert [invoice.text for invoice in session.scalars(select(Invoice))] == ["twelve"]


def test_what_a_handler_creates_in_an_outbox_is_delivered_by_the_same_drain(
    engine: Engine, database_boxes: MakeBoxes
) -> None:
    class Confirm:
        def __call__(self, item: Item, payload: bytes, *, session: Session) -> None:
            place_order(session, int(item.event_key), "a confirmation")

    receiver = RecordingTransport()
    with Session(engine) as session:
        boxes = database_boxes(session)
        boxes.use_transport(OrderOutboxItem, receiver)
        boxes.use_transport(PaymentInboxItem, Confirm())
        create_inbox_item(session, PaymentInboxItem, event_key=7, payload=b"twelve")
        assert len(boxes.drain().delivered) == 2
        assert [item.event_key for item in receiver.items] == ["7"]


def test_retries_follow_the_clock_that_the_test_moves(engine: Engine, database_boxes: MakeBoxes) -> None:
    with Session(engine) as session:
        boxes = database_boxes(session)
        boxes.use_transport(OrderOutboxItem, RecordingTransport(answers=[False]))
        create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"")
        assert boxes.drain(raise_failures=False).undelivered
        assert boxes.drain(raise_failures=False).delivered == ()
        boxes.clock.advance(timedelta(seconds=10))
        assert len(boxes.drain().delivered) == 1


def test_what_has_come_due_by_the_real_clock_goes_out(engine: Engine, database_boxes: MakeBoxes) -> None:
    with Session(engine) as session:
        boxes = database_boxes(session)
        now = datetime.now(UTC)
        for key, later in ((1, timedelta(0)), (2, timedelta(hours=1))):
            create_outbox_item(session, OrderOutboxItem, event_key=key, payload=b"", available_at=now + later)
        assert [item.event_key for item in boxes.drain().delivered] == ["1"]
        assert [item.event_key for item in boxes.drain(until=timedelta(hours=1)).delivered] == ["2"]


def test_an_engine_works_as_well(engine: Engine, database_boxes: MakeBoxes) -> None:
    boxes = database_boxes(engine)
    with Session(engine) as session, session.begin():
        place_order(session, 1, "a bicycle")
    boxes.drain()
    assert [repr(item.status) for item in boxes.emitted(OrderOutboxItem)] == [repr(Status.DELIVERED)]


def test_a_scoped_session_works_as_well(engine: Engine, database_boxes: MakeBoxes) -> None:
    session = scoped_session(sessionmaker(engine))
    boxes = database_boxes(session)
    place_order(session, 1, "a bicycle")
    assert len(boxes.drain().delivered) == 1
    session.remove()


@pytest.mark.parametrize("bind", [None, "sqlite://"])
def test_what_is_no_way_into_a_database_is_refused_at_once(bind: Any, database_boxes: MakeBoxes) -> None:
    said = f"^database_boxes takes a Session, an AsyncSession, a Connection or an Engine, not {bind!r}$"
    with pytest.raises(TypeError, match=said):
        database_boxes(bind)


def test_a_moment_of_another_zone_is_kept(engine: Engine, database_boxes: MakeBoxes) -> None:
    with Session(engine) as session:
        boxes = database_boxes(session)
        soon = boxes.clock.now() + timedelta(minutes=5)
        there = soon.astimezone(timezone(timedelta(hours=-8)))
        create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"", available_at=there, created_at=there)
        assert session.execute(select(OrderOutboxItem.available_at, OrderOutboxItem.created_at)).one() == (soon, soon)
        assert boxes.emitted(OrderOutboxItem)[0].created_at == soon
        assert not boxes.drain().delivered
        boxes.clock.advance(timedelta(minutes=5))
        assert len(boxes.drain().delivered) == 1


def test_numbers_of_a_box_with_sequence_reach_the_transport(engine: Engine, database_boxes: MakeBoxes) -> None:
    receiver = RecordingTransport()
    counters(TicketOutboxItem.__table__, MetaData()).create(engine)  # type: ignore[arg-type] # it is a Table
    with Session(engine) as session:
        boxes = database_boxes(session)
        boxes.use_transport(TicketOutboxItem, receiver)
        for key in "aba":
            create_outbox_item(session, TicketOutboxItem, event_key=key, payload=b"")
        boxes.drain()
        assert sorted((item.event_key, item.headers["Sequence-Number"]) for item in receiver.items) == [
            ("a", "1"), ("a", "2"), ("b", "1"),
        ]  # fmt: skip
        assert [item.seq for item in boxes.emitted(TicketOutboxItem, event_key="a")] == [1, 2]


def test_a_long_job_is_written_into_the_tests_transaction(engine: Engine, database_boxes: MakeBoxes) -> None:
    with Session(engine) as session:
        database_boxes(session)
        created = create_job(session, ReportJob, task="export", args={"day": 1})
        assert session.scalars(select(ReportJob.id)).all() == [created]


@pytest.fixture
def without_models(tmp_path: Path) -> Resolved:
    """The shop's configuration, without its classes."""
    file = tmp_path / "outbox.yml"
    file.write_text("".join(line for line in CONFIGURATION.splitlines(keepends=True) if "model:" not in line))
    return boxengine.load(file).resolved


def test_a_box_needs_no_model(engine: Engine, without_models: Resolved) -> None:
    with Session(engine) as session:
        boxes = DatabaseBoxes(without_models, session)
        boxes.create_outbox_item(session, "order_outbox_item", event_key=1, payload=b"a bicycle")
        assert [item.payload for item in boxes.drain().delivered] == [b"a bicycle"]
        assert boxes.emitted("order_outbox_item", event_key=1) == [{"status": Status.DELIVERED}]


OF_RAILS = """
    CREATE TABLE order_outbox_items (
        id {id}, uuid varchar(36) NOT NULL, event_key bigint NOT NULL, bucket integer NOT NULL,
        status integer NOT NULL DEFAULT 0, errors_count integer NOT NULL DEFAULT 0, options {json},
        proto_payload {bytes} NOT NULL, processed_at timestamp, created_at timestamp NOT NULL, updated_at timestamp NOT NULL
    )
"""
TYPES = {
    "sqlite": {"id": "integer PRIMARY KEY", "json": "json", "bytes": "blob"},
    "postgresql": {"id": "bigserial PRIMARY KEY", "json": "jsonb", "bytes": "bytea"},
}


def test_a_table_of_sbmt_outbox_is_read_as_the_worker_reads_it(engine: Engine, without_models: Resolved) -> None:
    with engine.connect() as connection:
        connection.execute(text("DROP TABLE order_outbox_items"))
        connection.execute(text(OF_RAILS.format(**TYPES[engine.dialect.name])))
        boxes = DatabaseBoxes(without_models, connection)
        boxes.create_outbox_item(connection, "order_outbox_item", event_key=1, payload=b"a bicycle")
        boxes.create_outbox_item(connection, "order_outbox_item", event_key=2, payload=b"fail")
        drained = boxes.drain("order_outbox_item", raise_failures=False)
        assert [(item.event_key, item.payload) for item in drained.delivered] == [("1", b"a bicycle")]
        found = boxes.emitted("order_outbox_item")
        assert found == [{"status": Status.DELIVERED}, {"status": Status.PENDING, "errors_count": 1}]
        assert boxes.emitted("order_outbox_item", event_key=1) == [{"event_key": "1"}]
        assert abs(found[0].created_at - boxes.clock.now()) < timedelta(hours=1), "moments without a zone are in UTC"


async def _on_an_async_session(url: str, database_boxes: MakeBoxes, *, scoped: bool) -> tuple[int, list[int]]:
    from boxengine import acreate_outbox_item

    engine = create_async_engine(url)
    make = async_sessionmaker(engine)
    session = async_scoped_session(make, scopefunc=asyncio.current_task) if scoped else make()
    boxes = database_boxes(session)
    await acreate_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"")
    drained = await boxes.adrain()
    statuses = [item.status for item in await boxes.aemitted(OrderOutboxItem)]
    await session.rollback()
    await session.close()
    await engine.dispose()
    return len(drained.delivered), statuses


@pytest.mark.parametrize("scoped", [False, True])
def test_the_async_twins_do_the_same(
    postgres: Engine, postgres_url: str, database_boxes: MakeBoxes, *, scoped: bool
) -> None:
    seen = asyncio.run(_on_an_async_session(postgres_url, database_boxes, scoped=scoped))
    assert seen == (1, [Status.DELIVERED])
    with Session(postgres) as session:
        assert session.scalars(select(OrderOutboxItem.id)).all() == []


class Around:
    """A batch middleware that does nothing but go on."""

    def __call__(self, batch: Any, call_next: Callable[[], Any]) -> Any:
        return call_next()


def test_handlers_write_through_their_session_under_a_batch_middleware(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "around.yml"
    file.write_text(f"{CONFIGURATION}\nmiddlewares: {{batch_process: [{__name__}.Around]}}\n")
    with Session(engine) as session:
        boxes = DatabaseBoxes(boxengine.load(file).resolved, session)
        for number in (1, 2):
            boxes.create_inbox_item(session, PaymentInboxItem, event_key=number, payload=f"paid {number}")
        assert len(boxes.drain().delivered) == 2
        assert session.scalars(select(Invoice.text).order_by(Invoice.id)).all() == ["paid 1", "paid 2"]
