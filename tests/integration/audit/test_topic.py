"""The audit of a topic on a real Kafka, compared with rows of a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from boxengine.adapters.kafka import topic_reader
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.domain.box import Retention, StrictOrder
from boxengine.domain.item import Status
from boxengine.engine.replaying import Replays
from boxengine.errors import BoxError, SourceUnavailable
from boxengine.ports import Copying, ItemFilter, Overtaking, Replay
from tests.conformance.sql_stores import postgresql
from tests.integration.audit.bench import Bench
from tests.integration.audit.topic_bench import TopicBench

MakeBench = Callable[..., TopicBench]


@pytest.fixture
def make_bench(postgres_url: str, real_kafka: str, kafka_topic: str, tmp_path: Path) -> Iterator[MakeBench]:
    with closing(postgresql(postgres_url)) as harness:

        def make(**policy: Any) -> TopicBench:
            return TopicBench(Bench(harness, **policy), bootstrap=real_kafka, topic=kafka_topic, folder=tmp_path)

        yield make


@pytest.fixture
def bench(make_bench: MakeBench) -> TopicBench:
    return make_bench()


def test_a_topic_that_holds_what_the_table_says_has_no_findings(bench: TopicBench) -> None:
    ids = [bench.bench.delivered(number % 3, ago=90 - number) for number in range(30)]
    bench.send(*(bench.message(row_id, partition=row_id % 3) for row_id in ids))
    bench.bench.pending("1")
    with bench.auditing() as audit:
        assert list(audit.findings()) == []
        assert (audit.summary.rows, audit.summary.messages, audit.summary.notes) == (31, 30, [])


def test_a_delivered_item_that_the_topic_does_not_have_is_missing(bench: TopicBench) -> None:
    there, gone = bench.bench.delivered(ago=9), bench.bench.delivered(ago=8)
    bench.bench.pending()
    bench.send(bench.message(there))
    assert bench.told() == [("missing", gone, "7")]


def test_items_of_events_that_go_elsewhere_are_not_missing(bench: TopicBench) -> None:
    bench.bench.delivered(event_name="order_created")
    paid = bench.bench.delivered(event_name="order_paid")
    assert bench.told(event_names=frozenset({"order_paid"})) == [("missing", paid, "7")]


def test_a_message_without_a_row_is_orphaned_unless_retention_may_have_deleted_the_row(make_bench: MakeBench) -> None:
    bench = make_bench(retention=Retention(delivered=timedelta(hours=1)))
    bench.send(bench.stray(1001, ago=3500), bench.stray(1002, ago=3700))
    assert bench.told() == [("orphaned", 1001, "7")]
    on_delivery = make_bench(retention=Retention(delivered=timedelta(0)))
    on_delivery.send(on_delivery.stray(1003, ago=1))
    assert on_delivery.told() == []


def test_a_row_with_the_id_of_a_message_and_another_uuid_is_not_its_row(bench: TopicBench) -> None:
    row = bench.bench.pending()
    bench.send(bench.stray(row))
    assert bench.told() == [("orphaned", row, "7")]


def test_a_row_that_came_after_the_rows_were_read_is_still_found(bench: TopicBench) -> None:
    """The worker goes on meanwhile: what it sends has a row, only a later one."""
    with bench.auditing() as audit:
        assert audit._topic is not None
        log: Any = audit._topic._log
        measure = log.measure

        def create_and_send() -> int:
            row_id = bench.bench.delivered()
            bench.send(bench.message(row_id))
            return int(measure())

        log.measure = create_and_send
        assert list(audit.findings()) == []
        assert audit.summary.messages == 1


def test_two_messages_of_one_item_are_a_duplicate(bench: TopicBench) -> None:
    twice, once = bench.bench.delivered(ago=9), bench.bench.delivered(ago=8)
    bench.send(*map(bench.message, (twice, once, twice)))
    (finding,) = bench.findings()
    assert (finding.kind, finding.item, finding.key) == ("duplicate", twice, "7")
    assert "2 messages carry its Idempotency-Key" in finding.detail
    assert f"the last at {bench.topic}, partition 0, offset 2" in finding.detail


def test_an_item_that_goes_to_two_topics_is_to_be_once_in_each(bench: TopicBench) -> None:
    once, twice = bench.bench.delivered(ago=9), bench.bench.delivered(ago=8)
    bench.send(*map(bench.message, (once, twice)))
    bench.add_topic()
    bench.send(*map(bench.message, (once, twice, twice)))
    (finding,) = bench.findings()
    assert (finding.kind, finding.item) == ("duplicate", twice)
    assert "3 messages in 2 topics carry its Idempotency-Key" in finding.detail


def test_an_item_that_comes_after_a_later_one_of_its_key_is_an_inversion(bench: TopicBench) -> None:
    first, second, other = bench.bench.delivered(), bench.bench.delivered(), bench.bench.delivered("8")
    bench.send(*map(bench.message, (second, first, other)))
    (finding,) = bench.findings()
    assert (finding.kind, finding.item, finding.key) == ("inversion", first, "7")
    assert f"offset 1, after item {second} of its key at offset 0" in finding.detail


def test_a_repetition_after_a_later_item_is_a_duplicate_and_no_inversion(bench: TopicBench) -> None:
    first, second = bench.bench.delivered(ago=9), bench.bench.delivered(ago=8)
    bench.send(*map(bench.message, (first, second, first, second)))
    assert bench.told() == [("duplicate", first, "7"), ("duplicate", second, "7")]


@pytest.mark.parametrize("how", [Copying(), Copying(same_identity=True), Overtaking(), Overtaking(same_identity=True)])
def test_what_a_replay_sent_is_no_fault_and_makes_good_what_was_missing(bench: TopicBench, how: Replay) -> None:
    there, gone, later = (bench.bench.delivered(ago=ago) for ago in (9, 8, 7))
    bench.send(*map(bench.message, (there, later)))
    assert bench.told() == [("missing", gone, "7")]
    Replays(SqlItems(bench.bench.store)).run(bench.bench.box, ItemFilter(ids=(there, gone)), how)
    for row in bench.bench.harness.rows(bench.bench.box):
        if row["status"] == Status.PENDING:
            bench.bench.harness.set_row(
                bench.bench.box, row["id"], status=Status.DELIVERED, processed_at=bench.bench.now
            )
            bench.send(bench.message(row["id"], **row["options"]["headers"]))
    assert bench.told() == []


def test_partitions_have_no_order_between_them(bench: TopicBench) -> None:
    first, second = bench.bench.delivered(), bench.bench.delivered()
    bench.send(bench.message(second, partition=0), bench.message(first, partition=1))
    assert bench.told() == []


def test_keys_that_share_the_key_of_their_messages_have_no_order_between_them(bench: TopicBench) -> None:
    first, second = bench.bench.delivered("7"), bench.bench.delivered("8")
    bench.send(bench.message(second, key="tenant"), bench.message(first, key="tenant"))
    assert bench.told() == []


def test_without_strict_order_an_item_that_failed_before_may_come_late(make_bench: MakeBench) -> None:
    for order, expected in ((StrictOrder.NONE, []), (StrictOrder.KEY, ["inversion"])):
        bench = make_bench(strict_order=order)
        # The table alone shows nothing: both were recorded in one batch.
        first = bench.bench.delivered(errors_count=1, ago=5)
        second = bench.bench.delivered(ago=5)
        bench.send(*map(bench.message, (second, first)))
        assert [kind for kind, _, _ in bench.told()] == expected


def test_the_messages_of_other_boxes_and_programs_in_the_same_topic_are_left_alone(bench: TopicBench) -> None:
    row = bench.bench.delivered()
    bench.send(
        bench.message(row),
        bench.message(row, Outbox_Name="another_box"),
        {"key": "7", "partition": 0, "value": b"not ours"},
        {"value": None, "partition": 0, "headers": {"Idempotency-Key": b"\xff", "Outbox-Name": b"\xfe"}},
    )
    with bench.auditing() as audit:
        assert list(audit.findings()) == []
        assert (audit.summary.messages, audit.summary.foreign) == (1, 3)


def test_ours_with_headers_that_make_no_sense_are_told_and_not_stumbled_over(bench: TopicBench) -> None:
    nonsense = {"Sequence-ID": "9" * 40, "Created-At": "yesterday", "Idempotency-Key": "\N{PILE OF POO}"}
    message = bench.stray(1)
    bench.send({**message, "headers": {**message["headers"], **nonsense}})
    assert bench.told() == [("orphaned", None, "7")]


def test_only_what_was_committed_counts_and_an_open_transaction_does_not_hang_it(bench: TopicBench) -> None:
    done, open_ = bench.bench.delivered(), bench.bench.delivered()
    with bench.producing(**{"transactional.id": bench.topic}) as producer:
        producer.init_transactions(30)
        for row, end in ((done, producer.abort_transaction), (done, producer.commit_transaction), (open_, None)):
            producer.begin_transaction()
            bench.hand_over(producer, [bench.message(row)])
            if end is not None:
                end(30)
        assert bench.told() == [("missing", open_, "7")]
        producer.abort_transaction(30)


def test_items_whose_messages_the_broker_may_have_deleted_are_not_missing_and_that_is_said(bench: TopicBench) -> None:
    old, kept = bench.bench.delivered(since=3600), bench.bench.delivered(since=3600)
    bench.send(*map(bench.message, (old, kept)))
    assert bench.told() == []
    bench.delete_before(1)
    young = bench.bench.delivered(since=-60)
    with bench.auditing() as audit:
        assert [(str(each.kind), each.item) for each in audit.findings()] == [("missing", young)]
        assert any("the broker has deleted old messages" in note for note in audit.summary.notes)


def test_of_a_compacted_topic_nothing_is_missing_and_that_is_said(bench: TopicBench) -> None:
    bench.make_compacted()
    bench.bench.delivered()
    with bench.auditing() as audit:
        assert list(audit.findings()) == []
        assert any("compacted" in note for note in audit.summary.notes)


def test_since_leaves_older_items_and_their_messages_alone(bench: TopicBench) -> None:
    old, young = bench.bench.delivered(since=3600), bench.bench.delivered(since=60)
    bench.send(bench.message(old), bench.message(old), bench.message(young))
    with bench.auditing(since=bench.bench.ago(100)) as audit:
        assert list(audit.findings()) == []
        assert audit.summary.messages == 1


def test_a_topic_that_is_not_there_is_an_error_that_names_it(bench: TopicBench) -> None:
    bench.topic = "no.such\N{SPACE}topic"
    with pytest.raises(BoxError, match=r"no\.such topic"):
        bench.told()


def test_a_broker_that_is_not_there_is_an_error(bench: TopicBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_reader, "ANSWER", 1.0)
    bench.bootstrap = "127.0.0.1:1"
    with pytest.raises(SourceUnavailable, match="kafka"):
        bench.told()
