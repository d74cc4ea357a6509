"""What boxes refuse and give back, in memory as in a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import DeclarativeBase, Session

from boxengine import JobItem, OutboxItem
from boxengine.errors import InvalidItem, UnknownBox
from boxengine.testing import DatabaseBoxes, MemoryBoxes
from tests.testing.shop import OrderOutboxItem, PaymentInboxItem, ReportJob

IDENTITY = UUID("0f6b7b3e-3e63-4a51-8d11-0d4b7a1d8e55")


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue("sqlite" if request.param == "memory" else request.param)
    return found


@pytest.fixture
def tested(request: pytest.FixtureRequest, session: Session) -> MemoryBoxes | DatabaseBoxes:
    if request.node.callspec.params["engine"] == "memory":
        boxes: MemoryBoxes = request.getfixturevalue("boxes")
        return boxes
    make: Callable[..., DatabaseBoxes] = request.getfixturevalue("database_boxes")
    return make(session)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (IDENTITY, r"\['a'\] is of type UUID; give str\(value\)"),
        (datetime(2026, 1, 1, tzinfo=UTC), r"\['a'\] is of type datetime; give value\.isoformat\(\)"),
        ([Decimal("1.5")], r"\['a'\]\[0\] is of type Decimal; give str\(value\)"),
        ({1, 2}, r"\['a'\] is of type set; give sorted\(value\)"),
        ({(1, 2): 3}, r"a key of \['a'\] is of type tuple; keys are texts"),
    ],
    ids=["uuid", "datetime", "decimal", "set", "key"],
)
def test_options_that_are_no_json_are_refused(
    tested: MemoryBoxes | DatabaseBoxes, session: Session, value: Any, said: str
) -> None:
    message = f"^box order_outbox_item, item 0: options: expected what JSON can hold: {said}$"
    with pytest.raises(InvalidItem, match=message):
        tested.create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"", options={"a": value})


def test_options_come_back_as_json_and_are_not_the_callers_own(
    tested: MemoryBoxes | DatabaseBoxes, session: Session
) -> None:
    options: dict[Any, Any] = {"pair": (1, 2), 7: "seven", "list": [1]}
    tested.create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"", options=options)
    options["list"].append(2)
    (item,) = tested.emitted(OrderOutboxItem)
    assert item.options == {"pair": [1, 2], "7": "seven", "list": [1]}


def test_a_known_uuid_gives_the_first_item_of_an_inbox_back(
    tested: MemoryBoxes | DatabaseBoxes, session: Session
) -> None:
    first, second = (
        tested.create_inbox_item(session, PaymentInboxItem, event_key=number, payload=b"", uuid=IDENTITY)
        for number in range(2)
    )
    assert first == second
    again = tested.create_inbox_batch(
        session,
        PaymentInboxItem,
        [{"event_key": 8, "payload": b"", "uuid": IDENTITY}, {"event_key": 9, "payload": b"", "uuid": UUID(int=1)}],
    )
    assert again[0] == first
    assert [(item.event_key, item.uuid) for item in tested.emitted(PaymentInboxItem)] == [
        ("0", str(IDENTITY)),
        ("9", str(UUID(int=1))),
    ]


@pytest.mark.parametrize("key", [7, IDENTITY], ids=["number", "uuid"])
def test_a_dedup_key_may_be_a_number_or_a_uuid_and_is_the_same_as_its_text(
    tested: MemoryBoxes | DatabaseBoxes, session: Session, key: int | UUID
) -> None:
    first, repeated, again = [
        tested.create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"", dedup_key=each)
        for each in (key, key, str(key))
    ]
    assert first == repeated == again
    longer = tested.create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"", dedup_key=f"{key}-paid")
    assert longer != first


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "is empty: of all items with it only the first would be kept; leave it out, or pass None"),
        (("order", 7), "must be a text, a whole number or a UUID, not tuple"),
        (Decimal(7), "must be a text, a whole number or a UUID, not Decimal"),
    ],
    ids=["empty", "tuple", "decimal"],
)
def test_a_dedup_key_that_tells_no_items_apart_is_refused(
    tested: MemoryBoxes | DatabaseBoxes, session: Session, key: Any, said: str
) -> None:
    with pytest.raises(InvalidItem, match=f"^box order_outbox_item, item 0: dedup_key {said}$"):
        tested.create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"", dedup_key=key)
    assert tested.emitted(OrderOutboxItem) == []


@pytest.mark.parametrize(
    "batch", [{"event_key": 1, "payload": b""}, [b"{}"], None], ids=["a lone dict", "payloads", "nothing returned"]
)
def test_a_batch_that_is_no_list_of_dicts_is_refused(
    tested: MemoryBoxes | DatabaseBoxes, session: Session, batch: Any
) -> None:
    with pytest.raises(
        InvalidItem, match=r"^box order_outbox_item: expected a list of dicts, .*; got ('event_key'|b'{}'|None)$"
    ):
        tested.create_outbox_batch(session, OrderOutboxItem, batch)


def test_own_columns_that_are_no_dict_are_refused(tested: MemoryBoxes | DatabaseBoxes, session: Session) -> None:
    columns: Any = ["tenant"]
    with pytest.raises(InvalidItem, match=r"^box order_outbox_item: own_columns: expected a dict, got \['tenant'\]$"):
        tested.create_outbox_item(session, OrderOutboxItem, event_key=1, payload=b"", own_columns=columns)


def test_a_box_of_jobs_takes_no_items_and_a_box_of_items_no_jobs(
    tested: MemoryBoxes | DatabaseBoxes, session: Session
) -> None:
    jobs: Any = ReportJob
    with pytest.raises(UnknownBox, match=r"^box 'report_job' holds long jobs, not items: use create_job for it$"):
        tested.create_outbox_item(session, jobs, event_key=1, payload=b"")
    items: Any = OrderOutboxItem
    with pytest.raises(
        UnknownBox, match=r"^box 'order_outbox_item' holds items, not long jobs: use create_outbox_item "
    ):
        tested.create_job(session, items, task="export")


@pytest.mark.parametrize("model", ["order_outbox_itme", OutboxItem], ids=["misspelt", "the base class"])
def test_a_box_that_is_not_configured_is_named(
    tested: MemoryBoxes | DatabaseBoxes, session: Session, model: Any
) -> None:
    with pytest.raises(UnknownBox, match=r"^unknown box '(order_outbox_itme|outbox_item)'.*order_outbox_item"):
        tested.create_outbox_item(session, model, event_key=1, payload=b"")


def test_a_model_of_the_same_name_with_another_table_is_refused(
    tested: MemoryBoxes | DatabaseBoxes, session: Session
) -> None:
    class Elsewhere(DeclarativeBase): ...

    namesake = type("OrderOutboxItem", (OutboxItem, Elsewhere), {"__tablename__": "billing_outbox_items"})
    message = (
        r"^OrderOutboxItem of tests\.testing\.test_creating has the table billing_outbox_items, but box order_outbox_item, which "
        "its name stands for, has the table order_outbox_items: give the class another name, or __box_name__, and a box of its "
        "own$"
    )
    with pytest.raises(InvalidItem, match=message):
        tested.create_outbox_item(session, namesake, event_key=1, payload=b"")
    assert tested.emitted(OrderOutboxItem) == []


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)  # no jobs in memory
def test_a_model_of_long_jobs_with_another_table_is_refused_too(
    tested: MemoryBoxes | DatabaseBoxes, session: Session
) -> None:
    class Elsewhere(DeclarativeBase): ...

    namesake = type("ReportJob", (JobItem, Elsewhere), {"__tablename__": "billing_reports"})
    tested.create_job(session, ReportJob, task="export")
    with pytest.raises(
        InvalidItem, match=r"^ReportJob of .* has the table billing_reports, but box report_job, which "
    ):
        tested.create_job(session, namesake, task="export")
