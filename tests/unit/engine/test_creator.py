"""Writing items: what is checked, which bucket, which middlewares, what is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel, RootModel

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.telemetry.opentelemetry import OpenTelemetryTracer
from boxengine.domain.box import Storage
from boxengine.engine.create import Creator
from boxengine.engine.delivering.calls.pipeline import Middlewares, Pipeline
from boxengine.engine.observation import NullTracer
from boxengine.errors import BoxError, InvalidItem
from boxengine.ports import Attributes, Inserted
from boxengine.ports.events import Created, Event
from tests.unit.engine.bench import make_box

COLUMNS = frozenset({"uuid", "event_key", "event_name", "bucket", "payload", "options"})


NONE = Middlewares()


class Table:
    """Keeps what is inserted through which session."""

    def __init__(self, columns: frozenset[str] = COLUMNS) -> None:
        self.columns = columns
        self.rows: list[Attributes] = []
        self.sessions: list[Any] = []

    def insert(self, session: Any, rows: Sequence[Attributes]) -> Inserted:
        self.sessions.append(session)
        first = len(self.rows) + 1
        self.rows += rows
        return Inserted(list(range(first, first + len(rows))))


class Told:
    def __init__(self) -> None:
        self.batches: list[tuple[list[int], list[int]]] = []

    def see(self, event: Event) -> None:
        assert isinstance(event, Created)
        self.batches.append((list(event.ids), list(event.buckets)))


class Traced(NullTracer):
    def inject(self, headers: dict[str, str]) -> dict[str, str]:
        return {"traceparent": "00-1-2-01", **headers}


class Desk:
    """A creator over a table of its own."""

    def __init__(self, *, middlewares: Middlewares = NONE, **options: Any) -> None:
        self.table = options.pop("table", None) or Table(options.pop("columns", COLUMNS))
        self.observer = Told()
        self.creator = Creator(
            Pipeline(box=options.pop("box", None) or make_box(bucket_size=16), transports=(), retry_strategies=()),
            self.table,
            middlewares=middlewares,
            observer=self.observer,
            tracer=options.pop("tracer", NullTracer()),
            clock=ManualClock(),
            **options,
        )


class Deduplicating(Table):
    """Knows a row by its ``uuid``."""

    def insert(self, session: Any, rows: Sequence[Attributes]) -> Inserted:
        before = [row["uuid"] for row in self.rows]
        for row in rows:
            if row["uuid"] not in [known["uuid"] for known in self.rows]:
                self.rows.append(row)
        there = [row["uuid"] for row in self.rows]
        ids = [1 + there.index(row["uuid"]) for row in rows]
        return Inserted(ids, frozenset(id_ for id_ in ids if id_ <= len(before)))


def attributes(**changes: Any) -> Attributes:
    return {"event_key": 42, "payload": b"x", **changes}


def test_an_item_is_inserted_with_its_key_as_text_and_its_bucket() -> None:
    desk = Desk()
    assert desk.creator.create("session", attributes()) == 1
    assert desk.table.rows == [{"event_key": "42", "payload": b"x", "bucket": 10}]
    assert desk.table.sessions == ["session"]
    assert desk.observer.batches == [([1], [10])]


@pytest.mark.parametrize("payload", ["x", b"x", bytearray(b"x"), memoryview(b"x")])
def test_a_payload_is_bytes_or_text(payload: Any) -> None:
    desk = Desk()
    desk.creator.create(None, attributes(payload=payload))
    assert desk.table.rows[0]["payload"] == b"x"


@dataclass
class Tenant:
    name: str


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"event_key": None}, "event_key is missing"),
        ({"event_key": ""}, "event_key is missing"),
        ({"payload": None}, "payload is missing"),
        ({"payload": 5}, "payload must be bytes or str, not int"),
        ({"options": '{"a": 1}'}, "options: expected a mapping, got str; give the mapping, not its text"),
        ({"options": Tenant("a")}, r"options: expected a mapping, got Tenant; give dataclasses.asdict\(value\)"),
        ({"options": {"headers": [("a", "b")]}}, r"options\['headers'\]: expected a mapping, got list$"),
        (
            {"headers": {"a": "b"}},
            r'unknown attribute headers; they are a part of the options: options={"headers": ...}',
        ),
        ({"id": 5, "status": 2}, "item 1: id, status: boxengine alone sets this; leave it out$"),
        ({"id": 5, "colour": "red"}, "unknown attribute colour, id; known: bucket, event_key"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_inserted(changes: Any, message: str) -> None:
    desk = Desk()
    with pytest.raises(InvalidItem, match=message) as caught:
        desk.creator.create_batch(None, [attributes(), attributes(**changes)])
    assert isinstance(caught.value, BoxError)
    assert "item 1" in str(caught.value)
    assert desk.table.rows == []


LOGGED = "order_outbox_item, item 0: {}; leave it out, or convert the box with: boxengine db convert order_outbox_item --to table"


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("available_at", "available_at: not with storage: log, where a position cannot skip an item that waits"),
        ("dedup_key", "dedup_key: not with storage: log, where the log of an outbox has no unique index"),
        ("seq", "seq: not with storage: log, which has no place for the numbers"),
    ],
)
def test_what_a_log_cannot_do_is_refused_with_the_reason_and_the_way_out(attribute: str, reason: str) -> None:
    desk = Desk(box=make_box(bucket_size=16, storage=Storage.LOG))
    with pytest.raises(InvalidItem, match=re.escape(LOGGED.format(reason))):
        desk.creator.create(None, attributes(**{attribute: "x"}))
    assert desk.table.rows == []


def test_what_is_unknown_of_a_log_is_told_as_of_a_table() -> None:
    with pytest.raises(InvalidItem, match="unknown attribute colour; known: bucket"):
        Desk(box=make_box(storage=Storage.LOG)).creator.create(None, attributes(colour="red"))


def test_an_attribute_whose_column_the_table_lacks_is_refused_with_the_command_that_adds_it() -> None:
    advice = "or no unique index over it; add what it lacks with: boxengine db upgrade"
    with pytest.raises(InvalidItem, match=f"dedup_key: table 'order_outbox_items' has no such column, {advice}"):
        Desk().creator.create(None, attributes(dedup_key="x", colour="red"))


@pytest.mark.parametrize(("size", "fits"), [(10, True), (11, False)])
def test_a_payload_over_the_limit_is_refused(size: int, fits: bool) -> None:
    desk = Desk(max_payload=10)
    if fits:
        desk.creator.create(None, attributes(payload="x" * size))
    else:
        with pytest.raises(InvalidItem, match="11 bytes is over the limit of 10"):
            desk.creator.create(None, attributes(payload="x" * size))


def test_a_key_of_zero_is_a_key() -> None:
    desk = Desk()
    desk.creator.create(None, attributes(event_key=0))
    assert desk.table.rows[0]["event_key"] == "0"


class Order:
    """An object without a text of its own."""


class Ulid(Order):
    def __str__(self) -> str:
        return "01J0000000"


class Slug(RootModel[str]):
    def __str__(self) -> str:
        return self.root


@dataclass
class Paid:
    """Its text has all fields."""

    id: int
    paid: bool = False


class Row(Order):
    """As SQLAlchemy's tutorial writes its models."""

    def __repr__(self) -> str:
        return "Row(id=1, paid=False)"


