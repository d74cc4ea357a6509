"""Writing items: through whose transaction, with which columns, and what a refusal leaves behind."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from sqlalchemy import Enum, event, select
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from boxengine import BatchAttributes, ItemAttributes, OutboxItem
from boxengine.domain import partitioning
from boxengine.errors import InvalidItem
from tests.integration.engine.models import Base, Order, OrderOutboxItem, PaymentMessage
from tests.integration.engine.receivers import Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import ON_POSTGRESQL, MakeRig

MODELS = "tests.integration.engine.models"
WITH_MODELS: dict[str, Any] = {
    "outbox_items": {
        BOX: {"model": f"{MODELS}.OrderOutboxItem"},
        "receipt_outbox_item": {"model": f"{MODELS}.ReceiptOutboxItem"},
    },
    "inbox_items": {"payment_inbox_item": {"model": f"{MODELS}.PaymentMessage"}},
}


class EventName(StrEnum):
    """Its names are shorter than its texts."""

    PAID = "the_order_was_paid"


class Step(IntEnum):
    PACKED = 2


class Region(enum.Enum):
    EU = "eu"


ASYNCHRONOUS = ON_POSTGRESQL
"""The drivers at hand that can are PostgreSQL's."""


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    rig = make_rig(tables=False, **WITH_MODELS)
    Base.metadata.create_all(rig.engine)
    return rig


def put(rig: Rig, session: Any, **attributes: Any) -> int:
    return rig.boxes.create_outbox_item(
        session, OrderOutboxItem, **{"event_key": 7, "payload": b"{}", "event_name": "order_created", **attributes}
    )


def test_an_item_commits_with_the_business_row_of_the_session(rig: Rig) -> None:
    with Session(rig.engine) as session, session.begin():
        session.add(Order(id=7, title="a book"))
        item_id = put(rig, session)
    row = rig.row(item_id)
    assert (row.event_key, row.event_name, row.bucket, row.status, row.errors_count) == ("7", "order_created", 3, 0, 0)
    assert bytes(row.payload) == b"{}"
    assert row.processed_at is None
    assert row.created_at is not None
    assert rig.ask("SELECT title FROM orders")[0].title == "a book"


def test_an_item_commits_with_the_transaction_of_a_connection(rig: Rig) -> None:
    with rig.engine.begin() as connection:
        item_id = put(rig, connection)
    assert rig.row(item_id).event_key == "7"


def test_options_that_json_cannot_hold_are_refused_with_the_part_and_what_to_give_instead(rig: Rig) -> None:
    bad = {"headers": {"total": Decimal("1.5")}}
    for options in ([bad], [{"n": 1}, bad]):
        batch: Any = [{"event_key": 7, "payload": b"{}", "options": each} for each in options]
        with Session(rig.engine) as session, session.begin(), pytest.raises(InvalidItem) as refused:
            rig.boxes.create_outbox_batch(session, OrderOutboxItem, batch)
        assert str(refused.value) == (
            f"box {BOX}, item {len(options) - 1}: options: expected what JSON can hold: "
            "['headers']['total'] is of type Decimal; give str(value)"
        )
    assert rig.rows() == {}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"total": float("nan")}, "['total'] is nan, which is no number in JSON; give None, or a text"),
        ({"name": "half \ud800"}, "a text with half a surrogate pair, which is no character"),
        ({"name": "a\0"}, r"a text with NUL (\x00), which PostgreSQL does not store"),
        (nested(3000), "it is nested too deeply"),
    ],
    ids=["nan", "half-a-pair", "nul", "deep"],
)
def test_options_that_only_the_database_refuses_are_named_too(rig: Rig, options: dict[str, Any], said: str) -> None:
    if said.startswith("a text") and rig.engine.dialect.name == "mysql":
        pytest.skip("MariaDB stores these")
    with Session(rig.engine) as session, pytest.raises(InvalidItem) as refused:
        put(rig, session, options=options)
    assert str(refused.value) == f"box {BOX}, item 0: options: expected what JSON can hold: {said}"


def test_a_rollback_leaves_nothing_of_the_item_nor_of_the_order(rig: Rig) -> None:
    with Session(rig.engine) as session:
        session.add(Order(id=7, title="a book"))
        put(rig, session)
        session.rollback()
    assert rig.rows() == {}
    assert rig.ask("SELECT * FROM orders") == []


