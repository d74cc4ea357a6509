"""Whatever an application writes into an item arrives at the transport as it was; what cannot, is refused when it is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from boxengine.domain.item import Item, Status
from boxengine.errors import InvalidItem
from tests.eventually import eventually
from tests.integration.engine.receivers import BatchReceiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.watcher import Watcher

SLOW_SERVERS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=30)
EXACT = 2**53
"""Beyond it jsonb and Python write one number in two ways."""
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-EXACT, EXACT) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OPTIONS = st.none() | st.dictionaries(TEXT, JSON, max_size=4).map(
    lambda options: {**options, "headers": {}} if "headers" in options else options
)
ITEMS = st.fixed_dictionaries(
    {"event_key": TEXT.filter(len), "payload": st.binary(max_size=300), "options": OPTIONS},
    optional={"event_name": TEXT},
)
HOSTILE = [
    "'; DROP TABLE order_outbox_items; --",
    '"',
    "%s %(a)s %%",
    ":id",
    "\\",
    "`",
    "${DATABASE_URL}",
    "\u202e",
    "💥",
    "\r\n",
]


@pytest.fixture(params=["postgres_url", "mysql_url"])
def rig(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Iterator[Rig]:
    url = request.getfixturevalue(request.param)
    box = {"partition_strategy": "hash", "max_retries": 0}
    with Rig(tmp_path, database=url, redis=redis_url, box=box) as rig:
        rig.create_tables()
        yield rig


@pytest.fixture
def receiver(rig: Rig) -> BatchReceiver:
    receiver = BatchReceiver()
    rig.carry(receiver)
    return receiver


@pytest.fixture
def watcher(rig: Rig, receiver: BatchReceiver) -> Iterator[Watcher]:
    """Of a worker that runs all the while."""
    with rig.worker() as watcher:
        yield watcher


def put(rig: Rig, items: list[Any]) -> list[int]:
    with rig.engine.begin() as connection:
        return rig.boxes.create_outbox_batch(connection, BOX, items)


@settings(max_examples=50, deadline=None, suppress_health_check=SLOW_SERVERS)
@given(items=st.lists(ITEMS, min_size=1, max_size=5))
@example(
    items=[
        {"event_key": text, "payload": text.encode(), "options": {text: text}, "event_name": text} for text in HOSTILE
    ]
)
@example(items=[{"event_key": 1, "payload": bytes(range(256)) * 4, "options": {"headers": {"é": "\x01", "": "x"}}}])
@example(
    items=[{"event_key": "k", "payload": b"\x00" * 3_000_000, "options": {"deep": [[[[[[{"a": "x" * 100_000}]]]]]]}}]
)
def test_bytes_and_options_arrive_as_they_were_written(
    rig: Rig, receiver: BatchReceiver, watcher: Watcher, items: list[dict[str, Any]]
) -> None:
    written = dict(zip(put(rig, items), items, strict=True))
    eventually(lambda: len(arrived(receiver, written)) == len(items))
    found = arrived(receiver, written)
    for item_id, item in found.items():
        wanted = written[item_id]
        assert bytes(item.payload) == wanted["payload"]
        assert item.options == (wanted["options"] or {})
        assert item.event_key == str(wanted["event_key"])
        assert item.event_name == wanted.get("event_name")
        assert item.headers.items() >= (wanted["options"] or {}).get("headers", {}).items()
    assert watcher.failures == []
    assert watcher.outages == []


def arrived(receiver: BatchReceiver, written: dict[int, Any]) -> dict[int, Item]:
    return {item.id: item for item in list(receiver.items) if item.id in written}


@pytest.mark.parametrize(
    "attributes",
    [
        {"event_key": 1, "payload": "\ud800"},
        {"event_key": "\ud800", "payload": b""},
        {"event_key": 1, "payload": 5},
        {"event_key": 1, "payload": b"", "options": [1]},
        {"event_key": 1, "payload": b"", "options": {"headers": ["x"]}},
        {"event_key": 1, "payload": b"", "bucket": 4},
        {"event_key": 1, "payload": b"", "colour": "red"},
    ],
)
def test_what_could_not_arrive_is_refused_when_it_is_written(rig: Rig, attributes: dict[str, Any]) -> None:
    with pytest.raises(InvalidItem):
        put(rig, [{"event_key": 2, "payload": b"good"}, attributes])
    assert rig.rows() == {}


def test_an_event_key_of_many_thousand_digits_finds_its_bucket_before_the_database_refuses_it(rig: Rig) -> None:
    box = rig.box()
    assert 0 <= box.partition_strategy("9" * 100_000, 16) < 16


@pytest.mark.parametrize(
    "options", ["null", "[]", "[1]", '"text"', "5", '{"headers": [1]}', '{"headers": "x"}', '{"key": null}']
)
def test_odd_options_of_another_writer_fail_at_most_their_own_item(
    rig: Rig, receiver: BatchReceiver, options: str
) -> None:
    receiver.answer = lambda item: item.headers and None
    odd = rig.insert(options=options, payload=b"odd", event_key="odd")
    (good,) = rig.create("good", bucket=0)
    with rig.worker() as watcher:
        watcher.wait_for_settled(2)
    statuses = {row.id: row.status for row in rig.ask("SELECT id, status FROM order_outbox_items")}
    assert statuses[good] == Status.DELIVERED
    assert statuses[odd] in (Status.DELIVERED, Status.FAILED)
    assert watcher.outages == []


def test_an_error_with_any_text_is_written_down(rig: Rig) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    texts: list[BaseException] = [ValueError("\x00\ud800\U0010ffff"), ValueError("x" * 200_000), Mute()]

    class Failing:
        def __call__(self, item: Item, _payload: Any) -> None:
            raise texts[int(item.event_key)]

    rig.carry(Failing())
    rig.create(0, 1, 2)
    with rig.worker() as watcher:
        watcher.wait_for_settled(3)
    assert rig.statuses() == [Status.FAILED] * 3
    logs = [row.error_log for row in rig.rows().values()]
    assert "ValueError" in logs[0]
    assert len(logs[1]) < 20_000
    assert "says nothing: RuntimeError" in logs[2]
    assert watcher.outages == []
