"""Messages that the box refuses, and that are kept all the same: as its failed rows, or in the box for dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import NullPool, Row, create_engine, text

import boxengine
from boxengine.adapters.memory.source import MemorySource
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import schema
from boxengine.app.receiving import consuming
from boxengine.app.receiving.consuming import Consuming
from boxengine.domain.item import Status
from boxengine.domain.message import ReceivedMessage
from boxengine.engine.observation import NullObserver, NullTracer
from boxengine.errors import InvalidItem, SchemaMismatch

BOX, DEAD = "order_inbox_item", "dead_inbox_item"
BAD = b"bad, and longer than ten bytes"


class Guard:
    """A user's middleware that knows bad orders."""

    def __call__(
        self, _model: object, batch: Sequence[Mapping[str, Any]], call_next: Callable[..., list[int]]
    ) -> object:
        if any(each["payload"].startswith(b"bad") for each in batch):
            raise InvalidItem("a bad order")
        return call_next()


def consumed(
    folder: Path,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    bad: bytes = BAD,
    source: Mapping[str, Any] | None = None,
    key: bytes = b"7",
    box: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, Sequence[Row[Any]]]:
    """The rows of both boxes after a good message, a bad one and another good one."""
    messages = [(b"7", b"1"), (key, bad), (b"7", b"2")]
    log = MemorySource([ReceivedMessage("orders", 0, n, *each) for n, each in enumerate(messages)])
    monkeypatch.setattr(consuming, "KafkaSource", lambda **_arguments: log)
    kafka = {"topics": "orders", "group": "billing", "bootstrap_servers": "127.0.0.1:9", **(source or {})}
    path = folder / "outbox.yml"
    boxes = {BOX: {"source": {"kafka": kafka}, **(box or {})}, DEAD: {}}
    path.write_text(yaml.safe_dump({"database": {"url": url}, "inbox_items": boxes, **settings}))
    loaded = boxengine.load(path)
    engine = create_engine(url, poolclass=NullPool)
    schema.create(engine, [loaded.box(BOX), loaded.box(DEAD)])
    process = Consuming(loaded.resolved, observer=NullObserver(), tracer=NullTracer())
    try:
        (fed,) = process._consumers
        fed.consumer.turn()
    finally:
        process.close()
    assert log.committed == {("orders", 0): 3}
    with engine.connect() as connection:
        return {
            name: connection.execute(text(f"SELECT * FROM {loaded.box(name).table} ORDER BY id")).all()
            for name in (BOX, DEAD)
        }


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_payload_bytes": 10}, "payload of 30 bytes is over the limit of 10"),
        ({"middlewares": {"create_batch": [f"{__name__}.Guard"]}}, "a bad order"),
    ],
    ids=["limit", "middleware"],
)
def test_what_the_box_refuses_to_create_becomes_a_failed_row_of_it(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, Any], reason: str
) -> None:
    rows = consumed(tmp_path, postgres_url, monkeypatch, **settings)[BOX]
    assert sorted((row.status, bytes(row.payload)) for row in rows) == [
        (Status.PENDING, b"1"),
        (Status.PENDING, b"2"),
        (Status.FAILED, BAD),
    ]
    (failed,) = (row for row in rows if row.status == Status.FAILED)
    assert reason in failed.error_log


class OfTheEvent:
    """A user's middleware that gives items the time of their events."""

    def __call__(self, _model: object, batch: Sequence[dict[str, Any]], call_next: Callable[..., list[int]]) -> object:
        for each in batch:
            each["created_at"] = datetime(2020, 1, 31, tzinfo=UTC)
        return call_next()