@ASYNCHRONOUS
def test_an_item_under_an_async_session_commits_or_rolls_back_with_it(rig: Rig) -> None:
    async def write() -> list[int]:
        engine = create_async_engine(rig.config["database"]["url"])
        async with AsyncSession(engine) as session:
            item_id = await rig.boxes.acreate_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"a")
            ids = await rig.boxes.acreate_outbox_batch(
                session, OrderOutboxItem, [{"event_key": key, "payload": b"b"} for key in (2, 3)]
            )
            session.add(Order(id=1, title="async"))
            await session.commit()
            await rig.boxes.acreate_inbox_item(session, PaymentMessage, event_key=4, payload=b"c")
            await session.rollback()
        await engine.dispose()
        return [item_id, *ids]

    ids = asyncio.run(write())
    assert list(rig.rows()) == ids
    assert [row.event_key for row in rig.rows().values()] == ["1", "2", "3"]
    assert rig.rows("payment_inbox_item") == {}


@ASYNCHRONOUS
def test_an_item_under_an_async_scoped_session_commits_or_rolls_back_with_it(rig: Rig) -> None:
    async def write() -> int:
        engine = create_async_engine(rig.config["database"]["url"])
        scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        item_id = await rig.boxes.acreate_outbox_item(scoped, OrderOutboxItem, event_key=1, payload=b"a")
        scoped.add(Order(id=1, title="async"))
        await scoped.commit()
        await rig.boxes.acreate_outbox_item(scoped, OrderOutboxItem, event_key=2, payload=b"b")
        await scoped.remove()
        await engine.dispose()
        return item_id

    item_id = asyncio.run(write())
    assert list(rig.rows()) == [item_id]
    assert [row.title for row in rig.ask("SELECT title FROM orders")] == ["async"]


@ASYNCHRONOUS
def test_the_create_functions_work_inside_run_sync(rig: Rig) -> None:
    async def write() -> int:
        engine = create_async_engine(rig.config["database"]["url"])
        async with AsyncSession(engine) as session, session.begin():
            item_id = await session.run_sync(lambda sync: put(rig, sync))
        await engine.dispose()
        return item_id

    item_id = asyncio.run(write())
    assert list(rig.rows()) == [item_id]


@ASYNCHRONOUS
def test_an_async_session_without_run_sync_is_refused_with_the_remedy(rig: Rig) -> None:
    make = async_sessionmaker(create_async_engine(rig.config["database"]["url"]))
    for session in (make(), async_scoped_session(make, scopefunc=asyncio.current_task)):
        with pytest.raises(InvalidItem, match="acreate_outbox_item"):
            put(rig, session)


def test_a_batch_returns_its_ids_in_the_order_given(rig: Rig) -> None:
    items: list[BatchAttributes] = [{"event_key": number, "payload": str(number)} for number in range(1200)]
    items[3]["event_name"] = "odd"
    with rig.engine.begin() as connection:
        ids = rig.boxes.create_outbox_batch(connection, BOX, items)
    rows = rig.rows()
    assert [rows[item_id].event_key for item_id in ids] == [str(number) for number in range(1200)]
    assert rows[ids[3]].event_name == "odd"


def test_an_empty_batch_writes_nothing(rig: Rig) -> None:
    with rig.engine.begin() as connection:
        assert rig.boxes.create_outbox_batch(connection, BOX, []) == []


def test_a_dedup_key_that_is_taken_gives_the_id_of_the_first(rig: Rig) -> None:
    with rig.engine.begin() as connection:
        first = put(rig, connection, dedup_key="once")
        assert put(rig, connection, dedup_key="once", payload=b"second") == first
    with rig.engine.begin() as connection:
        ids = rig.boxes.create_outbox_batch(
            connection,
            BOX,
            [
                {"event_key": 1, "payload": b"", "dedup_key": "twice"},
                {"event_key": 1, "payload": b"", "dedup_key": "once"},
                {"event_key": 1, "payload": b"", "dedup_key": "twice"},
                {"event_key": 1, "payload": b""},
            ],
        )
    assert ids[1] == first
    assert ids[0] == ids[2]
    assert len(set(ids)) == 3
    assert len(rig.rows()) == 3


