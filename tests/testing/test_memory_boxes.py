"""Boxes in memory: what the code under test emits, and its delivery without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, date, datetime, timedelta
from enum import Enum, IntEnum
from math import nan
from pathlib import Path
from typing import Any
from unittest.mock import ANY, AsyncMock, MagicMock, Mock, create_autospec
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, event, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

import boxengine
from boxengine import (
    BatchAttributes,
    Failure,
    Item,
    OutboxItem,
    Status,
    acreate_inbox_batch,
    acreate_inbox_item,
    acreate_outbox_batch,
    acreate_outbox_item,
    create_job,
    create_outbox_item,
)
from boxengine.adapters.memory.clock import ManualClock
from boxengine.errors import BoxError, InvalidItem, Unavailable, UnknownBox
from boxengine.settings import Resolved
from boxengine.testing import Drained, MemoryBoxes, NotDelivered, RecordingTransport, make_item
from boxengine.testing.clock import PresentClock
from tests.testing.shop import Invoice, OrderOutboxItem, PaymentInboxItem, ReportJob, TicketOutboxItem, place_order

NO_SESSION: Any = None


def test_what_the_code_creates_is_seen_without_any_session(boxes: MemoryBoxes) -> None:
    place_order(None, 1, "a bicycle")
    assert boxes.emitted(OrderOutboxItem) == [
        {"event_name": "order_placed", "event_key": 1, "payload": {"what": "a bicycle"}}
    ]
    assert boxes.emitted("order_outbox_item", event_name="order_paid") == []
    assert len(boxes.emitted(OrderOutboxItem, event_key=1)) == 1


async def _created_by_coroutines(session: Any) -> list[int]:
    row: BatchAttributes = {"event_key": 1, "payload": b"x"}
    return [
        await acreate_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"x"),
        await acreate_inbox_item(session, PaymentInboxItem, event_key=1, payload=b"x"),
        *await acreate_outbox_batch(session, OrderOutboxItem, [row]),
        *await acreate_inbox_batch(session, PaymentInboxItem, [row]),
    ]


def test_coroutines_need_no_session_either_and_a_plain_one_is_refused(boxes: MemoryBoxes) -> None:
    assert asyncio.run(_created_by_coroutines(NO_SESSION)) == [1, 1, 2, 2]
    assert [len(boxes.emitted(model)) for model in (OrderOutboxItem, PaymentInboxItem)] == [2, 2]
    for plain in (Session(), scoped_session(sessionmaker())):
        with pytest.raises(InvalidItem, match="an AsyncSession or AsyncConnection is needed, not"):
            asyncio.run(_created_by_coroutines(plain))


@pytest.mark.parametrize(
    "fake",
    [
        *(kind(spec=spec) for kind in (Mock, MagicMock) for spec in (Session, Connection, scoped_session)),
        create_autospec(Session, instance=True),
        MagicMock(),
        object(),
    ],
)
def test_a_mock_or_a_fake_takes_the_place_of_a_session(boxes: MemoryBoxes, fake: Any) -> None:
    place_order(fake, 1, "a bicycle")
    assert len(boxes.emitted(OrderOutboxItem)) == 1


@pytest.mark.parametrize("fake", [AsyncMock(), AsyncMock(spec=AsyncSession), MagicMock(spec=AsyncConnection), object()])
def test_a_mock_or_a_fake_takes_the_place_of_an_asynchronous_session(boxes: MemoryBoxes, fake: Any) -> None:
    assert asyncio.run(_created_by_coroutines(fake)) == [1, 1, 2, 2]
    assert [len(boxes.emitted(model)) for model in (OrderOutboxItem, PaymentInboxItem)] == [2, 2]


def test_what_production_would_refuse_as_a_session_is_refused(boxes: MemoryBoxes, sqlite: Engine) -> None:
    scoped = async_scoped_session(async_sessionmaker(), scopefunc=object)
    for other in (AsyncSession(), scoped, sqlite, sessionmaker(sqlite), OrderOutboxItem()):
        with pytest.raises(InvalidItem, match=r"a SQLAlchemy Session or Connection is needed, not \w+\.\w+"):
            place_order(other, 1, "a bicycle")
    assert boxes.emitted(OrderOutboxItem) == []


def test_an_async_scoped_session_that_rolls_back_takes_its_items_with_it(boxes: MemoryBoxes) -> None:
    async def write() -> None:
        scoped = async_scoped_session(async_sessionmaker(), scopefunc=asyncio.current_task)
        await acreate_outbox_item(scoped, OrderOutboxItem, event_key=1, payload=b"x")
        await scoped.commit()
        await acreate_outbox_item(scoped, OrderOutboxItem, event_key=2, payload=b"x")
        await scoped.rollback()

    asyncio.run(write())
    assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["1"]


def test_an_item_that_production_would_refuse_is_refused(boxes: MemoryBoxes) -> None:
    with pytest.raises(InvalidItem, match="event_key is missing"):
        create_outbox_item(NO_SESSION, OrderOutboxItem, payload=b"")  # type: ignore[call-arg]
    with pytest.raises(InvalidItem, match="unknown attribute color"):
        create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"", color="red")  # type: ignore[call-arg]
    with pytest.raises(InvalidItem, match="item 0: uuid 'nonsense' is not a UUID"):
        create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"", uuid="nonsense")
    with pytest.raises(InvalidItem, match="event_key has 256 characters; its column takes 255 at most"):
        create_outbox_item(NO_SESSION, OrderOutboxItem, event_key="k" * 256, payload=b"")
    with pytest.raises(InvalidItem, match="dedup_key has 256 characters; its column takes 255 at most"):
        create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"", dedup_key="k" * 256)
    with pytest.raises(InvalidItem, match=r"options: expected what JSON can hold: \['total'\] is nan"):
        create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"", options={"total": nan})
    with pytest.raises(InvalidItem, match=r"options: expected what JSON can hold: a text with NUL"):
        create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"", options={"name": "a\0"})


def test_a_box_without_a_model_takes_names_as_long_as_in_the_table_that_boxengine_makes(tmp_path: Path) -> None:
    file = tmp_path / "outbox.yml"
    file.write_text("outbox_items: {plain_outbox_item: {transports: {log: {}}}}")
    boxes = MemoryBoxes(boxengine.load(file).resolved)
    boxes.create_outbox_item(NO_SESSION, "plain_outbox_item", event_key="k" * 255, payload=b"")
    with pytest.raises(InvalidItem, match="event_key has 256 characters; its column takes 255 at most"):
        boxes.create_outbox_item(NO_SESSION, "plain_outbox_item", event_key="k" * 256, payload=b"")


def test_an_item_that_is_refused_takes_its_batch_with_it(boxes: MemoryBoxes) -> None:
    batch: list[BatchAttributes] = [{"event_key": key, "payload": b"", "options": {"of": {key}}} for key in (1, 2)]
    batch[0]["options"] = {}
    with pytest.raises(InvalidItem, match="item 1: options: expected what JSON can hold"):
        boxes.create_outbox_batch(NO_SESSION, OrderOutboxItem, batch)
    assert boxes.emitted(OrderOutboxItem) == []


class Currency(str, Enum):  # noqa: UP042 - whose str() is not its text
    EUR = "eur"


def test_items_are_found_by_the_member_of_an_enumeration_that_is_their_key(boxes: MemoryBoxes) -> None:
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=Currency.EUR, payload=b"")
    assert boxes.emitted(OrderOutboxItem, event_key=Currency.EUR) == [{"event_key": "eur"}]
    made = make_item(event_key=Currency.EUR)
    assert (made.event_key, made.bucket) == ("eur", make_item(event_key="eur").bucket)


def test_a_member_of_an_enumeration_names_an_event_as_in_a_database(boxes: MemoryBoxes) -> None:
    class Name(Enum):
        PAID = "paid"

    class Step(IntEnum):
        PACKED = 2

    with pytest.raises(
        InvalidItem, match=r"event_name must be a text, .* not Name; give what is meant, such as Name.PAID.value"
    ):
        create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"", event_name=Name.PAID)  # type: ignore[arg-type]
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"", event_name=Step.PACKED)  # type: ignore[arg-type]
    assert boxes.emitted(OrderOutboxItem)[0].event_name == "2"


def test_columns_that_the_model_adds_are_filled_as_a_database_demands(boxes: MemoryBoxes) -> None:
    class Base(DeclarativeBase):
        pass

    class TenantsItem(OutboxItem, Base):
        __tablename__ = "order_outbox_items"
        __box_name__ = "order_outbox_item"
        tenant: Mapped[str]
        region: Mapped[str] = mapped_column(default="eu")
        seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
        note: Mapped[str | None]

    create_outbox_item(NO_SESSION, TenantsItem, event_key=1, payload=b"", own_columns={"tenant": "acme"})
    for own, message in (
        ({}, "item 0: tenant is missing: the model's column has no default, and takes no NULL"),
        ({"tenant": None}, "item 0: tenant is missing"),
        ({"tenant": "acme", "note": {"a": 1}}, "item 0: note: expected a single value, got dict"),
    ):
        with pytest.raises(InvalidItem, match=message):
            create_outbox_item(NO_SESSION, TenantsItem, event_key=2, payload=b"", own_columns=own)
    assert len(boxes.emitted(TenantsItem)) == 1


def test_a_rollback_takes_the_items_with_it(boxes: MemoryBoxes, sqlite: Engine) -> None:
    with Session(sqlite) as session:
        place_order(session, 1, "a bicycle")
        session.commit()
        place_order(session, 2, "a tandem")
        session.rollback()
    assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["1"]


def test_a_savepoint_that_is_rolled_back_takes_only_its_own(boxes: MemoryBoxes, sqlite: Engine) -> None:
    with Session(sqlite) as session:
        place_order(session, 1, "a bicycle")
        with session.begin_nested() as outer:
            with session.begin_nested():
                place_order(session, 2, "a tandem")
            outer.rollback()
        with session.begin_nested():
            place_order(session, 3, "a unicycle")
        session.commit()
    assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["1", "3"]


def test_a_connection_rolled_back_takes_its_items_and_a_later_one_does_not(boxes: MemoryBoxes, sqlite: Engine) -> None:
    with sqlite.connect() as connection:
        create_outbox_item(connection, OrderOutboxItem, event_key=1, payload=b"")
        connection.commit()
        create_outbox_item(connection, OrderOutboxItem, event_key=2, payload=b"")
        connection.rollback()
        with connection.begin():
            with connection.begin_nested() as savepoint:
                create_outbox_item(connection, OrderOutboxItem, event_key=3, payload=b"")
                savepoint.rollback()
            create_outbox_item(connection, OrderOutboxItem, event_key=4, payload=b"")
    assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["1", "4"]


@pytest.mark.parametrize("leave", [Session.close, Session.reset, Session.invalidate])
def test_a_session_closed_without_a_commit_takes_its_items_with_it(
    boxes: MemoryBoxes, sqlite: Engine, leave: Callable[[Session], None]
) -> None:
    session = Session(sqlite)
    place_order(session, 1, "a bicycle")
    with session.begin_nested():
        place_order(session, 2, "a tandem")
    session.commit()
    place_order(session, 3, "a unicycle")
    with session.begin_nested():
        place_order(session, 4, "a tricycle")
    session.begin_nested()
    place_order(session, 5, "a scooter")
    leave(session)
    assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["1", "2"]


@pytest.mark.parametrize("error", [None, ValueError("sold out")])
def test_a_with_block_left_without_a_commit_takes_its_items_with_it(
    boxes: MemoryBoxes, sqlite: Engine, error: Exception | None
) -> None:
    with suppress(ValueError), Session(sqlite) as session:
        place_order(session, 1, "a bicycle")
        if error is not None:
            raise error
    with sqlite.connect() as connection:
        create_outbox_item(connection, OrderOutboxItem, event_key=2, payload=b"")
    assert boxes.emitted(OrderOutboxItem) == []


def test_what_the_session_has_pending_is_flushed_before_an_item(boxes: MemoryBoxes, sqlite: Engine) -> None:
    with Session(sqlite) as session:
        invoice = Invoice(text="twelve")
        session.add(invoice)
        place_order(session, 1, "a bicycle")
        assert invoice.id == 1
        session.add(Invoice())
        with pytest.raises(IntegrityError):
            place_order(session, 2, "a tandem")
    session = Session()  # nobody can write into this one
    session.add(Invoice())
    place_order(session, 3, "a unicycle")
    assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["3"]


def test_an_item_created_during_a_flush_stays_once_it_is_committed(boxes: MemoryBoxes, sqlite: Engine) -> None:
    with Session(sqlite) as session:

        @event.listens_for(session, "before_flush")
        def _announce(current: Session, _context: object, _instances: object) -> None:
            with current.begin_nested():
                place_order(current, 1, "a bicycle")

        session.add(Invoice(text="twelve"))
        session.commit()
    assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["1"]


def test_a_scoped_session_that_rolls_back_takes_its_items_with_it(boxes: MemoryBoxes, sqlite: Engine) -> None:
    scoped = scoped_session(sessionmaker(sqlite))
    place_order(scoped, 1, "a bicycle")
    scoped.commit()
    place_order(scoped, 2, "a tandem")
    scoped.rollback()
    place_order(scoped, 3, "a unicycle")
    scoped.remove()
    assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["1"]


def test_a_released_savepoint_goes_with_the_one_around_it(boxes: MemoryBoxes, sqlite: Engine) -> None:
    with sqlite.connect() as connection, connection.begin(), connection.begin_nested() as outer:
        with connection.begin_nested():
            create_outbox_item(connection, OrderOutboxItem, event_key=1, payload=b"")
        with connection.begin_nested() as beside:
            create_outbox_item(connection, OrderOutboxItem, event_key=2, payload=b"")
            beside.rollback()
        assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["1"]
        outer.rollback()
    assert boxes.emitted(OrderOutboxItem) == []


@pytest.mark.parametrize("mode", ["conditional_savepoint", "create_savepoint", "rollback_only"])
def test_what_sessions_in_a_tests_transaction_committed_goes_with_it(
    boxes: MemoryBoxes, sqlite: Engine, mode: Any
) -> None:
    with sqlite.connect() as connection, connection.begin() as whole:
        with Session(connection, join_transaction_mode=mode) as session, session.begin():
            place_order(session, 1, "a bicycle")
        with connection.begin_nested() as savepoint:
            with Session(connection, join_transaction_mode="create_savepoint") as session, session.begin():
                place_order(session, 2, "a tandem")
            savepoint.rollback()
        scoped = scoped_session(sessionmaker(connection, join_transaction_mode=mode))
        place_order(scoped, 3, "a unicycle")
        scoped.commit()
        assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["1", "3"]
        whole.rollback()
    assert boxes.emitted(OrderOutboxItem) == []


def test_what_a_session_commits_on_a_connection_without_a_transaction_stays(boxes: MemoryBoxes, sqlite: Engine) -> None:
    with sqlite.connect() as connection:
        with Session(connection) as session:
            place_order(session, 1, "a bicycle")
            session.commit()
            place_order(session, 2, "a tandem")
        connection.begin().rollback()
    assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["1"]


def test_a_drain_delivers_through_the_configured_transport(boxes: MemoryBoxes) -> None:
    place_order(None, 1, "a bicycle")
    drained = boxes.drain()
    assert [item.event_key for item in drained.delivered] == ["1"]
    assert [item.status for item in boxes.emitted(OrderOutboxItem)] == [Status.DELIVERED]
    assert boxes.drain().delivered == ()


def test_a_drain_raises_what_the_transport_raised_and_names_the_item(boxes: MemoryBoxes) -> None:
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=7, payload=b"raise")
    with pytest.raises(ConnectionError, match="the line is cut") as raised:
        boxes.drain()
    assert "event_key='7'" in "".join(raised.value.__notes__)


@pytest.mark.parametrize("transport", [Mock(), MagicMock(), AsyncMock()])
def test_a_mock_takes_the_place_of_a_transport(boxes: MemoryBoxes, transport: Any) -> None:
    boxes.use_transport(OrderOutboxItem, transport)
    place_order(None, 1, "a bicycle")
    assert len(boxes.drain().delivered) == 1
    transport.assert_called_once_with(ANY, b'{"what": "a bicycle"}')
    transport.side_effect = ConnectionError("the line is cut")
    place_order(None, 2, "a tandem")
    with pytest.raises(ConnectionError, match="the line is cut"):
        boxes.drain()


def test_a_mock_of_a_transport_of_batches_gets_batches(boxes: MemoryBoxes) -> None:
    transport = Mock(spec=["call_batch"])
    transport.call_batch.side_effect = lambda items: [None] * len(items)
    boxes.use_transport(OrderOutboxItem, transport)
    place_order(None, 1, "a bicycle")
    assert len(boxes.drain().delivered) == 1


def test_a_drain_raises_for_a_failure_that_was_returned(boxes: MemoryBoxes) -> None:
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=7, payload=b"fail")
    with pytest.raises(NotDelivered, match="not today"):
        boxes.drain()


def test_failures_can_be_looked_at_instead(boxes: MemoryBoxes) -> None:
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=7, payload=b"raise")
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=8, payload=b"well")
    drained = boxes.drain(raise_failures=False)
    assert [item.event_key for item in drained.delivered] == ["8"]
    (undelivered,) = drained.undelivered
    assert undelivered.item.event_key == "7"
    assert isinstance(undelivered.error, ConnectionError)
    assert "the line is cut" in undelivered.reason


def test_an_attempt_that_failed_and_a_retry_that_did_not_count_as_delivered(boxes: MemoryBoxes) -> None:
    receiver = RecordingTransport(answers=[ConnectionError("once"), False])
    boxes.use_transport(OrderOutboxItem, receiver)
    place_order(None, 1, "a bicycle")
    began = boxes.clock.now()
    drained = boxes.drain(until=timedelta(hours=1))
    assert [item.event_key for item in drained.delivered] == ["1"]
    assert len(receiver.items) == 3
    assert boxes.clock.now() - began == timedelta(seconds=10 + 20), "the pauses of exponential backoff"


def test_a_drain_ends_where_an_item_is_failed_for_good(boxes: MemoryBoxes) -> None:
    boxes.use_transport(OrderOutboxItem, RecordingTransport(answers=[False] * 3))
    place_order(None, 1, "a bicycle")
    place_order(None, 1, "a tandem")
    drained = boxes.drain(until=timedelta(days=1), raise_failures=False)
    assert drained.delivered == ()
    assert [item.status for item in boxes.emitted(OrderOutboxItem)] == [Status.FAILED, Status.PENDING]


def test_delayed_items_go_out_when_their_time_comes(boxes: MemoryBoxes) -> None:
    later = boxes.clock.now() + timedelta(minutes=5)
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"", available_at=later)
    assert boxes.drain().delivered == ()
    boxes.clock.advance(timedelta(minutes=5))
    assert len(boxes.drain().delivered) == 1


def test_a_moment_that_the_application_took_from_the_real_clock_is_due_once_it_has_come(boxes: MemoryBoxes) -> None:
    class Chain:
        def __call__(self, item: Any, payload: bytes) -> None:
            if payload == b"first":
                create_outbox_item(
                    NO_SESSION, OrderOutboxItem, event_key=2, payload=b"", available_at=datetime.now(UTC)
                )

    boxes.use_transport(OrderOutboxItem, Chain())
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"first", available_at=datetime.now(UTC))
    create_outbox_item(
        NO_SESSION, OrderOutboxItem, event_key=3, payload=b"", available_at=datetime.now(UTC) + timedelta(hours=1)
    )
    assert [item.event_key for item in boxes.drain().delivered] == ["1", "2"]
    assert [item.event_key for item in boxes.drain(until=timedelta(hours=1)).delivered] == ["3"]


@pytest.mark.parametrize("until", [3600, datetime(2026, 11, 26)], ids=["seconds", "without a zone"])  # noqa: DTZ001 - the mistake
def test_a_span_or_a_moment_of_another_kind_is_refused(boxes: MemoryBoxes, until: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^until takes a timedelta, such as timedelta\(hours=1\), or a datetime with a zone, "
    ):
        boxes.drain(until=until)
    with pytest.raises(TypeError, match=r"^advance takes a timedelta, such as timedelta\(hours=1\), not "):
        boxes.clock.advance(until)


def test_time_that_passes_lets_no_retry_come_due_and_is_no_advance(boxengine_resolved: Resolved) -> None:
    real = [datetime(2026, 7, 1, tzinfo=UTC)]
    boxes = MemoryBoxes(boxengine_resolved, clock=PresentClock(lambda: real[0]))
    boxes.use_transport(OrderOutboxItem, RecordingTransport(answers=[False]))
    boxes.create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"")
    assert boxes.drain(raise_failures=False).undelivered
    real[0] += timedelta(minutes=5)
    assert boxes.drain() == boxes.drain(until=timedelta(seconds=9)) == Drained()

    for minutes in (0, 60, 61):
        later = real[0] + timedelta(minutes=minutes)
        boxes.create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=minutes, payload=b"", available_at=later)
    assert {item.event_key for item in boxes.drain().delivered} == {"0", "1"}, "five minutes later"
    boxes.clock.advance(timedelta(hours=1))
    assert [item.event_key for item in boxes.drain().delivered] == ["60"]
    real[0] += timedelta(minutes=1)
    assert [item.event_key for item in boxes.drain().delivered] == ["61"]
    assert boxes.clock.now() == real[0] + timedelta(hours=1)
    boxes.close()


def test_a_clock_of_the_tests_own_does_not_know_the_real_one(boxengine_resolved: Resolved) -> None:
    start = datetime(2020, 1, 1, tzinfo=UTC)
    boxes = MemoryBoxes(boxengine_resolved, clock=ManualClock(start))
    later = start + timedelta(hours=1)
    boxes.create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"", available_at=later)
    assert boxes.drain().delivered == ()
    assert len(boxes.drain(until=later).delivered) == 1
    assert boxes.clock.now() == later
    boxes.close()


@pytest.mark.parametrize("moment", [datetime(2030, 1, 31, 12), date(2030, 1, 31)], ids=["datetime", "date"])  # noqa: DTZ001
@pytest.mark.parametrize("name", ["available_at", "created_at"])
def test_a_moment_without_a_zone_is_refused(boxes: MemoryBoxes, name: str, moment: Any) -> None:
    with pytest.raises(InvalidItem, match=rf"{name}: expected a datetime with a zone, such as datetime.now\(UTC\)"):
        create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"", **{name: moment})
    assert boxes.emitted(OrderOutboxItem) == []


def test_items_of_a_box_with_sequence_are_numbered_per_key(boxes: MemoryBoxes) -> None:
    receiver = RecordingTransport()
    boxes.use_transport(TicketOutboxItem, receiver)
    for key in "aba":
        boxes.create_outbox_item(NO_SESSION, TicketOutboxItem, event_key=key, payload=b"", dedup_key=f"{key} first")
        boxes.create_outbox_item(NO_SESSION, "ticket_outbox_item", event_key=key, payload=b"")
    boxes.drain()
    numbers = [(item.event_key, item.seq, item.headers["Sequence-Number"]) for item in receiver.items]
    assert sorted(numbers) == [("a", 1, "1"), ("a", 2, "2"), ("a", 3, "3"), ("b", 1, "1"), ("b", 2, "2")]
    with pytest.raises(InvalidItem, match="unknown attribute seq"):
        boxes.create_outbox_item(NO_SESSION, TicketOutboxItem, event_key="a", payload=b"", seq=7)


def test_a_rollback_takes_numbers_back(boxes: MemoryBoxes, sqlite: Engine) -> None:
    def ticket(session: Any, key: str) -> None:
        boxes.create_outbox_item(session, TicketOutboxItem, event_key=key, payload=b"")

    with Session(sqlite) as session:
        ticket(session, "a")
        with session.begin_nested() as savepoint:
            ticket(session, "a")
            savepoint.rollback()
        ticket(session, "a")
        session.commit()
        ticket(session, "a")
        ticket(NO_SESSION, "b")
        session.rollback()
    ticket(NO_SESSION, "a")
    ticket(NO_SESSION, "b")
    assert [(item.event_key, item.seq) for item in boxes.emitted(TicketOutboxItem)] == [
        ("a", 1), ("a", 2), ("b", 1), ("a", 3), ("b", 2),
    ]  # fmt: skip


def test_a_transport_for_a_box_that_does_not_exist_is_refused(boxes: MemoryBoxes) -> None:
    for model in ("order_outbox_itm", Invoice):
        with pytest.raises(UnknownBox, match=r"unknown box .* known boxes: .*order_outbox_item"):
            boxes.use_transport(model, RecordingTransport())


def test_a_long_job_is_refused_with_what_takes_it_and_nothing_is_written(boxes: MemoryBoxes, sqlite: Engine) -> None:
    with Session(sqlite) as session:
        for given in (NO_SESSION, session):
            with pytest.raises(BoxError, match=r"report_job holds long jobs, .*: use the fixture database_boxes"):
                create_job(given, ReportJob, task="export")
        assert session.scalars(select(ReportJob.id)).all() == []
    with pytest.raises(UnknownBox, match="no_job"):
        create_job(NO_SESSION, "no_job", task="export")


def test_what_a_transport_creates_is_delivered_too(boxes: MemoryBoxes) -> None:
    class Chain:
        def __call__(self, item: Any, payload: bytes) -> None:
            if payload == b"first":
                create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=2, payload=b"second")

    boxes.use_transport(OrderOutboxItem, Chain())
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"first")
    assert [item.payload for item in boxes.drain().delivered] == [b"first", b"second"]


def test_what_an_inbox_handler_creates_in_an_outbox_is_delivered_too(boxes: MemoryBoxes) -> None:
    class Confirm:
        def __call__(self, item: Any, payload: bytes) -> None:
            create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=item.event_key, payload=b"paid")

    receiver = RecordingTransport()
    boxes.use_transport(OrderOutboxItem, receiver)
    boxes.use_transport(PaymentInboxItem, Confirm())
    place_order(None, 1, "a bicycle")
    boxes.create_inbox_item(NO_SESSION, PaymentInboxItem, event_key=7, payload=b"twelve")
    drained = boxes.drain()
    assert [item.event_key for item in receiver.items] == ["1", "7"]
    assert [(item.box_name, item.event_key) for item in drained.delivered] == [
        ("order_outbox_item", "1"),
        ("payment_inbox_item", "7"),
        ("order_outbox_item", "7"),
    ]


class AddsAnInvoice:
    def __call__(self, item: Item, payload: bytes, *, session: Session) -> None:
        session.add(Invoice(text=payload.decode()))


class AwaitsAnInvoice:
    async def __call__(self, item: Item, payload: bytes, *, session: AsyncSession) -> None:
        session.add(Invoice(text=payload.decode()))


@pytest.mark.parametrize("handler", [AddsAnInvoice(), AwaitsAnInvoice()])
def test_a_handler_that_writes_is_told_that_there_is_no_database(boxes: MemoryBoxes, handler: Any) -> None:
    boxes.use_transport(PaymentInboxItem, handler)
    boxes.create_inbox_item(NO_SESSION, PaymentInboxItem, event_key=1, payload=b"twelve")
    with pytest.raises(BoxError, match=r"a handler that writes through session= .*: use the fixture database_boxes"):
        boxes.drain()


def test_what_a_handler_creates_through_its_session_goes_with_an_attempt_that_fails(boxes: MemoryBoxes) -> None:
    class Confirms:
        def __call__(self, item: Item, payload: bytes, *, session: Session) -> Failure | None:
            create_outbox_item(session, OrderOutboxItem, event_key=item.event_key, payload=payload)
            return Failure("not today") if payload == b"fail" else None

    boxes.use_transport(PaymentInboxItem, Confirms())
    for key, payload in enumerate((b"twelve", b"fail", b"thirteen")):
        boxes.create_inbox_item(NO_SESSION, PaymentInboxItem, event_key=key, payload=payload)
    assert [each.item.event_key for each in boxes.drain(raise_failures=False).undelivered] == ["1"]
    assert [item.event_key for item in boxes.emitted(OrderOutboxItem)] == ["0", "2"]


def test_the_clock_moves_on_for_all_boxes_together(boxes: MemoryBoxes) -> None:
    began, told = boxes.clock.now(), list[tuple[str, int]]()

    class Told:
        def __call__(self, item: Any, payload: bytes) -> bool:
            told.append((item.box_name, round((boxes.clock.now() - began).total_seconds())))
            return payload != b"fails once" or item.errors_count > 0

    boxes.use_transport(OrderOutboxItem, Told())
    boxes.use_transport(PaymentInboxItem, Told())
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"fails once")
    soon = began + timedelta(seconds=5)
    boxes.create_inbox_item(NO_SESSION, PaymentInboxItem, event_key=1, payload=b"", available_at=soon)
    boxes.drain(until=timedelta(hours=1))
    assert told == [("order_outbox_item", 0), ("payment_inbox_item", 5), ("order_outbox_item", 10)]


def test_boxes_that_feed_each_other_do_not_hang_the_test(boxes: MemoryBoxes) -> None:
    class Loop:
        def __call__(self, item: Any, payload: bytes) -> None:
            if item.box_name == "order_outbox_item":
                boxes.create_inbox_item(NO_SESSION, PaymentInboxItem, event_key=1, payload=b"")
            else:
                create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"")

    boxes.use_transport(OrderOutboxItem, Loop())
    boxes.use_transport(PaymentInboxItem, Loop())
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"")
    with pytest.raises(NotDelivered, match=r"rounds: order_outbox_item; do transports feed these boxes\?"):
        boxes.drain()


def test_a_transport_that_feeds_itself_does_not_hang_the_test(boxes: MemoryBoxes) -> None:
    class Loop:
        def __call__(self, item: Any, payload: bytes) -> None:
            create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"")

    boxes.use_transport(OrderOutboxItem, Loop())
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"")
    with pytest.raises(NotDelivered, match="does a transport feed it"):
        boxes.drain()


def test_a_receiver_that_cannot_be_reached_is_raised_at_once(boxes: MemoryBoxes) -> None:
    boxes.use_transport(OrderOutboxItem, RecordingTransport(answers=[Unavailable("no route")]))
    place_order(None, 1, "a bicycle")
    with pytest.raises(Unavailable, match="no route"):
        boxes.drain()


def test_a_receiver_that_cannot_be_reached_stops_its_box_and_is_returned(boxes: MemoryBoxes) -> None:
    receiver = RecordingTransport(answers=[None, Unavailable("no route")])
    boxes.use_transport(OrderOutboxItem, receiver)
    boxes.use_transport(PaymentInboxItem, RecordingTransport())
    for number in (1, 2, 3):
        place_order(None, number, "a bicycle")
    later = boxes.clock.now() + timedelta(minutes=5)
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=4, payload=b"", available_at=later)
    boxes.create_inbox_item(NO_SESSION, PaymentInboxItem, event_key=5, payload=b"")
    drained = boxes.drain(raise_failures=False)
    assert {item.event_key for item in drained.delivered} == {"1", "5"}
    assert [each.item.event_key for each in drained.undelivered] == ["2", "3"]
    assert {str(each.error) for each in drained.undelivered} == {"no route"}
    assert {each.reason for each in drained.undelivered} == {"transport cannot be reached: Unavailable: no route"}
    assert len(receiver.items) == 2
    assert {item.event_key for item in boxes.drain().delivered} == {"2", "3"}


def test_a_receiver_that_stays_away_is_returned_by_every_drain(boxes: MemoryBoxes) -> None:
    boxes.use_transport(OrderOutboxItem, RecordingTransport(answers=[Unavailable("no route")] * 100))
    place_order(None, 1, "a bicycle")
    for _ in range(5):
        (undelivered,) = boxes.drain(until=timedelta(days=1), raise_failures=False).undelivered
        assert isinstance(undelivered.error, Unavailable)


def test_a_drain_raises_what_a_coroutine_raised_and_names_the_item(boxes: MemoryBoxes) -> None:
    class Receiver:
        async def __call__(self, item: Any, payload: bytes) -> bool | None:
            if item.errors_count > 0:
                return False
            if payload == b"raise":
                raise ConnectionError("the line is cut")
            return None

    boxes.use_transport(OrderOutboxItem, Receiver())
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=6, payload=b"well")
    create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=7, payload=b"raise")
    with pytest.raises(ConnectionError, match="the line is cut") as raised:
        boxes.drain()
    assert "event_key='7'" in "".join(raised.value.__notes__)
    boxes.clock.advance(timedelta(seconds=10))
    with pytest.raises(NotDelivered):
        boxes.drain()


class Guard:
    def __call__(self, item: Any, call_next: Any) -> None:
        if item.event_key != "7":
            call_next()


class Forgetful:
    async def __call__(self, item: Any, call_next: Any) -> None:
        if item.event_key == "7":
            call_next()
        else:
            await call_next()


class BatchGuard:
    def __call__(self, batch: Any, call_next: Any) -> None:
        if all(item.event_key != "7" for item in batch.items):
            call_next()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    "around", ["item_process: [{0}.Guard]", "item_process: [{0}.Forgetful]", "batch_process: [{0}.BatchGuard]"]
)
def test_items_that_a_middleware_keeps_back_are_undelivered(tmp_path: Path, around: str) -> None:
    file = tmp_path / "outbox.yml"
    file.write_text(
        f"outbox_items: {{sale_outbox_item: {{transports: {{log: {{}}}}}}}}\nmiddlewares: {{{around.format(__name__)}}}"
    )
    boxes, receiver = MemoryBoxes(boxengine.load(file).resolved), RecordingTransport()
    boxes.use_transport("sale_outbox_item", receiver)
    boxes.create_outbox_item(NO_SESSION, "sale_outbox_item", event_key=7, payload=b"")
    for _ in range(2):
        with pytest.raises(NotDelivered, match=r"event_key='7'.*: a middleware did not call call_next\(\)"):
            boxes.drain()
    (kept_back,) = boxes.drain(raise_failures=False).undelivered
    assert (kept_back.item.event_key, kept_back.error) == ("7", None)
    assert receiver.items == []
    boxes.close()


class Raising:
    def __call__(self, batch: Any, call_next: Any) -> None:
        if any(item.event_key == "7" for item in batch.items):
            raise LookupError("no tenant")
        call_next()


class AsyncRaising:
    async def __call__(self, batch: Any, call_next: Any) -> None:
        if any(item.event_key == "7" for item in batch.items):
            raise LookupError("no tenant")
        await call_next()


class Refusing:
    def __call__(self, batch: Any, call_next: Any) -> bool | None:
        if any(item.event_key == "7" for item in batch.items):
            return False
        call_next()
        return None


class Losing:
    def __call__(self, batch: Any, call_next: Any) -> None:
        call_next()
        if any(item.event_key == "7" for item in batch.items):
            raise Unavailable("no tenant")


@pytest.mark.parametrize(
    ("middleware", "error"),
    [(Raising, LookupError), (AsyncRaising, LookupError), (Refusing, BoxError), (Losing, Unavailable)],
)
def test_a_batch_middleware_that_stops_a_batch_fails_no_attempt_and_is_returned(
    tmp_path: Path, middleware: type, error: type[Exception]
) -> None:
    file = tmp_path / "outbox.yml"
    file.write_text(
        "outbox_items: {sale_outbox_item: {transports: {log: {}}}, other_outbox_item: {transports: {log: {}}}}\n"
        f"middlewares: {{batch_process: [{__name__}.{middleware.__name__}]}}"
    )
    boxes = MemoryBoxes(boxengine.load(file).resolved)
    for box, key in (("sale_outbox_item", 7), ("sale_outbox_item", 8), ("other_outbox_item", 9)):
        boxes.use_transport(box, RecordingTransport())
        boxes.create_outbox_item(NO_SESSION, box, event_key=key, payload=b"")
    drained = boxes.drain(until=timedelta(days=1), raise_failures=False)
    assert [item.event_key for item in drained.delivered] == ["9"], "another box goes on"
    assert [each.item.event_key for each in drained.undelivered] == ["7", "8"]
    assert {(each.item.status, each.item.errors_count) for each in drained.undelivered} == {(Status.PENDING, 0)}
    assert all("a batch middleware failed" in each.reason for each in drained.undelivered)
    assert all(isinstance(each.error, error) for each in drained.undelivered)
    with pytest.raises(error) as raised:
        boxes.drain()
    assert "event_key='7'" in "".join(raised.value.__notes__)
    boxes.close()


def test_a_dedup_key_gives_the_first_item_back(boxes: MemoryBoxes) -> None:
    first, second = (
        create_outbox_item(NO_SESSION, OrderOutboxItem, event_key=1, payload=b"", dedup_key="one") for _ in range(2)
    )
    assert first == second
    assert len(boxes.emitted(OrderOutboxItem)) == 1


def test_a_uuid_of_an_inbox_is_known_however_it_is_spelled(boxes: MemoryBoxes) -> None:
    uuid = UUID("0f6b7b3e-3e63-4a51-8d11-0d4b7a1d8e55")
    spellings: list[UUID | str] = [str(uuid).upper(), uuid.hex, uuid]
    for each in spellings:
        assert boxes.create_inbox_item(NO_SESSION, PaymentInboxItem, event_key=1, payload=b"", uuid=each) == 1
    assert [item.uuid for item in boxes.emitted(PaymentInboxItem)] == [str(uuid)]


def test_every_subscription_of_a_log_gets_what_is_created(tmp_path: Path, sqlite: Engine) -> None:
    file = tmp_path / "outbox.yml"
    file.write_text(
        "outbox_items: {sale_outbox_item: {storage: log, subscriptions: "
        "{billing: {transports: {log: {}}}, search: {transports: {log: {}}}}}}"
    )
    boxes = MemoryBoxes(boxengine.load(file).resolved)
    billing, search = RecordingTransport(), RecordingTransport()
    boxes.use_transport("sale_outbox_item.billing", billing)
    boxes.use_transport("sale_outbox_item.search", search)
    boxes.create_outbox_item(NO_SESSION, "sale_outbox_item", event_key=1, payload=b"x")
    with Session(sqlite) as session:
        boxes.create_outbox_item(session, "sale_outbox_item", event_key=2, payload=b"y")
        session.rollback()
    assert len(boxes.emitted("sale_outbox_item")) == 1
    boxes.drain("sale_outbox_item")
    assert [item.event_key for item in billing.items] == [item.event_key for item in search.items] == ["1"]
    boxes.close()


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("sale_outbox_item", {"available_at": "where a position", "dedup_key": "no unique index"}),
        ("payment_inbox_item", {"available_at": "where a position"}),
    ],
)
def test_what_a_log_has_no_place_for_is_refused_as_by_a_database(
    tmp_path: Path, name: str, refused: dict[str, str]
) -> None:
    box, file = "{storage: log, transports: {log: {}}}", tmp_path / "outbox.yml"
    file.write_text(f"outbox_items: {{sale_outbox_item: {box}}}\ninbox_items: {{payment_inbox_item: {box}}}")
    boxes = MemoryBoxes(boxengine.load(file).resolved)
    create = boxes.create_outbox_item if name.endswith("outbox_item") else boxes.create_inbox_item
    values: dict[str, Any] = {"available_at": boxes.clock.now(), "dedup_key": "one"}
    for attribute, value in values.items():
        with ExitStack() as stack:
            if attribute in refused:
                message = f"{attribute}: not with storage: log.*{refused[attribute]}"
                stack.enter_context(pytest.raises(InvalidItem, match=message))
            create(NO_SESSION, name, event_key=1, payload=b"", **{attribute: value})
    assert len(boxes.emitted(name)) == len(values) - len(refused)
    boxes.close()


@pytest.mark.parametrize("given", ["log", 5, None])
def test_what_cannot_be_called_in_place_of_a_transport_is_refused(boxes: MemoryBoxes, given: object) -> None:
    with pytest.raises(TypeError, match=rf"is called as \(item, payload\), not {given!r}$"):
        boxes.use_transport(OrderOutboxItem, given)


def test_a_class_in_place_of_a_transport_is_refused(boxes: MemoryBoxes) -> None:
    with pytest.raises(TypeError, match=r"takes an instance: RecordingTransport\(\.\.\.\)"):
        boxes.use_transport(OrderOutboxItem, RecordingTransport)
