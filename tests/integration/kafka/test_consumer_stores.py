"""Messages become rows: all of them, each once, each key in order."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from boxengine.domain.message import LONGEST_NAME
from tests.integration.kafka.conftest import MakeInbox
from tests.integration.kafka.inbox import (
    Inbox,
    Watcher,
    assert_each_once_in_order,
    by_key,
    numbered,
    numbers,
    produce,
    until,
)

COUNT = 5000


def test_five_thousand_messages_are_stored_once_each_key_in_its_order_and_bucket(make_inbox: MakeInbox) -> None:
    inbox = make_inbox(concurrency=2)
    produce(inbox.bootstrap, inbox.topic, numbered(COUNT))
    with inbox.consuming():
        until(lambda: inbox.count() >= COUNT, said=inbox.count)
    rows = inbox.rows()
    assert_each_once_in_order(rows, COUNT)
    assert len(by_key(rows)) == 50
    for row in rows:
        assert row.bucket == inbox.box.partition_strategy(row.event_key, inbox.box.bucket_size)
    assert inbox.committed() == COUNT


def test_a_row_says_where_its_message_came_from_and_keeps_its_headers(make_inbox: MakeInbox) -> None:
    inbox = make_inbox()
    known, trace = str(uuid4()), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers: list[Any] = [("Idempotency-Key", known.upper().encode()), ("Event-Name", b"order_created")]
    produce(
        inbox.bootstrap,
        inbox.topic,
        [{"key": "7", "value": b"\x00\xff", "headers": [*headers, ("traceparent", trace)]}],
    )
    with inbox.consuming():
        until(lambda: inbox.count() == 1)
    (row,) = inbox.rows()
    assert (row.event_key, row.event_name, bytes(row.payload)) == ("7", "order_created", b"\x00\xff")
    assert (row.uuid, row.dedup_key) == (UUID(known), known)
    assert row.options["headers"] == {
        "Idempotency-Key": known.upper(),
        "Event-Name": "order_created",
        "traceparent": trace,
    }
    place = row.options["kafka"]
    assert (place["topic"], place["offset"]) == (inbox.topic, 0)
    assert place["timestamp"].endswith("Z")


def test_a_message_sent_again_is_stored_once_whatever_it_is_known_by(make_inbox: MakeInbox) -> None:
    inbox = make_inbox(batch_size=7)
    long_key = "k" * (LONGEST_NAME + 1)
    repeated = [str(uuid4()), "order-17/created", long_key]
    messages = [
        {"key": "1", "value": "x", "headers": {"Idempotency-Key": known.encode()}}
        for known in repeated
        for _ in range(10)
    ]
    cloud_event = {"ce_id": b"1", "ce_source": b"/orders", "ce_type": b"order_paid"}
    messages += [{"key": "1", "value": "x", "headers": cloud_event}] * 3
    envelope = '{"specversion":"1.0","id":"%d","source":"/orders","type":"order_paid","datacontenttype":"text/plain","data":"x"}'
    structured = {"content-type": b"application/cloudevents+json; charset=UTF-8"}
    messages += [{"key": "1", "value": envelope % number, "headers": structured} for number in (1, 2, 2)]
    messages += [{"key": "1", "value": "last"}]
    produce(inbox.bootstrap, inbox.topic, messages)
    with inbox.consuming():
        until(lambda: any(bytes(row.payload) == b"last" for row in inbox.rows()))
    rows = inbox.rows()
    assert [row.dedup_key for row in rows[:2]] == repeated[:2]
    assert len(rows[2].dedup_key) == LONGEST_NAME
    assert (rows[3].dedup_key, rows[3].event_name) == ("/orders#1", "order_paid")
    assert (rows[4].dedup_key, rows[4].event_name, bytes(rows[4].payload)) == ("/orders#2", "order_paid", b"x")
    assert rows[4].options["headers"]["ce_source"] == "/orders"
    assert rows[5].dedup_key.startswith(f"{inbox.topic}:")
    assert len(rows) == 6


def test_messages_without_key_or_value_are_items_of_their_partition(make_inbox: MakeInbox) -> None:
    inbox = make_inbox()
    produce(inbox.bootstrap, inbox.topic, [{"value": "no key", "partition": 2}, {"key": "gone", "partition": 2}])
    with inbox.consuming():
        until(lambda: inbox.count() == 2)
    first, second = inbox.rows()
    assert first.event_key == f"{inbox.topic}:2"
    assert (second.event_key, bytes(second.payload), second.options["kafka"]["tombstone"]) == ("gone", b"", True)


def test_a_group_that_begins_anew_stores_nothing_twice(make_inbox: MakeInbox) -> None:
    """As after a crash between the database's commit and the group's, for every batch there was."""
    first = make_inbox()
    produce(first.bootstrap, first.topic, numbered(500))
    with first.consuming():
        until(lambda: first.count() == 500)
    again = make_inbox(group=f"again-{first.topic}", batch_size=30)
    again.group = f"again-{first.topic}"
    with again.consuming():
        until(lambda: again.committed() == 500, said=again.committed)
    assert_each_once_in_order(again.rows(), 500)


@pytest.mark.parametrize(
    "config",
    [{}, {"partition.assignment.strategy": "range"}, {"group.protocol": "consumer"}],
    ids=["cooperative", "eager", "by the broker"],
)
def test_a_group_that_begins_at_the_end_misses_nothing_that_comes_after_its_beginning(
    make_inbox: MakeInbox, config: dict[str, Any]
) -> None:
    """Even if nothing has come from a partition before the consumer stopped."""
    inbox = make_inbox(config={"auto.offset.reset": "latest", **config})
    produce(inbox.bootstrap, inbox.topic, numbered(40))
    with inbox.consuming():
        until(lambda: inbox.committed() == 40, said=inbox.committed)
    produce(inbox.bootstrap, inbox.topic, numbered(40, start=40))
    with inbox.consuming():
        until(lambda: inbox.committed() == 80, said=inbox.committed)
    assert sorted(numbers(inbox.rows())) == list(range(40, 80))


def test_on_mysql_messages_are_stored_once_and_poison_is_put_away(
    tmp_path: Path, mysql_url: str, real_kafka: str, kafka_topic: str
) -> None:
    inbox = Inbox(tmp_path, database=mysql_url, bootstrap=real_kafka, topic=kafka_topic, source={"batch_size": 100})
    repeated = [
        message | {"headers": {"Idempotency-Key": f"{message['key']}/{n // 2}".encode()}}
        for n, message in enumerate(numbered(300, keys=1))
    ]
    produce(inbox.bootstrap, inbox.topic, [*repeated, {"key": "k" * 300, "value": "too long"}])
    watcher = Watcher()
    with inbox.consuming(watcher):
        until(lambda: inbox.committed() == 301 or bool(watcher.outages), within=15, said=inbox.committed)
    assert watcher.outages == []
    rows = inbox.rows()
    assert numbers([row for row in rows if row.status == 0]) == list(range(0, 300, 2))
    (failed,) = [row for row in rows if row.status == 1]
    assert "event_key has 300 characters; its column takes 255 at most" in failed.error_log


def test_two_processes_under_one_parent_share_the_partitions_and_stop_at_a_signal_to_all(make_inbox: MakeInbox) -> None:
    inbox = make_inbox(config={"group.instance.id": "shared"})
    command = [sys.executable, "-m", "boxengine", "--config", str(inbox.config), "consume", "--processes", "2"]
    with subprocess.Popen(command, process_group=0) as parent:
        try:
            # While a member joins, the broker takes no offsets: the messages stored by then would come again to the next owner.
            until(lambda: inbox.is_settled(members=2))
            produce(inbox.bootstrap, inbox.topic, numbered(1000))
            until(lambda: inbox.count() >= 1000, said=inbox.count)
        finally:
            os.killpg(parent.pid, signal.SIGINT)
    assert parent.returncode == 0
    assert inbox.committed() == 1000
    assert_each_once_in_order(inbox.rows(), 1000)
