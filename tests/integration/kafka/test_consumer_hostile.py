"""Records that no client library lets pass, and topics that are created anew: no good message is lost with them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from sqlalchemy import text

from boxengine.adapters.kafka.topic_reader import TopicReader
from boxengine.adapters.system import SystemClock
from boxengine.domain.item import Status
from tests.integration.kafka.conftest import MakeInbox
from tests.integration.kafka.inbox import DEAD, Inbox, numbered, numbers, produce, set_topic, until
from tests.servers.raw_kafka import RawRecord, write

MICROSECONDS = 1_700_000_000_000_000
"""Now, in the wrong unit: a date beyond the year 9999."""


def good(start: int, count: int) -> list[RawRecord]:
    return [RawRecord(b"key-%d" % (n % 7), json.dumps({"n": n}).encode()) for n in range(start, start + count)]


def hostile(inbox: Inbox) -> list[RawRecord]:
    """Writes 300 messages to one partition, two of them hostile, in one record batch; returns these two."""
    set_topic(inbox.bootstrap, inbox.topic, message_timestamp_after_max_ms=str(2**63 - 1))
    bad = [
        RawRecord(b"key-1", b"a timestamp in microseconds", timestamp=MICROSECONDS),
        RawRecord(b"key-2", b"a header name is no text", headers=((b"\xff\xfe", b"1"), (b"x", b"2"))),
    ]
    write(inbox.bootstrap, inbox.topic, 0, [*good(0, 100), bad[0], *good(100, 100), bad[1], *good(200, 98)])
    return bad


def test_of_a_batch_with_a_message_that_cannot_be_read_only_that_message_is_a_dead_letter(
    make_inbox: MakeInbox,
) -> None:
    inbox = make_inbox(dead_letter={"box": DEAD})
    bad = hostile(inbox)
    with inbox.consuming():
        until(lambda: inbox.committed() == 300, within=20, said=inbox.committed)
    assert numbers(inbox.rows()) == list(range(298))
    dead = {
        bytes(row.payload): row.options["headers"]["Dead-Letter-Reason"] for row in inbox.rows(inbox.boxes.box(DEAD))
    }
    assert dead.keys() == {each.value for each in bad}
    assert str(MICROSECONDS) in dead[b"a timestamp in microseconds"]
    assert "not be UTF-8" in dead[b"a header name is no text"]


def test_without_a_dead_letter_such_messages_become_failed_rows(make_inbox: MakeInbox) -> None:
    inbox = make_inbox()
    bad = hostile(inbox)
    with inbox.consuming():
        until(lambda: inbox.committed() == 300, within=20, said=inbox.committed)
    failed = [row for row in inbox.rows() if row.status == Status.FAILED]
    assert {bytes(row.payload) for row in failed} == {each.value for each in bad}


def test_an_audit_reads_a_topic_that_holds_such_messages(make_inbox: MakeInbox) -> None:
    inbox = make_inbox()
    hostile(inbox)
    reader = TopicReader(topics=[inbox.topic], bootstrap_servers=inbox.bootstrap, clock=SystemClock())
    try:
        assert reader.measure() == 300
        assert sum(map(len, reader.read())) == 300
        assert reader.losses().complete_from is None
    finally:
        reader.close()


# ── the same place, another message ──────────────────────────────────────────────────────────────────


def create_anew(inbox: Inbox) -> None:
    admin = AdminClient({"bootstrap.servers": inbox.bootstrap})
    admin.delete_topics([inbox.topic], operation_timeout=30)[inbox.topic].result(30)

    def created() -> bool:
        made = admin.create_topics([NewTopic(inbox.topic, num_partitions=4, replication_factor=1)])[inbox.topic]
        return made.exception(30) is None

    until(created, within=30)


def test_messages_of_a_topic_that_was_created_anew_are_new_though_their_offsets_are_not(make_inbox: MakeInbox) -> None:
    inbox = make_inbox()
    produce(inbox.bootstrap, inbox.topic, [{"partition": 0, **each} for each in numbered(50)])
    with inbox.consuming():
        until(lambda: inbox.committed() == 50, within=20)
    create_anew(inbox)
    produce(inbox.bootstrap, inbox.topic, [{"partition": 0, **each} for each in numbered(60, start=50)])
    with inbox.consuming():
        until(lambda: inbox.count() == 110, within=20, said=inbox.count)
    assert sorted(numbers(inbox.rows())) == list(range(110))


def told(record: logging.LogRecord) -> str:
    """What it says, without the topic's name."""
    return re.sub(r"topic \S+ was", "topic was", record.getMessage())


def on_first_partition(count: int, *, start: int = 0) -> list[dict[str, Any]]:
    return [{"partition": 0, **each} for each in numbered(count, start=start)]


