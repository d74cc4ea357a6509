"""From a committed row to its transport, through a whole worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Failure
from boxengine.engine.delivering.batches.batch import Batch
from boxengine.engine.delivering.calls.pipeline import TransportSpec
from tests.integration.engine.receivers import BatchReceiver, FailsFirst, Receiver
from tests.integration.engine.rig import BOX
from tests.integration.engine.rigs import MakeRig

NOW_AND_AGAIN = {"max_retries": 2, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1}
"""Retries that a test need not wait for."""


@pytest.mark.parametrize("kind", [Receiver, BatchReceiver])
def test_every_committed_item_is_delivered_once_and_in_order_of_its_key(
    make_rig: MakeRig, kind: type[Receiver]
) -> None:
    rig, receiver = make_rig(), kind()
    rig.carry(receiver)
    ids = rig.create(*(number % 7 for number in range(60)))
    rig.deliver(60)
    assert sorted(receiver.ids) == ids
    assert all(arrived == sorted(arrived) for arrived in receiver.by_key.values())
    assert set(rig.statuses()) == {Status.DELIVERED}
    assert all(row.processed_at is not None and row.errors_count == 0 for row in rig.rows().values())


def test_a_batch_transport_gets_many_items_at_once(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(), BatchReceiver()
    rig.carry(receiver)
    rig.create(*range(40))
    rig.deliver(40, processor_threads=1)
    assert max(map(len, receiver.batches)) > 1


def test_a_transport_sees_the_whole_item(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(), Receiver()
    rig.carry(receiver)
    (item_id,) = rig.create("key-1", event_name="order_created", options={"key": "42", "headers": {"x": "y"}})
    rig.deliver(1)
    (item,) = receiver.items
    row = rig.row(item_id)
    assert (item.id, str(item.uuid), item.event_name, item.event_key) == (
        item_id,
        str(row.uuid),
        "order_created",
        "key-1",
    )
    assert (item.bucket, item.errors_count, item.box_name, item.box_type) == (row.bucket, 0, BOX, "outbox")
    assert item.options == {"key": "42", "headers": {"x": "y"}}
    assert item.headers.items() >= {"x": "y", "Outbox-Name": BOX, "Idempotency-Key": str(row.uuid)}.items()
    assert item.created_at == row.created_at
    assert item.processed_at is None
    assert receiver.payloads == [b"{}"]


def test_items_go_to_the_transports_of_their_event_name_and_to_those_of_all(make_rig: MakeRig) -> None:
    rig = make_rig()
    everything, created, paid = Receiver(), Receiver(), Receiver()
    rig.carry(
        everything,
        TransportSpec(name="created", build=lambda: created, event_name="created"),
        TransportSpec(name="paid", build=lambda: paid, event_name="paid"),
    )
    first = rig.create(1, 2, event_name="created")
    second = rig.create(1, 3, event_name="paid")
    rig.deliver(4)
    assert sorted(everything.ids) == [*first, *second]
    assert sorted(created.ids) == first
    assert sorted(paid.ids) == second


def test_a_disposable_transport_is_made_anew_for_each_call(make_rig: MakeRig) -> None:
    rig = make_rig()
    made: list[Receiver] = []

    def build() -> Receiver:
        made.append(Receiver())
        return made[-1]

    rig.carry(TransportSpec(name="disposable", build=build, disposable=True))
    rig.create(1, 2, 3)
    rig.deliver(3)
    assert max(len(each.ids) for each in made) == 1
    assert sum(len(each.ids) for each in made) == 3


class Handler:
    """An inbox handler that books the item in a table of its own database."""

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails

    def __call__(self, item: Item, payload: Any, *, session: Any) -> Any:
        session.execute(sa.text("INSERT INTO bookings (item_id) VALUES (:id)"), {"id": item.id})
        return Failure("no money") if self._fails and item.event_key == "poor" else None


class RaisingHandler(Handler):
    """The same, but it raises."""

    def __call__(self, item: Item, payload: Any, *, session: Any) -> Any:
        super().__call__(item, payload, session=session)
        if item.event_key == "poor":
            raise ValueError("no money")


def test_what_a_handler_writes_commits_with_the_items_status(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.execute("CREATE TABLE bookings (item_id bigint PRIMARY KEY)")
    rig.carry(Handler())
    ids = rig.create(*range(20))
    rig.deliver(20)
    assert sorted(row.item_id for row in rig.ask("SELECT item_id FROM bookings")) == ids


@pytest.mark.parametrize("handler", [Handler(fails=True), RaisingHandler()], ids=["Failure", "raises"])
def test_a_handler_that_fails_leaves_no_trace_and_its_neighbours_stay(make_rig: MakeRig, handler: Handler) -> None:
    rig = make_rig()
    rig.execute("CREATE TABLE bookings (item_id bigint PRIMARY KEY)")
    rig.carry(handler)
    rich, poor, also_rich = rig.create("rich", "poor", "rich")
    rig.deliver(3)
    assert sorted(row.item_id for row in rig.ask("SELECT item_id FROM bookings")) == [rich, also_rich]
    assert rig.row(poor).status == Status.FAILED
    assert "no money" in rig.row(poor).error_log


class BatchHandler:
    """Books a whole batch in one statement."""

    def call_batch(self, items: Sequence[Item], *, session: Any) -> list[None]:
        session.execute(sa.text("INSERT INTO bookings (item_id) VALUES (:id)"), [{"id": item.id} for item in items])
        return [None] * len(items)


def test_what_a_batch_handler_wrote_for_an_item_that_a_second_transport_refuses_is_undone(make_rig: MakeRig) -> None:
    rig = make_rig(box={"bucket_size": 1})
    rig.execute("CREATE TABLE bookings (item_id bigint PRIMARY KEY)")
    shop = BatchReceiver(lambda item: Failure("no stock") if item.event_key == "poor" else None)
    rig.carry(handler=BatchHandler(), shop=shop)
    rich, poor, also_rich = rig.create("rich", "poor", "rich")
    rig.deliver(3)
    assert sorted(row.item_id for row in rig.ask("SELECT item_id FROM bookings")) == [rich, also_rich]
    assert rig.row(poor).status == Status.FAILED
    assert shop.ids == [rich, poor, also_rich]


def test_a_failed_item_is_tried_again_after_its_pause_and_then_delivered(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(box=NOW_AND_AGAIN), Receiver(FailsFirst(2))
    rig.carry(receiver)
    (item_id,) = rig.create("key")
    watcher = rig.deliver(3)
    assert [attempt.errors_count for attempt in watcher.failures] == [1, 2]
    assert receiver.ids == [item_id] * 3
    row = rig.row(item_id)
    assert (row.status, row.errors_count) == (Status.DELIVERED, 2)
    assert "the receiver says no" in row.error_log
    assert rig.tracked == []


def test_an_item_out_of_retries_is_failed_and_the_error_tracker_is_told_once(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(box=NOW_AND_AGAIN), Receiver(FailsFirst(9))
    rig.carry(receiver)
    (item_id,) = rig.create("key")
    watcher = rig.deliver(3)
    assert [attempt.status for attempt in watcher.failures] == [Status.PENDING, Status.PENDING, Status.FAILED]
    row = rig.row(item_id)
    assert (row.status, row.errors_count) == (Status.FAILED, 3)
    ((error, context),) = rig.tracked
    assert "the receiver says no" in str(error)
    assert context.items() >= {"box_name": BOX, "item_id": item_id, "event_key": "key"}.items()


def test_a_poison_item_in_a_batch_fails_alone(make_rig: MakeRig) -> None:
    rig = make_rig()

    def explode(item: Item) -> None:
        if item.event_key == "poison":
            raise ValueError("poison")

    rig.carry(BatchReceiver(explode))
    rig.create(*range(30))
    (poison,) = rig.create("poison")
    rig.create(*range(30, 60))
    rig.deliver(61)
    assert [row.id for row in rig.rows().values() if row.status == Status.FAILED] == [poison]
    assert rig.statuses().count(Status.DELIVERED) == 60


def test_an_item_without_a_transport_fails_and_says_so(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.carry(TransportSpec(name="paid", build=Receiver, event_name="paid"))
    (item_id,) = rig.create("key", event_name="created")
    rig.deliver(1)
    assert rig.row(item_id).status == Status.FAILED
    assert "no transport for event name 'created'" in rig.row(item_id).error_log


def test_an_item_waits_for_its_available_at(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(), Receiver()
    rig.carry(receiver)
    (later,) = rig.create("key", available_at=datetime.now(UTC) + timedelta(hours=1))
    (now,) = rig.create("key")
    with rig.worker() as watcher:
        watcher.wait_for_settled(1)
        assert receiver.ids == [now]
        rig.execute("UPDATE order_outbox_items SET available_at = :now WHERE id = :id", now=rig.now(), id=later)
        watcher.wait_for_settled(2)
    assert receiver.ids == [now, later]


def test_several_boxes_outbox_and_inbox_are_served_by_one_worker(make_rig: MakeRig) -> None:
    rig = make_rig(
        outbox_items={"order_outbox_item": {}, "combined/outbox_item": {}}, inbox_items={"payment_inbox_item": {}}
    )
    receivers = {name: Receiver() for name in ("order_outbox_item", "combined/outbox_item", "payment_inbox_item")}
    ids = {}
    for name, receiver in receivers.items():
        rig.carry(receiver, box=name)
    for name in receivers:
        ids[name] = rig.create(*range(10), box=name)
    rig.deliver(30)
    assert {name: sorted(receiver.ids) for name, receiver in receivers.items()} == ids
    assert {item.box_type for item in receivers["payment_inbox_item"].items} == {"inbox"}
    assert set(rig.statuses("combined/outbox_item")) == {Status.DELIVERED}


def test_a_worker_of_chosen_boxes_leaves_the_others_alone(make_rig: MakeRig) -> None:
    rig = make_rig(outbox_items={"order_outbox_item": {}, "other_outbox_item": {}})
    rig.carry(Receiver())
    rig.carry(Receiver(), box="other_outbox_item")
    rig.create(1, 2)
    rig.create(1, 2, box="other_outbox_item")
    rig.deliver(2, boxes=["order_outbox_item"])
    assert set(rig.statuses()) == {Status.DELIVERED}
    assert set(rig.statuses("other_outbox_item")) == {Status.PENDING}


class Named:
    """A middleware that notes what it stands around."""

    def __init__(self, name: str, log: list[str], subject: Callable[..., str]) -> None:
        self._name = name
        self._log = log
        self._subject = subject

    def __call__(self, *arguments: Any) -> Any:
        *subject, call_next = arguments
        self._log.append(f"{self._name} before {self._subject(*subject)}")
        result = call_next()
        self._log.append(f"{self._name} after")
        return result


def test_middlewares_of_all_five_kinds_stand_around_their_step_the_first_outermost(make_rig: MakeRig) -> None:
    rig, log = make_rig(), list[str]()

    def both(kind: str, subject: Callable[..., str]) -> list[Named]:
        return [Named(f"{kind} {place}", log, subject) for place in ("outer", "inner")]

    def deliver(item: Item) -> None:
        log.append(f"transport {item.event_key}")

    rig.carry(Receiver(deliver))
    rig.surround(
        create_item=both("create_item", lambda model, attributes: f"{model} {attributes['event_key']}"),
        create_batch=both("create_batch", lambda model, batch: f"{model} {len(batch)}"),
        poll=both("poll", lambda task: f"{task.box.name} {task.partition}"),
        batch_process=both("batch", lambda batch: f"{type(batch).__name__} {len(batch.items)}"),
        item_process=both("item", lambda item: item.event_key),
    )
    with rig.engine.begin() as connection:
        rig.boxes.create_outbox_item(connection, BOX, event_key="k", payload=b"")
    assert log == [
        f"create_item outer before {BOX} k",
        f"create_item inner before {BOX} k",
        "create_item inner after",
        "create_item outer after",
    ]
    log.clear()
    rig.execute("DELETE FROM order_outbox_items")
    rig.create("k")
    assert log == [
        f"create_batch outer before {BOX} 1",
        f"create_batch inner before {BOX} 1",
        "create_batch inner after",
        "create_batch outer after",
    ]
    log.clear()
    rig.deliver(1, partitions=1)
    polling = [line for line in log if line.startswith("poll")]
    assert polling[:4] == [
        f"poll outer before {BOX} 0",
        f"poll inner before {BOX} 0",
        "poll inner after",
        "poll outer after",
    ]
    assert [line for line in log if not line.startswith("poll")] == [
        f"batch outer before {Batch.__name__} 1",
        f"batch inner before {Batch.__name__} 1",
        "item outer before k",
        "item inner before k",
        "transport k",
        "item inner after",
        "item outer after",
        "batch inner after",
        "batch outer after",
    ]


def test_an_item_middleware_that_does_not_call_on_decides_itself(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(), BatchReceiver()

    def refuse(item: Item, call_next: Callable[[], Any]) -> Any:
        return Failure("refused") if item.event_key == "bad" else call_next()

    rig.carry(receiver)
    rig.surround(item_process=[refuse])
    good, bad = rig.create("good", "bad")
    rig.deliver(2)
    assert receiver.ids == [good]
    assert rig.row(bad).status == Status.FAILED
    assert "refused" in rig.row(bad).error_log
