"""Items that follow from changes of a model, in the flush and the transaction of the change."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from sqlalchemy import Engine, ForeignKey, create_engine, true, update
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from boxengine.app.boxes import default
from boxengine.errors import InvalidItem
from boxengine.integrations.emissions import asked
from boxengine.integrations.sqlalchemy import Change, MapperEmission, emit, emits
from boxengine.testing import DatabaseBoxes, MemoryBoxes
from tests.testing.shop import Base as ShopBase
from tests.testing.shop import OrderOutboxItem, RoutingSession


class Base(DeclarativeBase):
    pass


def as_json(order: Any) -> str:
    if not order.customer:
        raise ValueError("no customer")
    return json.dumps({"id": order.id, "total": order.total, "lines": len(order.lines)})


def became_paid(_order: Any, change: Change) -> bool:
    return change.before.get("paid") is False


@emits(OrderOutboxItem, payload=as_json)
@emits(
    "order_outbox_item",
    on=["update"],
    when=became_paid,
    event_name="order_paid",
    event_key="customer",
    payload=lambda order: str(order.total),
    options=lambda order: {"headers": {"Customer": order.customer}},
)
class Order(Base):
    __tablename__ = "emitting_orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str] = mapped_column(default="ann")
    total: Mapped[int] = mapped_column(default=0)
    paid: Mapped[bool] = mapped_column(default=False)
    lines: Mapped[list[Line]] = relationship(cascade="all, delete-orphan")


class Line(Base):
    __tablename__ = "emitting_lines"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("emitting_orders.id"))


@emits(
    OrderOutboxItem, payload=lambda animal: json.dumps({"name": animal.name}), when=lambda animal, change: seen(change)
)
class Named:
    name: Mapped[str] = mapped_column(default="rex")


@emits(OrderOutboxItem, on="insert", event_name="counted", payload=str)
class Counted(Base):
    __abstract__ = True
    legs: Mapped[int] = mapped_column(default=4)


class Animal(Named, Counted):
    __tablename__ = "emitting_animals"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(default="")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}  # noqa: RUF012 - as SQLAlchemy has it


class Dog(Animal):
    voice: Mapped[str | None]
    __mapper_args__ = {"polymorphic_identity": "dog"}  # noqa: RUF012


@emits(OrderOutboxItem, payload=lambda hero: hero.model_dump_json())
class Hero(Base):
    """Like an SQLModel, it writes what its ``__dict__`` has, and asks SQLAlchemy for nothing."""

    __tablename__ = "emitting_heroes"
    __pydantic_fields__: ClassVar[dict[str, Any]] = {}
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    age: Mapped[int] = mapped_column(default=7)

    def model_dump_json(self) -> str:
        return json.dumps({name: value for name, value in vars(self).items() if name in ("id", "name", "age")})


changes: list[Change] = []


def seen(change: Change) -> bool:
    changes.append(change)
    return True


@pytest.fixture
def session(sqlite: Engine, boxes: MemoryBoxes) -> Iterator[Session]:
    Base.metadata.create_all(sqlite)
    with Session(sqlite) as session:
        yield session


def test_an_object_that_is_added_emits_with_everything_that_its_flush_wrote(
    session: Session, boxes: MemoryBoxes
) -> None:
    session.add(Order(total=12, lines=[Line(), Line()]))
    session.commit()
    assert boxes.emitted(OrderOutboxItem) == [
        {"event_name": "order_created", "event_key": 1, "payload": {"id": 1, "total": 12, "lines": 2}}
    ]


def test_a_rollback_emits_nothing(session: Session, boxes: MemoryBoxes) -> None:
    session.add(Order(total=12))
    session.flush()
    session.rollback()
    session.add(Order(total=13))
    session.commit()
    assert [json.loads(item.payload)["total"] for item in boxes.emitted(OrderOutboxItem)] == [13]


def test_an_update_emits_where_a_column_has_another_value_and_the_condition_holds(
    session: Session, boxes: MemoryBoxes
) -> None:
    order = Order(total=12)
    session.add(order)
    session.commit()
    order.total = 12
    session.commit()
    order.paid = True
    session.commit()
    assert boxes.emitted(OrderOutboxItem)[1:] == [
        {"event_name": "order_paid", "event_key": "ann", "payload": "12", "options": {"headers": {"Customer": "ann"}}},
        {"event_name": "order_updated", "event_key": 1},
    ]


def test_a_column_that_is_set_by_an_expression_emits_with_the_earlier_and_the_new_value(
    session: Session, boxes: MemoryBoxes
) -> None:
    order = Order(total=12)
    session.add(order)
    session.commit()
    order.total = Order.total + 1
    session.commit()
    order.paid = true()
    session.commit()
    assert boxes.emitted(OrderOutboxItem)[1:] == [
        {"event_name": "order_updated", "payload": {"id": 1, "total": 13, "lines": 0}},
        {"event_name": "order_paid", "payload": "13"},
        {"event_name": "order_updated"},
    ]


def test_a_pydantic_model_emits_with_what_an_expression_has_set(session: Session, boxes: MemoryBoxes) -> None:
    hero = Hero(name="ann")
    session.add(hero)
    session.commit()
    hero.age = Hero.age + 1
    session.commit()
    session.delete(hero)
    session.commit()
    assert boxes.emitted(OrderOutboxItem) == [
        {"payload": {"id": 1, "name": "ann", "age": 7}},
        {"payload": {"id": 1, "name": "ann", "age": 8}},
        {"payload": {"id": 1, "name": "ann", "age": 8}},
    ]


def test_what_an_expression_would_have_changed_is_forgotten_with_its_flush(
    session: Session, boxes: MemoryBoxes
) -> None:
    order = Order(total=12)
    session.add(order)
    session.commit()
    order.total = Order.total + 1
    order.customer = ""
    with pytest.raises(ValueError, match="no customer"):
        session.commit()
    session.rollback()
    session.refresh(order)
    order.customer = "ann"
    session.commit()
    assert len(boxes.emitted(OrderOutboxItem)) == 1


def test_classes_below_a_mixin_and_an_abstract_base_emit_as_these_say(session: Session, boxes: MemoryBoxes) -> None:
    changes.clear()
    dog = Dog(voice="woof")
    session.add(dog)
    session.commit()
    dog.voice = "yip"
    session.commit()
    dog.name = "max"
    session.commit()
    assert [change.before for change in changes] == [{}, {"voice": "woof"}, {"name": "rex"}]
    names = [item.event_name for item in boxes.emitted(OrderOutboxItem)]
    assert set(names[:2]) == {"counted", "dog_created"}
    assert names[2:] == ["dog_updated", "dog_updated"]
    assert len(emit(session, [dog], action="insert")) == 2


def test_a_deletion_emits(session: Session, boxes: MemoryBoxes) -> None:
    order = Order(total=12)
    session.add(order)
    session.commit()
    session.delete(order)
    session.commit()
    assert [item.event_name for item in boxes.emitted(OrderOutboxItem)] == ["order_created", "order_deleted"]


def test_many_objects_of_a_flush_are_written_in_one_batch(
    session: Session, boxes: MemoryBoxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    creator = boxes.creator(OrderOutboxItem, boxes.box("order_outbox_item").type)
    create_batch = creator.create_batch

    def counted(connection: Any, rows: list[dict[str, Any]]) -> list[int]:
        batches.append(len(rows))
        return create_batch(connection, rows)

    monkeypatch.setattr(creator, "create_batch", counted)
    session.add_all(Order(total=total) for total in range(50))
    session.commit()
    assert batches == [50]
    assert [json.loads(item.payload)["total"] for item in boxes.emitted(OrderOutboxItem)] == list(range(50))


def test_a_statement_over_many_rows_emits_what_is_asked_for(session: Session, boxes: MemoryBoxes) -> None:
    session.add_all(Order(total=total) for total in range(3))
    session.commit()
    late = session.scalars(update(Order).where(Order.total > 0).values(customer="bob").returning(Order)).all()
    assert len(emit(session, late)) == 2
    session.commit()
    assert [item.event_key for item in boxes.emitted(OrderOutboxItem, event_name="order_updated")] == ["2", "3"]


def test_what_the_session_has_pending_is_written_before_the_items(session: Session, boxes: MemoryBoxes) -> None:
    order = Order(total=12)
    session.add(order)
    assert len(emit(session, [order])) == 1
    assert {item.event_key for item in boxes.emitted(OrderOutboxItem)} == {"1"}


def test_an_object_whose_key_is_not_known_is_refused(session: Session, boxes: MemoryBoxes) -> None:
    orders = [Order(total=12)]
    session.bulk_save_objects(orders)
    with pytest.raises(
        InvalidItem, match="emits: Order has no primary key yet: flush it first, or take it from RETURNING"
    ):
        emit(session, orders, action="insert")
    assert boxes.emitted(OrderOutboxItem) == []


async def _emit_under_an_async_session(url: str, *, plainly: bool) -> int:
    engine = create_async_engine(url)
    try:
        async with AsyncSession(engine) as session, session.begin():
            session.add(Order(total=12))
            orders = (await session.scalars(update(Order).values(total=13).returning(Order))).all()
            if plainly:
                emit(session, orders)  # type: ignore[arg-type]
            return len(await session.run_sync(emit, orders))
    finally:
        await engine.dispose()


def test_under_an_async_session_emit_runs_in_run_sync(postgres_url: str, boxes: MemoryBoxes) -> None:
    engine = create_engine(postgres_url)
    Base.metadata.create_all(engine)
    engine.dispose()
    assert asyncio.run(_emit_under_an_async_session(postgres_url, plainly=False)) == 1
    assert len(boxes.emitted(OrderOutboxItem, event_name="order_updated")) == 1
    with pytest.raises(InvalidItem, match=r"not sqlalchemy.AsyncSession; .* or session\.run_sync"):
        asyncio.run(_emit_under_an_async_session(postgres_url, plainly=True))


def test_rows_of_a_real_database_commit_with_the_change(
    postgres_url: str, database_boxes: Callable[[Engine], DatabaseBoxes]
) -> None:
    engine = create_engine(postgres_url)
    Base.metadata.create_all(engine)
    ShopBase.metadata.create_all(engine)
    boxes = database_boxes(engine)
    with Session(engine) as session:
        session.add_all(Order(total=total) for total in range(3))
        session.flush()
        assert boxes.emitted(OrderOutboxItem) == [], "seen from outside of the transaction"
        session.commit()
    assert [json.loads(item.payload)["total"] for item in boxes.emitted(OrderOutboxItem)] == [0, 1, 2]
    engine.dispose()


def test_emit_writes_where_a_session_that_reads_from_a_replica_writes(
    sqlite: Engine, postgres: Engine, database_boxes: Callable[..., DatabaseBoxes]
) -> None:
    for engine in (postgres, sqlite):
        Base.metadata.create_all(engine)
    with RoutingSession(postgres, sqlite) as session:
        boxes = database_boxes(session)
        session.add(Order(total=12))
        session.flush()
        emit(session, session.scalars(update(Order).values(total=13).returning(Order)).all())
        assert [item.event_name for item in boxes.emitted(OrderOutboxItem)] == ["order_created", "order_updated"]


def test_what_cannot_be_emitted_for_is_said(session: Session) -> None:
    with pytest.raises(InvalidItem, match=r"on=\['upsert'\] is not understood; expected insert, update, delete"):
        emits(OrderOutboxItem, payload=str, on=["upsert"])
    with pytest.raises(InvalidItem, match="pass the class itself: OrderOutboxItem"):
        emits(OrderOutboxItem(), payload=str)  # type: ignore[arg-type]
    with pytest.raises(
        InvalidItem, match="emits: a mapped class, or a mixin of such classes, is needed, not <function"
    ):
        emits(OrderOutboxItem, payload=str)(as_json)  # type: ignore[type-var]
    with pytest.raises(InvalidItem, match="Line has no @emits"):
        emit(session, [Line()])
    with pytest.raises(InvalidItem, match="expected several objects, or one in a list; got an object of Order"):
        emit(session, Order())  # type: ignore[arg-type]
    with pytest.raises(InvalidItem, match="action='updated' is not understood; expected insert, update, delete"):
        emit(session, [Order()], action="updated")


async def later(_order: Order) -> str:
    return ""


def one_by_one(_order: Order) -> Iterator[str]:
    yield ""


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (later, "is async def, and a flush could not run it; write a plain def"),
        (functools.partial(later), "is async def"),
        (one_by_one, "is a generator"),
        (True, "expected a function that takes the object, got True"),
        ({"tenant": "a"}, "got {'tenant': 'a'}"),
    ],
)
@pytest.mark.parametrize("name", ["when", "payload", "options", "event_name", "event_key"])
def test_what_a_flush_could_not_call_is_refused_at_once(name: str, given: Any, reason: str) -> None:
    arguments = {"payload": str, name: given}
    with pytest.raises(InvalidItem, match=f"emits: {name}.*{re.escape(reason)}"):
        emits(OrderOutboxItem, **arguments)


def attributes(**arguments: Any) -> dict[str, Any] | None:
    """Of the item for one inserted order."""
    given = asked(**{"on": "insert", "when": None, "event_name": None, "event_key": "id", "options": None, **arguments})
    emission = MapperEmission(model=OrderOutboxItem, boxes=default.current, **given)
    return emission.attributes(Order(id=7), Change(action="insert", before={}))


def put_off(order: Order) -> object:
    return later(order)


def test_a_condition_that_returns_a_coroutine_is_no_consent() -> None:
    with pytest.raises(InvalidItem, match="when returned coroutine, and nobody awaits it; write a plain def"):
        attributes(payload=str, when=put_off)
    assert attributes(payload=str, when=lambda _: 0) is None


def test_a_second_argument_with_a_value_of_its_own_keeps_it() -> None:
    def told(payload: Any) -> Any:
        found = attributes(payload=payload)
        return found and found["payload"]

    assert told(lambda order, version=2: f"{order.id} {version}") == "7 2"
    assert told(lambda order, change: f"{order.id} {change.action}") == "7 insert"
    assert told(lambda order, change=None: f"{order.id} {change.action}") == "7 insert"
    assert told(lambda *both: f"{both[0].id} {both[1].action}") == "7 insert"


def test_what_an_application_does_to_the_info_of_its_sessions_costs_no_event(
    session: Session, boxes: MemoryBoxes, sqlite: Engine
) -> None:
    session.add(Order(total=1, lines=[Line()]))
    session.commit()
    with Session(sqlite, info=session.info) as other:
        other.add(Order(total=2))
        other.commit()
    session.info.clear()
    session.add(Line(order_id=1))  # emits nothing
    session.flush()
    session.rollback()
    session.add(Order(total=3))
    session.commit()
    assert [json.loads(item.payload)["total"] for item in boxes.emitted(OrderOutboxItem)] == [1, 2, 3]


def test_a_payload_that_raises_undoes_the_change(session: Session, boxes: MemoryBoxes) -> None:
    session.add(Order(total=12, customer=""))
    with pytest.raises(ValueError, match="no customer"):
        session.commit()
    session.rollback()
    assert boxes.emitted(OrderOutboxItem) == []
    assert session.query(Order).count() == 0