@pytest.mark.parametrize("many", [False, True], ids=["one", "batch"])
@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=30))], ids=["UTC", "elsewhere"])
def test_available_at_is_stored_to_the_microsecond_whatever_its_zone(rig: Rig, zone: timezone, many: bool) -> None:
    moment = datetime.now(zone) + timedelta(hours=1)
    with rig.engine.begin() as connection:
        if many:
            items: list[BatchAttributes] = [
                {"event_key": number, "payload": b"", "available_at": moment} for number in range(60)
            ]
            item_id = rig.boxes.create_outbox_batch(connection, BOX, items)[-1]
        else:
            item_id = put(rig, connection, available_at=moment)
    assert rig.row(item_id).available_at == moment


def test_partition_by_overrides_the_event_key_for_the_bucket(rig: Rig) -> None:
    with rig.engine.begin() as connection:
        one = put(rig, connection, event_key=1, partition_by=6)
        many = rig.boxes.create_outbox_batch(
            connection,
            OrderOutboxItem,
            [{"event_key": key, "payload": b"", "event_name": str(key + 5)} for key in (1, 2)],
            partition_by=lambda attributes: attributes["event_name"],
        )
    assert [rig.row(each).bucket for each in (one, *many)] == [6 % 4, 6 % 4, 7 % 4]
    assert rig.row(one).event_key == "1"


def test_the_bucket_follows_the_configured_strategy(make_rig: MakeRig) -> None:
    rig = make_rig(bucket_size=16, box={"partition_strategy": "hash"})
    keys = ("alpha", "beta", "42")
    ids = rig.create(*keys)
    assert [rig.row(each).bucket for each in ids] == [partitioning.hashed(key, 16) for key in keys]


def test_create_middlewares_may_change_the_attributes(rig: Rig) -> None:
    def stamp(model: Any, attributes: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        assert model is OrderOutboxItem
        attributes["options"] = {"stamped": True}
        return call_next()

    rig.surround(create_item=[stamp])
    with rig.engine.begin() as connection:
        item_id = put(rig, connection)
    assert rig.row(item_id).options == {"stamped": True}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"event_key": None}, "event_key is missing"),
        ({"payload": None}, "payload is missing"),
        ({"payload": {"a": 1}}, "payload must be bytes or str, not dict"),
        ({"colour": "red"}, "unknown attribute colour"),
        ({"status": 2}, "status: boxengine alone sets this; leave it out"),
        ({"event_nam": "paid"}, "did you mean event_name?"),
        ({"uuid": "nonsense"}, "uuid 'nonsense' is not a UUID"),
        ({"event_key": "k" * 256}, "event_key has 256 characters; its column takes 255 at most"),
        ({"event_name": "n" * 256}, "event_name has 256 characters; its column takes 255 at most"),
        ({"dedup_key": "d" * 256}, "dedup_key has 256 characters; its column takes 255 at most"),
        ({"event_name": "a\0b"}, r"event_name 'a\\x00b' holds the character U\+0000"),
        ({"dedup_key": "a\udc80b"}, r"dedup_key 'a\\udc80b' holds the character U\+DC80"),
        ({"dedup_key": True}, "dedup_key must be a text, a whole number or a UUID, not bool"),
        ({"uuid": 5}, "uuid 5 is not a UUID"),
        ({"uuid": None}, "uuid is None; leave it out"),
        ({"created_at": None}, "created_at is None; leave it out"),
        ({"bucket": True}, "bucket True, expected 0 to"),
        ({"available_at": "2026-01-31T12:00"}, "available_at: expected a datetime with a zone"),
        ({"created_at": "noon"}, "created_at: expected a datetime with a zone"),
        (
            {"event_name": Region.EU},
            "event_name must be a text, .* not Region; give what is meant, such as Region.EU.value",
        ),
        ({"event_key": "a\0b"}, r"event_key 'a\\x00b' holds the character U\+0000"),
        ({"available_at": timedelta(hours=1)}, "available_at: expected a datetime with a zone"),
        ({"available_at": datetime(2026, 1, 31)}, "available_at: expected a datetime with a zone"),  # noqa: DTZ001
        ({"created_at": datetime(2026, 1, 31)}, "created_at: expected a datetime with a zone"),  # noqa: DTZ001
    ],
)
def test_an_item_that_cannot_be_written_is_refused_and_the_transaction_stays_usable(
    rig: Rig, attributes: dict[str, Any], message: str
) -> None:
    with rig.engine.begin() as connection:
        with pytest.raises(InvalidItem, match=message):
            put(rig, connection, **attributes)
        item_id = put(rig, connection)
    assert list(rig.rows()) == [item_id]


