"""What an item is called survives the way from an outbox through a real broker into an inbox."""

from __future__ import annotations

from typing import Any

import pytest

from boxengine.adapters.kafka.transport import KafkaTransport
from boxengine.domain.message import ReceivedMessage
from boxengine.errors import ConfigurationError, SchemaMismatch
from tests.integration.kafka.conftest import MakeInbox
from tests.integration.kafka.inbox import Inbox, produce, until
from tests.unit.transports.items import make_item
from tests.unit.transports.kafka_reader import read_all


def shout(message: ReceivedMessage) -> str | None:
    """A rule of the user's own."""
    return None if message.value is None else message.value.decode().upper()


async def later(message: ReceivedMessage) -> str:
    return message.topic


def send(inbox: Inbox, *items: Any) -> None:
    transport = KafkaTransport(topic=inbox.topic, bootstrap_servers=inbox.bootstrap)
    try:
        assert transport.call_batch(items) == [None] * len(items)
    finally:
        transport.close()


def test_outbox_to_kafka_to_inbox_keeps_event_name_key_and_uuid(make_inbox: MakeInbox) -> None:
    inbox = make_inbox()
    first, second = make_item(1, event_name="order_created"), make_item(2, event_name=None)
    send(inbox, first, second)
    with inbox.consuming():
        until(lambda: inbox.count() == 2, within=20)
    rows = {str(row.uuid): row for row in inbox.rows()}
    assert rows[first.uuid].event_name == "order_created"
    assert rows[first.uuid].event_key == first.event_key
    assert rows[second.uuid].event_name is None


def test_a_source_works_out_event_name_key_and_other_columns_from_the_message(make_inbox: MakeInbox) -> None:
    inbox = make_inbox(
        event_name="order_{headers.type}",
        event_key="{value.order.id}",
        attributes={"available_at": "{headers.from}"},
    )
    moment = "2026-01-31T12:00:00+00:00"
    good = {"key": "k", "value": '{"order": {"id": 7}}', "headers": {"Type": b"paid", "From": moment.encode()}}
    produce(inbox.bootstrap, inbox.topic, [good, {"key": "k", "value": "no json", "headers": {"Type": b"x"}}])
    with inbox.consuming():
        until(lambda: inbox.count() == 2, within=20)
    row, failed = inbox.rows()
    assert (row.event_name, row.event_key, row.status) == ("order_paid", "7", 0)
    assert row.bucket == inbox.box.partition_strategy("7", inbox.box.bucket_size)
    assert row.available_at.isoformat() == moment
    assert "no item can be built from it" in failed.error_log


def test_a_rule_may_be_a_callable_of_the_users_and_leaves_the_attribute_where_it_returns_nothing(
    make_inbox: MakeInbox,
) -> None:
    inbox = make_inbox(event_name=f"{__name__}.shout")
    produce(inbox.bootstrap, inbox.topic, [{"key": "1", "value": "a"}, {"key": "2", "headers": {"Event-Name": b"own"}}])
    with inbox.consuming():
        until(lambda: inbox.count() == 2, within=20)
    assert {row.event_key: row.event_name for row in inbox.rows()} == {"1": "A", "2": "own"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"event_name": "{nope}"}, "no message has 'nope'"),
        ({"event_key": "shop.nowhere"}, "shop"),
        ({"event_key": f"{__name__}.later"}, "would never run"),
        ({"attributes": {"dedup_key": "x"}}, "is the consumer's to set"),
    ],
)
def test_a_rule_that_cannot_work_is_a_problem_of_the_configuration(
    make_inbox: MakeInbox, source: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make_inbox(**source).worker()


def test_an_attribute_without_a_column_is_found_at_start(make_inbox: MakeInbox) -> None:
    with pytest.raises(
        SchemaMismatch, match="its source sets tenant, and table 'order_inbox_items' has no such column"
    ):
        make_inbox(attributes={"tenant": "x"}).worker()


# ── what an item says of its message ─────────────────────────────────────────────────────────────────


def test_partition_timestamp_and_headers_of_an_items_options_reach_kafka(make_inbox: MakeInbox) -> None:
    inbox = make_inbox()
    moments = [1_700_000_000_123, "2023-11-14T22:13:20.123Z"]
    items = [
        make_item(number, options={"partition": 3 - number, "timestamp": moment, "headers": {"a": None, "b": 1}})
        for number, moment in enumerate(moments, start=1)
    ]
    send(inbox, *items)
    found = {message.partition(): message for message in read_all(inbox.bootstrap, inbox.topic)}
    assert found.keys() == {1, 2}
    for message in found.values():
        assert message.timestamp()[1] == 1_700_000_000_123
        headers = dict(message.headers())
        assert headers["a"] is None
        assert headers["b"] == b"1"
