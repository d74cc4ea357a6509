"""Items: columns, statuses, bucket arithmetic, names, what is written about a failure, indexes."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.domain.item import Status
from tests.integration.engine.receivers import Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.parity.harness import RETRIES, MakeRig

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


def test_box_names(make_rig: MakeRig) -> None:
    rig = make_rig(outbox_items={"combined/outbox_item": {}})
    box = rig.box("combined/outbox_item")
    assert (box.table, box.label) == ("combined_outbox_items", "combined-outbox_item")
    receiver = Receiver()
    rig.carry(receiver, box=box.name)
    rig.create(1, box=box.name)
    rig.deliver(1)
    assert receiver.items[0].headers["Outbox-Name"] == "combined/outbox_item"


def test_error_log(make_rig: MakeRig) -> None:
    rig = make_rig(box=RETRIES)
    reasons = iter(["first", "second", "third"])

    def explode(_item: object) -> None:
        raise ConnectionError(next(reasons))

    rig.carry(kafka=Receiver(explode))
    (item_id,) = rig.create(1)
    rig.deliver(3)
    first_line, *frames = rig.row(item_id).error_log.splitlines()
    assert first_line.endswith("Z kafka: ConnectionError: third")
    assert any("explode" in frame for frame in frames)
    assert len(frames) <= 30
    assert "second" not in rig.row(item_id).error_log


def test_indexes(rig: Rig) -> None:
    indexes = {index["name"]: index for index in sa.inspect(rig.engine).get_indexes(rig.box().table)}
    partial = rig.engine.dialect.name == "postgresql"
    pending = indexes[f"ix_{rig.box().table}_{'pending' if partial else 'status'}"]
    assert pending["column_names"] == (["bucket", "id"] if partial else ["status", "bucket", "id"])
    assert indexes[f"ix_{rig.box().table}_key"]["column_names"] == ["event_key", "id"]
    with rig.engine.begin() as connection:
        first = rig.boxes.create_outbox_item(connection, BOX, event_key=1, payload=b"", dedup_key="once")
        assert rig.boxes.create_outbox_item(connection, BOX, event_key=1, payload=b"", dedup_key="once") == first