def test_a_key_as_long_as_the_owner_of_the_table_has_made_its_column_is_written(rig: Rig) -> None:
    wider = "ALTER COLUMN event_key TYPE varchar(400)"
    if rig.engine.dialect.name != "postgresql":
        wider = "MODIFY event_key varchar(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
    rig.execute(f"ALTER TABLE order_outbox_items {wider}")
    with rig.engine.begin() as connection:
        item_id = put(rig, connection, event_key="k" * 400)
        with pytest.raises(InvalidItem, match="event_key has 401 characters; its column takes 400 at most"):
            put(rig, connection, event_key="k" * 401)
    assert [row.event_key for row in rig.rows().values()] == ["k" * 400]
    assert list(rig.rows()) == [item_id]


def test_a_name_is_held_against_the_column_as_the_owner_of_the_table_has_made_it(make_rig: MakeRig) -> None:
    rig = make_rig()
    narrower = "ALTER COLUMN event_name TYPE varchar(20)"
    if rig.engine.dialect.name != "postgresql":
        narrower = "MODIFY event_name varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    rig.execute(f"ALTER TABLE order_outbox_items {narrower}")
    with rig.engine.begin() as connection:
        with pytest.raises(InvalidItem, match="event_name has 21 characters; its column takes 20 at most"):
            rig.boxes.create_outbox_item(connection, BOX, event_key=1, payload=b"", event_name="n" * 21)
        rig.boxes.create_outbox_item(connection, BOX, event_key=1, payload=b"", event_name="n" * 20)
    assert [row.event_name for row in rig.rows().values()] == ["n" * 20]


class Named(DeclarativeBase):
    """For a model with another table of orders."""


class NamedOutboxItem(OutboxItem, Named):
    """Its names of events are members of an enumeration."""

    __tablename__ = "order_outbox_items"
    __box_name__ = BOX

    event_name: Mapped[EventName | None] = mapped_column(Enum(EventName))


def test_a_text_that_its_columns_type_stores_as_another_is_not_held_against_the_length_of_that(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(tables=False)
    Named.metadata.create_all(rig.engine)
    with rig.engine.begin() as connection:
        rig.boxes.create_outbox_item(connection, NamedOutboxItem, event_key=1, payload=b"", event_name=EventName.PAID)
        with pytest.raises(InvalidItem, match="event_key has 256 characters"):
            rig.boxes.create_outbox_item(connection, NamedOutboxItem, event_key="k" * 256, payload=b"")
        rig.boxes.create_outbox_item(connection, NamedOutboxItem, event_key=1, payload=b"", event_name=EventName.PAID)
    assert rig.ask("SELECT event_name FROM order_outbox_items") == [("PAID",)] * 2


def test_a_member_of_an_enumeration_names_an_event_as_its_value_does(rig: Rig) -> None:
    with rig.engine.begin() as connection:
        put(rig, connection, event_name=EventName.PAID)
        put(rig, connection, event_name=Step.PACKED)
    assert [row.event_name for row in rig.rows().values()] == ["the_order_was_paid", "2"]


def test_of_a_batch_with_one_bad_item_nothing_is_written(rig: Rig) -> None:
    items: Any = [{"event_key": 1, "payload": b""}, {"event_key": 2}]
    with rig.engine.begin() as connection, pytest.raises(InvalidItem, match="item 1: payload is missing"):
        rig.boxes.create_outbox_batch(connection, BOX, items)
    assert rig.rows() == {}


def test_an_inbox_item_goes_through_its_own_functions_only(rig: Rig) -> None:
    with rig.engine.begin() as connection:
        with pytest.raises(InvalidItem, match="use create_inbox_item"):
            rig.boxes.create_outbox_item(connection, PaymentMessage, event_key=1, payload=b"")  # type: ignore[arg-type]
        rig.boxes.create_inbox_item(connection, PaymentMessage, event_key=1, payload=b"")
    assert len(rig.rows("payment_inbox_item")) == 1


CREATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "create_outbox_item": lambda boxes, at, model: boxes.create_outbox_item(at, model, event_key=1, payload=b""),
    "create_inbox_item": lambda boxes, at, model: boxes.create_inbox_item(at, model, event_key=1, payload=b""),
    "create_outbox_batch": lambda boxes, at, model: boxes.create_outbox_batch(at, model, [{"event_key": 1}]),
    "create_inbox_batch": lambda boxes, at, model: boxes.create_inbox_batch(at, model, [{"event_key": 1}]),
    "create_job": lambda boxes, at, model: boxes.create_job(at, model, task="export"),
    "create_jobs": lambda boxes, at, model: boxes.create_jobs(at, model, [{"task": "export"}]),
}


