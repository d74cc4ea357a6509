"""Messages that cannot be stored: put away with their reason, while all others are stored in their order."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from sqlalchemy import text

from boxengine.domain.item import Status
from tests.integration.kafka.conftest import MakeInbox
from tests.integration.kafka.inbox import (
    DEAD,
    Inbox,
    Watcher,
    assert_each_once_in_order,
    numbered,
    produce,
    set_topic,
    until,
)
from tests.unit.transports.kafka_reader import headers_of, read_all

POISON: list[dict[str, Any]] = [
    {"key": b"\xff\xfe", "value": "the key is not UTF-8"},
    {"key": "key-1", "value": "a header is not UTF-8", "headers": {"x": b"\xff"}},
    {"key": "key-2", "value": "x" * 20_000},
    {"key": "k" * 300, "value": "the key is too long for its column"},
    {"key": "key-3", "value": "a header has a NUL", "headers": {"x": b"a\x00b"}},
    {"key": "key-4", "value": "forbidden"},
]
REASONS = [
    "the key is not UTF-8",
    "header 'x' is not UTF-8",
    "over the limit of 10000",
    "event_key has 300 characters; its column takes 255 at most",
    "a text with NUL",
    "no_forbidden",
]


def poisoned(inbox: Inbox) -> None:
    """300 good messages with the poison spread among them, and a constraint that one of it offends."""
    with inbox.engine.begin() as connection:
        rule = f"ALTER TABLE {inbox.box.table} ADD CONSTRAINT no_forbidden CHECK (payload <> 'forbidden')"
        connection.execute(text(rule))
    good = numbered(300)
    mixed: list[dict[str, Any]] = []
    for position, message in enumerate(good):
        mixed.append(message)
        if position % 50 == 25:
            mixed.append(POISON[position // 50])
    produce(inbox.bootstrap, inbox.topic, mixed)


def good(inbox: Inbox) -> list[Any]:
    return [row for row in inbox.rows() if row.status == Status.PENDING]


def test_poison_goes_to_the_dead_letter_box_with_its_reason_and_the_rest_is_stored_in_order(
    make_inbox: MakeInbox,
) -> None:
    inbox = make_inbox(dead_letter={"box": DEAD}, max_payload_bytes=10_000)
    poisoned(inbox)
    with inbox.consuming():
        until(lambda: inbox.count() == 300)
        until(lambda: inbox.committed() == 306)
    assert_each_once_in_order(good(inbox), 300)
    dead = inbox.rows(inbox.boxes.box(DEAD))
    headers = {bytes(row.payload): row.options["headers"] for row in dead}
    for message, reason in zip(POISON, REASONS, strict=True):
        told = headers[message["value"].encode()]
        assert reason in told["Dead-Letter-Reason"]
        assert told["Dead-Letter-Topic"] == inbox.topic
    assert len(dead) == len(POISON)


def test_poison_goes_to_the_dead_letter_topic_as_it_came(make_inbox: MakeInbox) -> None:
    inbox = make_inbox(dead_letter={"topic": f"dead-{id(make_inbox)}"}, max_payload_bytes=10_000)
    poisoned(inbox)
    with inbox.consuming():
        until(lambda: inbox.committed() == 306)
    assert_each_once_in_order(good(inbox), 300)
    dead = {message.value().decode(): message for message in read_all(inbox.bootstrap, f"dead-{id(make_inbox)}")}
    assert dead.keys() == {message["value"] for message in POISON}
    assert dead[POISON[0]["value"]].key() == b"\xff\xfe"
    assert "max_payload_bytes" in headers_of(dead[POISON[2]["value"]])["Dead-Letter-Reason"]


@pytest.fixture
def refusing_everything(make_inbox: MakeInbox) -> Inbox:
    """A table that refuses some messages in whatever form."""
    inbox = make_inbox()
    with inbox.engine.begin() as connection:
        rule = f"ALTER TABLE {inbox.box.table} ADD CONSTRAINT no_forbidden CHECK (payload <> 'forbidden')"
        connection.execute(text(rule))
    return inbox


def test_without_a_dead_letter_poison_becomes_failed_rows_of_the_box(make_inbox: MakeInbox) -> None:
    inbox = make_inbox(max_payload_bytes=10_000)
    produce(inbox.bootstrap, inbox.topic, [*POISON[:5], *numbered(20)])
    with inbox.consuming():
        until(lambda: inbox.count() == 25)
    failed = [row for row in inbox.rows() if row.status == Status.FAILED]
    assert_each_once_in_order(good(inbox), 20)
    assert {bytes(row.payload).decode() for row in failed} == {message["value"] for message in POISON[:5]}
    logs = {bytes(row.payload).decode(): row.error_log for row in failed}
    for message, reason in zip(POISON[:5], REASONS[:5], strict=True):
        assert reason in logs[message["value"]]


def test_what_can_be_put_nowhere_stops_its_partition_and_no_other(refusing_everything: Inbox) -> None:
    inbox, watcher = refusing_everything, Watcher()
    before = [{**message, "partition": 1} for message in numbered(10)]
    stuck = [
        {"key": "key-4", "value": "forbidden", "partition": 1},
        {"key": "key-4", "value": '{"n": -1}', "partition": 1},
    ]
    after = [{**message, "partition": 2} for message in numbered(100, start=10)]
    produce(inbox.bootstrap, inbox.topic, [*before, *stuck])
    with inbox.consuming(watcher):
        watcher.wait_for_outage()
        produce(inbox.bootstrap, inbox.topic, after)
        until(lambda: inbox.count() == 110)
        until(lambda: inbox.committed() == 110)
    assert_each_once_in_order(inbox.rows(), 110)
    ((what, reason),) = watcher.outages
    assert what == f"consuming {inbox.topic}[1] for order_inbox_item"
    assert "stopped at offset 10" in reason
    assert "no_forbidden" in reason
    # Mended and started again, it goes on where it stopped.
    with inbox.engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {inbox.box.table} DROP CONSTRAINT no_forbidden"))
    with inbox.consuming():
        until(lambda: inbox.committed() == 112)
    assert inbox.count() == 112


def test_a_failed_row_that_was_delivered_by_hand_stays_delivered_when_its_message_comes_again(
    make_inbox: MakeInbox, tmp_path: Path
) -> None:
    inbox = make_inbox(max_payload_bytes=10_000)
    produce(
        inbox.bootstrap,
        inbox.topic,
        [POISON[1], POISON[1] | {"headers": {"x": b"\xff", "Idempotency-Key": b"one"}}] * 1,
    )
    with inbox.consuming():
        until(lambda: inbox.count() == 2)
    with inbox.engine.begin() as connection:
        connection.execute(text(f"UPDATE {inbox.box.table} SET status = 2, errors_count = 0"))
    again = POISON[1] | {"headers": {"x": b"\xff", "Idempotency-Key": b"one"}}
    produce(inbox.bootstrap, inbox.topic, [again, {"key": "last", "value": "last"}])
    with inbox.consuming():
        until(lambda: inbox.committed() == 4)
    assert [row.status for row in inbox.rows()] == [Status.DELIVERED, Status.DELIVERED, Status.PENDING]


def test_a_dead_letter_topic_that_refuses_a_message_holds_up_that_partition_alone_and_nothing_is_buried_twice(
    make_inbox: MakeInbox,
) -> None:
    graves = f"graves-{id(make_inbox)}"
    inbox, watcher = make_inbox(dead_letter={"topic": graves}, max_payload_bytes=100), Watcher()
    admin = AdminClient({"bootstrap.servers": inbox.bootstrap})
    limit = {"max.message.bytes": "3000"}
    admin.create_topics([NewTopic(graves, num_partitions=1, replication_factor=1, config=limit)])[graves].result(30)
    big = b"b" + Random(1).randbytes(9_000)  # which does not shrink
    poison = [{"key": "a", "value": value, "partition": 1} for value in (b"s" * 200, big, b"t" * 200)]
    produce(inbox.bootstrap, inbox.topic, [*poison, *({**each, "partition": 2} for each in numbered(50))])
    with inbox.consuming(watcher):
        watcher.wait_for_outage()
        produce(inbox.bootstrap, inbox.topic, [{**each, "partition": 2} for each in numbered(50, start=50)])
        until(lambda: inbox.count() == 100, within=20, said=inbox.count)
        ((what, reason),) = watcher.outages
        assert what == f"consuming {inbox.topic}[1] for order_inbox_item"
        assert "waits at offset 1, which cannot be stored: value of 9001 bytes" in reason
        assert f"the dead-letter topic {graves} does not take it: kafka: message too large" in reason
        set_topic(inbox.bootstrap, graves, max_message_bytes="20000")
        until(lambda: inbox.committed() == 103, within=20, said=inbox.committed)
    assert_each_once_in_order(inbox.rows(), 100)
    assert [message.value()[:1] for message in read_all(inbox.bootstrap, graves)] == [b"s", b"b", b"t"]
