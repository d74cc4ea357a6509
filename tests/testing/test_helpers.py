"""Made items, readable differences, and the plugin as a project without boxengine's own conftest has it."""

from __future__ import annotations

import textwrap
from datetime import UTC, datetime
from unittest.mock import ANY
from uuid import UUID

import pytest

from boxengine.errors import InvalidItem
from boxengine.testing import Emitted, RecordingTransport, make_item

pytest_plugins = ["pytester"]


def test_a_made_item_has_what_a_transport_looks_at() -> None:
    item = make_item(payload={"total": 12}, event_key=42, event_name="order_placed", headers={"Tenant": "acme"})
    assert item.payload == b'{"total": 12}'
    assert (item.event_key, item.bucket, item.event_name) == ("42", 42 % 16, "order_placed")
    assert item.headers["Tenant"] == "acme"
    assert item.headers["Idempotency-Key"] == item.uuid
    assert item.created_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_made_item_takes_every_field_and_no_others() -> None:
    assert make_item(errors_count=3, id=9, box="combined/outbox_item").box_name == "combined/outbox_item"
    assert make_item(box="payment_inbox_item", box_type="inbox").box_type == "inbox"
    with pytest.raises(InvalidItem, match="unknown field color; known besides its arguments: bucket"):
        make_item(color="red")
    with pytest.raises(InvalidItem, match="not int"):
        make_item(payload=12)


def test_differences_name_the_item_and_the_key_within_the_payload() -> None:
    emitted = Emitted([make_item(payload={"order": {"total": 12, "vat": 2}}, event_name="order_placed")])
    assert emitted.differences([{"event_name": "order_paid", "payload": {"order": {"total": 10, "tip": 1}}}]) == [
        "item 0: event_name: expected 'order_paid', got 'order_placed'",
        "item 0: payload.order.total: expected 10, got 12",
        "item 0: payload.order.tip: missing, expected 1",
        "item 0: payload.order.vat: not expected, got 2",
    ]
    assert emitted.differences([]) == [
        (
            "item 0: not expected: <item 1 of outbox_item: event_name='order_placed', event_key='1', "
            'payload=\'{"order": {"total": 12, "vat": 2}}\'>'
        )
    ]
    assert Emitted([]).differences([{"event_key": 1}]) == ["item 0: missing: {'event_key': 1}"]
    assert emitted.differences([{"colour": 1}]) == [
        "item 0: colour: an item has no such attribute (a column of the model's own is only in its table)"
    ]


def test_keys_and_uuids_are_equal_to_what_was_given_and_to_any() -> None:
    emitted = Emitted([make_item(event_key=7, uuid=str(UUID(int=7)))])
    for key, uuid in ((7, UUID(int=7)), ("7", str(UUID(int=7))), (ANY, ANY)):
        assert emitted.differences([{"event_key": key, "uuid": uuid}]) == []
    assert emitted.differences([{"event_key": 8, "uuid": UUID(int=8)}]) == [
        "item 0: event_key: expected '8', got '7'",
        "item 0: uuid: expected '00000000-0000-0000-0000-000000000008', got '00000000-0000-0000-0000-000000000007'",
    ]


@pytest.mark.parametrize(("sent", "expected"), [(1, True), (True, 1), (0, False), (False, 0.0)])
def test_true_is_not_one_in_json(sent: object, expected: object) -> None:
    emitted = Emitted([make_item(payload={"paid": sent, "lines": [{"gift": sent}]})])
    assert emitted == [{"payload": {"paid": sent, "lines": [{"gift": sent}]}}]
    assert emitted == [{"payload": {"paid": ANY, "lines": [{"gift": ANY}]}}]
    assert emitted.differences([{"payload": {"paid": expected, "lines": [{"gift": sent}]}}]) == [
        f"item 0: payload.paid: expected {expected}, got {sent}"
    ]
    assert emitted != [{"payload": {"paid": sent, "lines": [{"gift": expected}]}}]


def test_a_recording_transport_raises_an_exception_and_a_class_of_one() -> None:
    transport = RecordingTransport(answers=[ConnectionError("down"), ConnectionError, False])
    item = make_item()
    for _ in range(2):
        with pytest.raises(ConnectionError):
            transport(item, item.payload)
    assert [transport(item, item.payload) for _ in range(2)] == [False, None]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An application's folder with a configuration and tests of its own."""
    monkeypatch.delenv("BOXENGINE_CONFIG", raising=False)
    pytester.makeini("[pytest]\npythonpath = .\nboxengine_config = config/outbox.yml\n")
    folder = pytester.mkdir("config")
    (folder / "outbox.yml").write_text("outbox_items: {order_outbox_item: {transports: {log: {}}}}\n")
    return pytester


def test_the_fixtures_need_nothing_but_the_package_and_a_configuration(project: pytest.Pytester) -> None:
    project.makepyfile(
        textwrap.dedent(
            """
            from boxengine import create_outbox_item

            def test_it(boxes):
                create_outbox_item(None, "order_outbox_item", event_key=1, payload=b"a bicycle")
                assert len(boxes.drain().delivered) == 1

            def test_each_test_starts_empty(boxes):
                assert boxes.emitted("order_outbox_item") == []

            def test_a_difference_is_readable(boxes):
                create_outbox_item(None, "order_outbox_item", event_key=1, payload='{"total": 12}')
                assert boxes.emitted("order_outbox_item") == [{"payload": {"total": 10}}]
            """
        )
    )
    result = project.runpytest("-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*item 0: payload.total: expected 10, got 12"])


def test_real_servers_are_one_line_away(project: pytest.Pytester) -> None:
    project.makepyfile(
        textwrap.dedent(
            """
            import redis
            from sqlalchemy import create_engine, text

            def test_it(boxengine_servers):
                engine = create_engine(boxengine_servers.database_url)
                with engine.begin() as connection:
                    connection.execute(text("CREATE TABLE mine (id int)"))
                engine.dispose()
                with redis.Redis.from_url(boxengine_servers.redis_url) as client:
                    client.set("mine", 1)

            def test_each_test_has_its_own(boxengine_servers):
                engine = create_engine(boxengine_servers.database_url)
                with engine.begin() as connection:
                    assert connection.scalar(text("SELECT to_regclass('mine')")) is None
                engine.dispose()
                with redis.Redis.from_url(boxengine_servers.redis_url) as client:
                    assert client.get("mine") is None
            """
        )
    )
    result = project.runpytest("-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=2)