@pytest.mark.parametrize("create", CREATIONS.values(), ids=CREATIONS)
def test_an_object_of_the_model_in_place_of_its_class_is_refused_and_the_transaction_stays_usable(
    rig: Rig, create: Callable[[Any, Any, Any], Any]
) -> None:
    advice = "not an object of type OrderOutboxItem; pass the class itself: OrderOutboxItem, not OrderOutboxItem\\(\\)"
    with rig.engine.begin() as connection:
        with pytest.raises(InvalidItem, match=advice):
            create(rig.boxes, connection, OrderOutboxItem())
        with pytest.raises(
            InvalidItem, match="a model class or the name of a box is needed, not an object of type NoneType"
        ):
            create(rig.boxes, connection, None)
        item_id = put(rig, connection)
    assert list(rig.rows()) == [item_id]


@ASYNCHRONOUS
def test_an_asynchronous_session_refuses_an_object_of_the_model_too(rig: Rig) -> None:
    async def write() -> None:
        engine = create_async_engine(rig.engine.url)
        try:
            async with AsyncSession(engine) as session, session.begin():
                with pytest.raises(InvalidItem, match="pass the class itself"):
                    await rig.boxes.acreate_outbox_item(session, OrderOutboxItem(), event_key=1, payload=b"")  # type: ignore[arg-type]
        finally:
            await engine.dispose()

    asyncio.run(write())
    assert rig.rows() == {}


def test_a_message_received_twice_is_stored_once_by_its_uuid(rig: Rig) -> None:
    message: ItemAttributes = {"event_key": 1, "payload": b"", "uuid": "6f9619ff-8b86-d011-b42d-00c04fc964ff"}
    with rig.engine.begin() as connection:
        first = rig.boxes.create_inbox_item(connection, PaymentMessage, **message)
        assert rig.boxes.create_inbox_item(connection, PaymentMessage, **message) == first
    assert len(rig.rows("payment_inbox_item")) == 1


def test_a_models_build_payload_makes_what_goes_out(rig: Rig) -> None:
    receiver = Receiver()
    rig.carry(receiver, box="receipt_outbox_item")
    (item_id,) = rig.create(1, box="receipt_outbox_item", payload="text")
    rig.deliver(1)
    assert receiver.payloads == [{"id": item_id, "stored": "text"}]


def test_what_the_session_has_pending_is_flushed_before_the_item(rig: Rig) -> None:
    with Session(rig.engine) as session, session.begin():
        session.add(Order(id=9, title="flushed"))
        put(rig, session)
        assert session.execute(select(Order.title).where(Order.id == 9)).scalar_one() == "flushed"


@pytest.mark.parametrize("moment", ["before_flush", "after_flush"])
def test_a_listener_may_create_items_within_the_flush(rig: Rig, moment: str) -> None:
    def announce(session: Session, *_context: object) -> None:
        for order in session.new:
            put(rig, session, event_key=order.id)

    with Session(rig.engine) as session, session.begin():
        event.listen(session, moment, announce)
        session.add_all([Order(id=7, title="a book"), Order(id=8, title="a pen")])
    assert sorted(row.event_key for row in rig.rows().values()) == ["7", "8"]
    assert [row.title for row in rig.ask("SELECT title FROM orders ORDER BY id")] == ["a book", "a pen"]


def test_an_item_created_within_a_flush_that_fails_goes_with_it(rig: Rig) -> None:
    def announce(session: Session, _context: object) -> None:
        put(rig, session)
        raise ValueError("sold out")

    with Session(rig.engine) as session:
        event.listen(session, "after_flush", announce)
        session.add(Order(id=7, title="a book"))
        with pytest.raises(ValueError, match="sold out"):
            session.commit()
    assert rig.rows() == {}
    assert rig.ask("SELECT * FROM orders") == []