@pytest.mark.parametrize("storage", ["table", "log"])
def test_a_failed_row_is_kept_from_now_on_however_old_its_event_is(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    """Retention would delete it before anybody has seen it."""
    middlewares = {"create_batch": [f"{__name__}.OfTheEvent"]}
    rows = consumed(
        tmp_path, postgres_url, monkeypatch, box={"storage": storage}, max_payload_bytes=10, middlewares=middlewares
    )[BOX]
    (failed,) = (row for row in rows if row.status == Status.FAILED)
    assert failed.created_at.year == 2020
    store = SqlStore(connect(postgres_url, connections=1))
    kept_since = store.oldest_finished(boxengine.load(tmp_path / "outbox.yml").box(BOX), [Status.FAILED])
    store.close()
    assert kept_since is not None
    assert kept_since.year > 2020


def test_a_limit_of_all_boxes_does_not_keep_a_large_message_from_the_box_for_dead_letters(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = consumed(tmp_path, postgres_url, monkeypatch, source={"dead_letter": {"box": DEAD}}, max_payload_bytes=10)
    assert [bytes(row.payload) for row in rows[BOX]] == [b"1", b"2"]
    (dead,) = rows[DEAD]
    assert bytes(dead.payload) == BAD
    assert "over the limit of 10" in dead.options["headers"]["Dead-Letter-Reason"]


def of_numbers(key: Any, bucket_size: int) -> int:
    """A user's partition strategy, for keys that are numbers."""
    return int(key) % bucket_size


def beyond(key: Any, bucket_size: int) -> int:
    """Another one, with a fault."""
    return 0 if key == "7" else bucket_size


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [("of_numbers", "raised ValueError: invalid literal for int"), ("beyond", "bucket 16, expected 0 to 15")],
)
@pytest.mark.parametrize("source", [{}, {"dead_letter": {"box": DEAD}}])
def test_a_key_that_the_partition_strategy_does_not_take_stops_nothing(
    tmp_path: Path,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    strategy: str,
    reason: str,
    source: Mapping[str, Any],
) -> None:
    box = {"partition_strategy": f"{__name__}.{strategy}"}
    rows = consumed(tmp_path, postgres_url, monkeypatch, key=b"abc", box=box, source=source)
    assert [bytes(row.payload) for row in rows[BOX] if row.status == Status.PENDING] == [b"1", b"2"]
    if source:
        (dead,) = rows[DEAD]
        assert reason in dead.options["headers"]["Dead-Letter-Reason"]
    else:
        (dead,) = (row for row in rows[BOX] if row.status == Status.FAILED)
        assert (dead.event_key, dead.bucket) == ("abc", 0)
        assert reason in dead.error_log


def tenant(message: ReceivedMessage) -> str:
    """A user's rule."""
    return str(json.loads(message.value or b"{}").get("tenant", "none"))


def test_a_failed_row_has_what_the_rules_of_its_source_say_as_far_as_they_say_something(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under strict_order it holds back its key: that of the rule, as the other items of the order have."""
    rules = {"event_key": f"{__name__}.tenant", "event_name": "{headers.Type}"}
    bad = b'{"tenant": "ACME", "orders": [1, 2, 3]}'
    found = consumed(tmp_path, postgres_url, monkeypatch, bad=bad, source=rules, max_payload_bytes=10)[BOX]
    assert [(row.status, row.event_key, row.event_name) for row in found] == [
        (Status.FAILED, "7", None),
        (Status.FAILED, "ACME", None),
        (Status.FAILED, "7", None),
    ]


def test_what_a_rule_says_and_no_column_takes_is_left_out_of_the_failed_row(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {"event_key": f"{__name__}.tenant", "attributes": {"available_at": f"{__name__}.tenant"}}
    bad = b'{"tenant": "ACME"}'
    *_, failed = sorted(
        consumed(tmp_path, postgres_url, monkeypatch, bad=bad, source=rules)[BOX], key=lambda row: bytes(row.payload)
    )
    assert (failed.status, failed.event_key, failed.available_at) == (Status.FAILED, "ACME", None)
    assert "available_at" in failed.error_log


def test_a_box_for_dead_letters_that_could_hold_one_twice_is_found_at_start(tmp_path: Path, postgres_url: str) -> None:
    """At the first bad message all partitions would stop there."""
    lost = "lost_outbox_item"
    kafka = {"topics": "orders", "group": "billing", "bootstrap_servers": "127.0.0.1:9", "dead_letter": {"box": lost}}
    boxes = {"inbox_items": {BOX: {"source": {"kafka": kafka}}}, "outbox_items": {lost: {}}}
    path = tmp_path / "outbox.yml"
    path.write_text(yaml.safe_dump({"database": {"url": postgres_url}, **boxes}))
    loaded = boxengine.load(path)
    engine = create_engine(postgres_url, poolclass=NullPool)
    schema.create(engine, [loaded.box(BOX), loaded.box(lost)])
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {loaded.box(lost).table} DROP COLUMN dedup_key"))
    process = Consuming(loaded.resolved, observer=NullObserver(), tracer=NullTracer())
    with pytest.raises(SchemaMismatch, match=f"box {lost}: table .* could store a message twice"):
        process.worker(health=process.health())