class Invoice(BaseModel):
    """Its text has all fields, too, which is Pydantic's."""

    id: int = 1


@pytest.mark.parametrize(
    "given",
    [True, b"42", bytearray(b"42"), ["a"], {"a": 1}, {1}, Order(), Order, [].append, Paid(1), Row(), Invoice()],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("name", ["event_key", "event_name", "dedup_key"])
def test_what_is_no_name_is_not_stored_as_its_repr(name: str, given: Any) -> None:
    desk = Desk(columns=COLUMNS | {"dedup_key"})
    with pytest.raises(InvalidItem, match=f"item 0: {name} must be a text, a whole number or a UUID, not "):
        desk.creator.create(None, attributes(**{name: given}))
    assert desk.table.rows == []


@pytest.mark.parametrize("given", ["a", 7, UUID(int=1)], ids=repr)
@pytest.mark.parametrize("name", ["event_key", "event_name", "dedup_key"])
def test_names_are_stored_as_text(name: str, given: Any) -> None:
    desk = Desk(columns=COLUMNS | {"dedup_key"})
    desk.creator.create(None, attributes(**{name: given}))
    assert desk.table.rows[0][name] == str(given)


@pytest.mark.parametrize("given", [Ulid(), Slug("a-bicycle"), 1.5, date(2026, 1, 31), ("a", 1)], ids=str)
def test_an_event_key_may_be_an_object_with_a_text_of_its_own(given: object) -> None:
    desk = Desk()
    desk.creator.create(None, attributes(event_key=given))
    assert desk.table.rows[0]["event_key"] == str(given)


class Currency(str, Enum):  # noqa: UP042 - whose str() is not its text
    EUR = "eur"


def test_a_member_of_an_enumeration_of_texts_is_the_same_key_as_its_text() -> None:
    desk = Desk()
    desk.creator.create(None, attributes(event_key=Currency.EUR))
    desk.creator.create(None, attributes(event_key="eur"))
    first, second = desk.table.rows
    assert (first["event_key"], first["bucket"]) == (second["event_key"], second["bucket"])
    assert type(first["event_key"]) is str


def test_a_coroutine_that_was_not_awaited_is_no_key() -> None:
    async def order_id() -> int:
        return 42

    with pytest.raises(InvalidItem, match="event_key must be a text, a whole number or a UUID, not coroutine"):
        Desk().creator.create(None, attributes(event_key=order_id()))


@pytest.mark.parametrize("name", ["available_at", "created_at"])
def test_a_moment_may_be_a_text_in_iso_8601(name: str) -> None:
    desk = Desk(columns=COLUMNS | {name})
    desk.creator.create(None, attributes(**{name: "2026-01-31T12:00+01:00"}))
    assert desk.table.rows[0][name] == datetime(2026, 1, 31, 11, tzinfo=UTC)
    with pytest.raises(InvalidItem, match=f"item 0: {name}: expected a datetime with a zone, or its text in ISO 8601"):
        desk.creator.create(None, attributes(**{name: "tomorrow"}))
    assert len(desk.table.rows) == 1


def test_a_bucket_is_a_number() -> None:
    with pytest.raises(InvalidItem, match="bucket True, expected 0 to 15"):
        Desk().creator.create(None, attributes(bucket=True))


def test_what_a_partition_strategy_raises_is_told_with_the_key() -> None:
    box = make_box(bucket_size=16, partition_strategy=lambda key, size: int(key) % size)
    with pytest.raises(InvalidItem, match=r"item 0: the partition strategy raised ValueError: .* for 'abc'") as caught:
        Desk(box=box).creator.create(None, attributes(event_key="abc"))
    assert isinstance(caught.value.__cause__, ValueError)


def test_partition_by_overrides_the_key_for_the_bucket_even_if_it_is_zero() -> None:
    desk = Desk()
    desk.creator.create(None, attributes(), partition_by=0)
    desk.creator.create_batch(None, [attributes(event_name="7")], partition_by=lambda row: row["event_name"])
    assert [row["bucket"] for row in desk.table.rows] == [0, 7]
    assert {row["event_key"] for row in desk.table.rows} == {"42"}


def test_an_item_of_a_batch_may_have_a_partition_by_of_its_own() -> None:
    desk = Desk()
    items = [attributes(partition_by=5), attributes(), attributes(partition_by=0), attributes(partition_by=None)]
    desk.creator.create_batch(None, items, partition_by=lambda _row: 9)
    desk.creator.create_batch(None, items)
    assert [row["bucket"] for row in desk.table.rows] == [5, 9, 0, 9, 5, 10, 0, 10]
    assert all("partition_by" not in row for row in desk.table.rows)
    assert items[0]["partition_by"] == 5


def test_beside_partition_by_an_unknown_attribute_is_still_refused() -> None:
    with pytest.raises(InvalidItem, match="unknown attribute colour; known"):
        Desk().creator.create_batch(None, [attributes(partition_by=5, colour="red")])


def test_partition_by_sees_the_attributes_as_they_were_given() -> None:
    desk, seen = Desk(), list[Attributes]()

    def note(row: Attributes) -> int:
        seen.append(dict(row))
        return 5

    given = attributes(event_key=42, payload="text")
    desk.creator.create_batch(None, [given], partition_by=note)
    assert seen == [given]
    assert (desk.table.rows[0]["payload"], given["payload"]) == (b"text", "text")


def test_a_bucket_given_by_the_caller_stands() -> None:
    desk = Desk()
    desk.creator.create(None, attributes(bucket=3))
    assert desk.table.rows[0]["bucket"] == 3


def test_an_empty_batch_reaches_nobody() -> None:
    desk = Desk()
    assert desk.creator.create_batch(None, []) == []
    assert desk.table.sessions == desk.observer.batches == []


def test_the_callers_mappings_are_left_as_they_were() -> None:
    desk, mine = Desk(tracer=Traced()), attributes()
    desk.creator.create(None, mine)
    desk.creator.create_batch(None, [mine])
    assert mine == attributes()


def test_create_middlewares_see_the_attributes_before_the_bucket_is_computed() -> None:
    def rekey(_model: Any, row: Attributes, call_next: Callable[[], int]) -> int:
        assert "bucket" not in row
        row["event_key"] = 5
        return call_next()

    def rekey_all(_model: Any, rows: list[Attributes], call_next: Callable[[], list[int]]) -> list[int]:
        for row in rows:
            row["event_key"] = 6
        return call_next()

    desk = Desk(middlewares=Middlewares(create_item=(rekey,), create_batch=(rekey_all,)))
    desk.creator.create(None, attributes())
    desk.creator.create_batch(None, [attributes()])
    assert [row["bucket"] for row in desk.table.rows] == [5, 6]


def test_the_trace_goes_into_the_headers_under_the_callers_own() -> None:
    desk = Desk(tracer=Traced())
    desk.creator.create(None, attributes(options={"key": "1", "headers": {"x": "y"}}))
    desk.creator.create(None, attributes(options={"headers": {"traceparent": "mine"}}))
    assert [row["options"] for row in desk.table.rows] == [
        {"key": "1", "headers": {"traceparent": "00-1-2-01", "x": "y"}},
        {"headers": {"traceparent": "mine"}},
    ]


def test_of_a_batch_each_items_own_headers_decide_about_its_trace() -> None:
    tracer = OpenTelemetryTracer(clock=ManualClock(), provider=TracerProvider())
    desk = Desk(tracer=tracer)
    theirs = {"Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    desk.creator.create_batch(None, [attributes(options={"headers": each}) for each in ({}, theirs, {"x": "y"})])
    first, second, third = (row["options"]["headers"] for row in desk.table.rows)
    assert second == theirs
    assert first.keys() == {"traceparent"}
    assert third == {**first, "x": "y"}


def test_a_table_without_options_carries_no_trace() -> None:
    desk = Desk(tracer=Traced(), columns=COLUMNS - {"options"})
    desk.creator.create(None, attributes())
    assert "options" not in desk.table.rows[0]


def test_a_row_that_was_there_already_is_not_told_as_created_and_one_that_stands_twice_is_told_once() -> None:
    desk = Desk(table=Deduplicating())
    assert desk.creator.create_batch(None, [attributes(uuid="a"), attributes(uuid="b", event_key=3)]) == [1, 2]
    known: set[int] = set()
    batch = [attributes(uuid=each) for each in ("b", "c", "c", "a")]
    assert desk.creator.create_batch(None, batch, known=known) == [2, 3, 3, 1]
    assert desk.creator.create(None, attributes(uuid="a")) == 1
    assert known == {1, 2}
    assert desk.observer.batches == [([1, 2], [10, 3]), ([3], [10])]
