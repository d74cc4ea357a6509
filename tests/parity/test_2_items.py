"""Items: columns, statuses, bucket arithmetic, names, what is written about a failure, indexes."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.making import checks
from boxengine.adapters.sql.shape.tables import OPTIONAL
from boxengine.domain.item import Status
from boxengine.domain.outcome import Failure
from boxengine.errors import InvalidItem
from tests.integration.engine.receivers import Receiver
from tests.integration.engine.rig import Rig
from tests.parity.harness import RETRIES, MakeRig, Spy, servers_of

COLUMNS = {
    "id",
    "uuid",
    "event_name",
    "event_key",
    "bucket",
    "status",
    "options",
    "payload",
    "errors_count",
    "error_log",
    "processed_at",
    "created_at",
    "updated_at",
    "available_at",
    "dedup_key",
}


def test_columns(rig: Rig) -> None:
    table = rig.box().table
    columns = {column["name"]: column for column in sa.inspect(rig.engine).get_columns(table)}
    assert columns.keys() == COLUMNS
    optional = {name for name, column in columns.items() if column["nullable"]}
    assert optional == {"event_name", "options", "error_log", "processed_at", "available_at", "dedup_key"}
    (item_id,) = rig.create(7)
    row = rig.row(item_id)
    assert (row.status, row.errors_count, row.error_log, row.processed_at) == (0, 0, None, None)
    assert isinstance(row.created_at, datetime)
    assert len(str(row.uuid).replace("-", "")) == 32


@pytest.mark.parametrize(
    ("status", "number"),
    [(Status.PENDING, 0), (Status.FAILED, 1), (Status.DELIVERED, 2), (Status.DISCARDED, 3)],
)
def test_statuses(rig: Rig, status: Status, number: int) -> None:
    assert status == number
    receiver = Receiver()
    rig.carry(receiver)
    rig.insert(status=number)
    rig.create("sentinel")
    rig.deliver(2 if number == 0 else 1)
    assert len(receiver.ids) == (2 if number == 0 else 1)
    assert rig.statuses()[0] == (Status.DELIVERED if number == 0 else number)


@pytest.mark.parametrize(("key", "bucket"), [(42, 10), ("order-42", 10), ("none", 0), ("a1b2c3", 123 % 16)])
def test_number_strategy(make_rig: MakeRig, key: Any, bucket: int) -> None:
    rig = make_rig(bucket_size=16)
    (item_id,) = rig.create(key)
    assert rig.row(item_id).bucket == bucket


@pytest.mark.parametrize("key", [42, "order-42", "\N{SNOWMAN}"])
def test_hash_strategy(make_rig: MakeRig, key: Any) -> None:
    rig = make_rig(bucket_size=16, box={"partition_strategy": "hash"})
    (item_id,) = rig.create(key)
    assert rig.row(item_id).bucket == int(hashlib.sha1(str(key).encode()).hexdigest(), 16) % 16


def test_box_names(make_rig: MakeRig, spy: Spy) -> None:
    rig = make_rig(outbox_items={"combined/outbox_item": {}})
    box = rig.box("combined/outbox_item")
    assert (box.table, box.label) == ("combined_outbox_items", "combined-outbox_item")
    receiver = Receiver()
    rig.carry(receiver, box=box.name)
    rig.create(1, box=box.name)
    rig.deliver(1)
    assert receiver.items[0].headers["Outbox-Name"] == "combined/outbox_item"
    with servers_of(rig) as connected:
        connected.pauses.set(box, polling_enabled=True)
    assert spy.keys("*Api*") == {"Sbmt::Outbox::Api::OutboxClass:combined-outbox-item"}  # named as in its URLs


def test_error_log(make_rig: MakeRig) -> None:
    rig = make_rig(box=RETRIES)
    reasons = iter(["first", "second", "third"])

    def explode(_item: object, depth: int = 0) -> None:
        if depth == 20:
            raise ConnectionError(next(reasons))
        go_on(depth)

    def go_on(depth: int) -> None:  # two functions in turn: Python leaves out the repetitions of one
        explode(None, depth + 1)

    rig.carry(kafka=Receiver(explode))
    (item_id,) = rig.create(1)
    rig.deliver(3)
    first_line, *frames = rig.row(item_id).error_log.splitlines()
    moment, _, reason = first_line.partition(" ")
    assert abs(datetime.fromisoformat(moment) - rig.row(item_id).processed_at) < timedelta(minutes=5)
    assert reason == "kafka: ConnectionError: third"
    assert len(frames) == 30
    assert "raise ConnectionError(next(reasons))" in "".join(frames[-2:])
    assert "second" not in rig.row(item_id).error_log


@pytest.mark.parametrize(("answer", "reason"), [(False, "returned False"), (Failure("no money"), "no money")])
def test_error_log_of_a_transport_that_does_not_raise(rig: Rig, answer: object, reason: str) -> None:
    rig.carry(kafka=Receiver(lambda _item: answer))
    (item_id,) = rig.create(1)
    rig.deliver(1)
    assert rig.row(item_id).error_log.endswith(f"Z kafka: {reason}")


def test_indexes(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 1, "retry_strategies": ["exponential_backoff", "latest_available"]})
    indexes = {index["name"]: index for index in sa.inspect(rig.engine).get_indexes(rig.box().table)}
    partial = rig.engine.dialect.name == "postgresql"
    pending = indexes[f"ix_{rig.box().table}_{'pending' if partial else 'status'}"]
    assert pending["column_names"] == (["bucket", "id"] if partial else ["status", "bucket", "id"])
    assert indexes[f"ix_{rig.box().table}_key"]["column_names"] == ["event_key", "id"]
    assert indexes[f"ix_{rig.box().table}_delayed"]["column_names"] == ["available_at"]
    assert indexes[f"ux_{rig.box().table}_dedup"]["unique"]


def test_available_at(rig: Rig) -> None:
    receiver = Receiver()
    rig.carry(receiver)
    (later,) = rig.create(1, available_at=datetime.now(UTC) + timedelta(hours=1))
    (now,) = rig.create(1)
    rig.deliver(1)
    assert receiver.ids == [now]
    rig.execute("UPDATE order_outbox_items SET available_at = :now WHERE id = :later", now=rig.now(), later=later)
    rig.deliver(1)
    assert receiver.ids == [now, later]
    row = rig.row(later)
    assert row.processed_at >= row.available_at


def test_dedup_key(rig: Rig) -> None:
    rig.carry(Receiver())
    (first,) = rig.create(1, dedup_key="once")
    assert rig.create(2, dedup_key="once") == [first]
    assert len(set(rig.create(1, 1))) == 2  # of two rows without one neither is the other
    assert len(rig.rows()) == 3


@pytest.mark.parametrize("missing", ["event_name", "options", "error_log", "available_at", "dedup_key"])
def test_optional_column(make_rig: MakeRig, missing: str) -> None:
    rig = make_rig(box={**RETRIES, "max_retries": 1})
    rig.execute(f"ALTER TABLE order_outbox_items DROP COLUMN {missing}")
    receiver = Receiver(lambda item: Failure("no") if item.payload == b"bad" else None)
    rig.carry(receiver)
    (bad,) = rig.create(1, payload=b"bad")
    good = rig.create(2, 3, **({} if missing == "event_name" else {"event_name": "paid"}))
    rig.deliver(4)
    assert (rig.row(bad).status, rig.row(bad).errors_count) == (Status.FAILED, 2)
    assert [rig.row(each).status for each in good] == [Status.DELIVERED] * 2
    assert said_of(rig) == [f"table order_outbox_items has no column {missing}: {OPTIONAL[missing]}"]


@pytest.mark.parametrize("name", ["available_at", "dedup_key"])
def test_an_item_that_needs_a_missing_column_is_refused_with_the_command_that_adds_it(rig: Rig, name: str) -> None:
    rig.execute(f"ALTER TABLE order_outbox_items DROP COLUMN {name}")
    value: Any = {"available_at": datetime.now(UTC), "dedup_key": "once"}[name]
    for _time in ("as the first item of the process", "later"):
        with pytest.raises(
            InvalidItem, match=rf"{name}: table 'order_outbox_items' has no such column.*boxengine db upgrade"
        ):
            rig.create(1, **{name: value})
    assert rig.rows() == {}


def test_proto_payload(rig: Rig) -> None:
    payload = "payload" if rig.engine.dialect.name == "postgresql" else "payload proto_payload mediumblob NOT NULL"
    renamed = f"RENAME COLUMN {payload} TO proto_payload" if "mediumblob" not in payload else f"CHANGE {payload}"
    rig.execute(f"ALTER TABLE order_outbox_items {renamed}")
    receiver = Receiver()
    rig.carry(receiver)
    rig.create(1, payload=b"encoded")
    rig.deliver(1)
    assert receiver.payloads == [b"encoded"]
    assert said_of(rig) == []


def test_a_column_added_by_hand_serves_as_far_as_its_index_allows(rig: Rig) -> None:
    index = "DROP INDEX {}" if rig.engine.dialect.name == "postgresql" else "DROP INDEX {} ON order_outbox_items"
    for name in ("ix_order_outbox_items_delayed", "ux_order_outbox_items_dedup"):
        rig.execute(index.format(name))
    receiver = Receiver()
    rig.carry(receiver)
    (later,) = rig.create(1, available_at=datetime.now(UTC) + timedelta(seconds=1))
    (now,) = rig.create(2)
    with pytest.raises(InvalidItem, match="unknown attribute dedup_key"):
        rig.create(3, dedup_key="once")
    rig.deliver(2)
    assert receiver.ids == [now, later]
    without, late = said_of(rig)
    assert without == f"table order_outbox_items has no unique index over dedup_key: {OPTIONAL['dedup_key']}"
    assert "no index ix_order_outbox_items_delayed" in late
    rig.create_tables()
    assert said_of(rig) == []


def said_of(rig: Rig) -> list[str]:
    """What ``db check`` says of the box's table; none of it stops the box."""
    findings = checks.check(rig.engine, [rig.box()])
    assert {finding.severity for finding in findings} <= {"warning"}
    return [finding.message for finding in findings]