def test_a_consumer_that_runs_on_reads_a_topic_that_was_created_anew_from_its_beginning(
    make_inbox: MakeInbox, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = make_inbox()
    produce(inbox.bootstrap, inbox.topic, on_first_partition(50))
    with inbox.consuming():
        until(lambda: inbox.committed() == 50, within=20)
        create_anew(inbox)
        produce(inbox.bootstrap, inbox.topic, on_first_partition(80, start=50))
        until(lambda: inbox.count() == 130, within=30, said=inbox.count)
        until(lambda: inbox.committed() == 80, within=20, said=inbox.committed)
    assert sorted(numbers(inbox.rows())) == list(range(130))
    # librdkafka itself may have noticed; then it is the offsets' going back that is told.
    assert any("topic was deleted and created again" in told(each) for each in caplog.records)


def test_offsets_that_were_committed_for_a_topic_that_is_gone_count_for_nothing_after_a_restart(
    make_inbox: MakeInbox, caplog: pytest.LogCaptureFixture
) -> None:
    """As a consumer leaves them that stops before it has noticed."""
    inbox = make_inbox()
    produce(inbox.bootstrap, inbox.topic, on_first_partition(50))
    with inbox.consuming():
        until(lambda: inbox.committed() == 50, within=20)
    (left,) = committed_of(inbox)
    create_anew(inbox)
    produce(inbox.bootstrap, inbox.topic, on_first_partition(80, start=50))
    commit(inbox, left)
    with inbox.consuming():
        until(lambda: inbox.count() == 130, within=30, said=inbox.count)
        until(lambda: inbox.committed() == 80, within=20, said=inbox.committed)
    assert sorted(numbers(inbox.rows())) == list(range(130))
    assert sum("was deleted and created again (its id was" in each.getMessage() for each in caplog.records) == 1


def test_offsets_of_another_cluster_or_of_somebody_elses_tools_are_gone_on_from(make_inbox: MakeInbox) -> None:
    inbox = make_inbox()
    produce(inbox.bootstrap, inbox.topic, on_first_partition(50))
    for number, metadata in enumerate(("topic-id=another cluster=another", "")):
        commit(inbox, TopicPartition(inbox.topic, 0, 40 + number * 5, metadata))
        with inbox.consuming():
            until(lambda: inbox.committed() == 50, within=20, said=inbox.committed)
    assert sorted(numbers(inbox.rows())) == list(range(40, 50))


def group_member(inbox: Inbox) -> Consumer:
    return Consumer({"bootstrap.servers": inbox.bootstrap, "group.id": inbox.group, "enable.auto.commit": False})


def committed_of(inbox: Inbox) -> list[TopicPartition]:
    with closing(group_member(inbox)) as consumer:
        return consumer.committed([TopicPartition(inbox.topic, 0)], timeout=20)


def commit(inbox: Inbox, offset: TopicPartition) -> None:
    with closing(group_member(inbox)) as consumer:
        (answer,) = consumer.commit(offsets=[offset], asynchronous=False)
        assert answer.error is None


# ── an upgrade ───────────────────────────────────────────────────────────────────────────────────────


def stored_by_an_older_version(inbox: Inbox) -> None:
    with inbox.engine.begin() as connection:
        old = "split_part(dedup_key, '@', 1)"
        connection.execute(text(f"UPDATE {inbox.box.table} SET dedup_key = {old}, uuid = gen_random_uuid()"))


def test_messages_that_an_older_version_stored_under_their_place_are_known_after_the_upgrade(
    make_inbox: MakeInbox,
) -> None:
    inbox = make_inbox()
    produce(inbox.bootstrap, inbox.topic, numbered(100))
    with inbox.consuming():
        until(lambda: inbox.count() == 100, within=20)
    stored_by_an_older_version(inbox)
    again = make_inbox(group=f"again-{inbox.topic}", batch_size=10)
    again.group = f"again-{inbox.topic}"
    produce(inbox.bootstrap, inbox.topic, numbered(20, start=100))
    with again.consuming():
        until(lambda: again.committed() == 120, within=20, said=again.committed)
    assert sorted(numbers(inbox.rows())) == list(range(120))


def test_a_row_of_an_older_version_hides_no_message_of_a_topic_that_was_created_anew(make_inbox: MakeInbox) -> None:
    inbox = make_inbox()
    stamp = int(datetime.now(UTC).timestamp() * 1000)
    write(inbox.bootstrap, inbox.topic, 0, [each._replace(timestamp=stamp) for each in good(0, 10)])
    with inbox.consuming():
        until(lambda: inbox.count() == 10, within=20)
    stored_by_an_older_version(inbox)
    create_anew(inbox)
    write(inbox.bootstrap, inbox.topic, 0, [each._replace(timestamp=stamp + 1) for each in good(10, 10)])
    with inbox.consuming():
        until(lambda: inbox.count() == 20, within=20, said=inbox.count)


# ── one key, two messages ────────────────────────────────────────────────────────────────────────────


def other_each_time(_model: Any, attributes: list[dict[str, Any]], call_next: Callable[[], Any]) -> Any:
    """A create middleware, such as one that encrypts."""
    for each in attributes:
        each["payload"] = uuid4().bytes
    return call_next()


def test_what_a_create_middleware_writes_is_compared_with_nothing(
    tmp_path: Path, postgres_url: str, real_kafka: str, kafka_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    stamp = {"middlewares": {"create_batch": [f"{__name__}.other_each_time"]}}
    inbox = Inbox(tmp_path, database=postgres_url, bootstrap=real_kafka, topic=kafka_topic, source={}, **stamp)
    known = (b"Idempotency-Key", b"one")
    write(inbox.bootstrap, inbox.topic, 0, [RawRecord(b"key", b"the same", headers=(known,))] * 2)
    with inbox.consuming():
        until(lambda: inbox.committed() == 2, within=20)
    assert inbox.count() == 1
    assert not any("Idempotency-Key" in each.getMessage() for each in caplog.records)


def test_a_repetition_that_cannot_be_stored_leaves_the_good_row_of_its_key_as_it_is(make_inbox: MakeInbox) -> None:
    inbox = make_inbox(batch_size=1)
    known = (b"Idempotency-Key", b"one")
    bad = RawRecord(b"key", b"again", headers=(known, (b"x", b"\xff")))
    write(
        inbox.bootstrap, inbox.topic, 0, [RawRecord(b"key", b"good", headers=(known,)), bad, RawRecord(None, b"last")]
    )
    with inbox.consuming():
        until(lambda: inbox.committed() == 3, within=20)
    assert [(bytes(row.payload), row.status) for row in inbox.rows()] == [
        (b"good", Status.PENDING),
        (b"last", Status.PENDING),
    ]
