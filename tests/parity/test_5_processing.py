"""Processing: what becomes of an item, and of its row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import boxengine
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import DISCARD, PROCESS, SKIP, Failure, Verdict
from boxengine.engine.delivering.calls.pipeline import TransportSpec
from tests.eventually import eventually
from tests.integration.engine.receivers import BatchReceiver, FailsFirst, Gate, Receiver
from tests.integration.engine.rig import BOX, Rig, constant
from tests.parity.harness import QUEUE, RETRIES, MakeRig, Spy


def test_process_defaults(tmp_path: Path) -> None:
    (tmp_path / "plain.yml").write_text("outbox_items: {order_outbox_item: }")
    processor = boxengine.load(tmp_path / "plain.yml").resolved.settings.processor
    assert (processor.threads_count, processor.brpop_delay) == (4, timedelta(seconds=1))
    assert (processor.general_timeout, processor.cutoff_timeout) == (timedelta(seconds=180), timedelta(seconds=90))


def test_end_delivered(rig: Rig) -> None:
    rig.carry(Receiver())
    (item_id,) = rig.create(1)
    rig.deliver(1)
    row = rig.row(item_id)
    assert (row.status, row.errors_count, row.error_log) == (2, 0, None)
    assert row.processed_at is not None


def test_end_failed_attempt_with_retries_left(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 2, "minimal_retry_interval": 600})
    rig.carry(Receiver(lambda _item: Failure("no")))
    (item_id,) = rig.create(1)
    rig.deliver(1)
    row = rig.row(item_id)
    assert (row.status, row.errors_count) == (0, 1)
    assert row.processed_at is not None
    assert "no" in row.error_log
    assert rig.tracked == []


def test_end_failed_attempt_beyond_max_retries(make_rig: MakeRig) -> None:
    rig = make_rig(box=RETRIES)
    rig.carry(Receiver(lambda _item: Failure("no")))
    (item_id,) = rig.create(1)
    rig.deliver(3)
    assert (rig.row(item_id).status, rig.row(item_id).errors_count) == (1, 3)
    assert len(rig.tracked) == 1


def test_max_retries_0_fails_at_the_first_failure(rig: Rig) -> None:
    rig.carry(Receiver(lambda _item: False))
    (item_id,) = rig.create(1)
    rig.deliver(1)
    assert (rig.row(item_id).status, rig.row(item_id).errors_count) == (1, 1)


def says(verdict: Verdict) -> Callable[[Item, Any], Verdict]:
    def strategy(_item: Item, _context: Any) -> Verdict:
        return verdict

    return strategy


def test_end_strategy_says_skip(make_rig: MakeRig) -> None:
    rig = make_rig(box=RETRIES)
    receiver = Receiver(FailsFirst(1, guilty=lambda item: item.event_key == "1"))
    rig.carry(receiver)
    rig.decide(says(SKIP))
    skipped, _ = rig.create(1, 2)
    with rig.worker() as watcher:
        watcher.wait_for_settled(2)
        before = rig.row(skipped)
        watcher.wait_for(lambda: len(watcher.boxes) > 3)
    assert rig.row(skipped) == before
    assert receiver.ids.count(skipped) == 1


def test_end_strategy_says_discard(make_rig: MakeRig) -> None:
    rig = make_rig(box=RETRIES)
    receiver = Receiver(FailsFirst(1))
    rig.carry(receiver)
    rig.decide(says(DISCARD))
    (item_id,) = rig.create(1)
    rig.deliver(2)
    assert (rig.row(item_id).status, rig.row(item_id).errors_count) == (3, 1)
    assert rig.row(item_id).processed_at is not None
    assert receiver.ids == [item_id]


def test_retry_strategies_are_asked_in_order_about_items_tried_before(make_rig: MakeRig) -> None:
    rig = make_rig(box=RETRIES)
    asked: list[tuple[str, int]] = []

    def note(name: str, verdict: Verdict) -> Callable[[Item, Any], Verdict]:
        def strategy(item: Item, _context: Any) -> Verdict:
            asked.append((name, item.id))
            return verdict

        return strategy

    rig.carry(Receiver(FailsFirst(1, guilty=lambda item: item.event_key == "1")))
    rig.decide(note("first", PROCESS), note("second", DISCARD), note("third", PROCESS))
    tried, _ = rig.create(1, 2)
    rig.deliver(3)
    assert asked == [("first", tried), ("second", tried)]
    assert rig.row(tried).status == Status.DISCARDED


def test_the_payload_builder_of_the_model_makes_what_goes_out(make_rig: MakeRig) -> None:
    model = "tests.integration.engine.models.ReceiptOutboxItem"
    rig, receiver = make_rig(outbox_items={"receipt_outbox_item": {"model": model}}), Receiver()
    rig.carry(receiver, box="receipt_outbox_item")
    (item_id,) = rig.create(1, box="receipt_outbox_item", payload="text")
    rig.deliver(1)
    assert receiver.payloads == [{"id": item_id, "stored": "text"}]


def test_an_item_goes_to_the_transports_of_its_event_name_and_to_those_of_all(rig: Rig) -> None:
    every, created, paid = Receiver(), Receiver(), Receiver()
    rig.carry(
        every,
        TransportSpec(name="created", build=constant(created), event_name="created"),
        TransportSpec(name="paid", build=constant(paid), event_name="paid"),
    )
    ids = {name: rig.create(1, 2, event_name=name)[0] for name in ("created", "paid", "neither")}
    rig.deliver(6)
    assert sorted(every.ids) == sorted(rig.rows())
    assert (min(created.ids), len(created.ids)) == (ids["created"], 2)
    assert (min(paid.ids), len(paid.ids)) == (ids["paid"], 2)


def test_an_item_that_is_gone_is_an_error_and_one_that_is_not_pending_is_skipped_quietly(rig: Rig, spy: Spy) -> None:
    receiver = Receiver()
    rig.carry(receiver)
    done = rig.insert(status=2, bucket=1)
    spy.client.lpush(QUEUE, f"1:1700000000:{done},{done + 1000}")
    (item_id,) = rig.create(2)
    watcher = rig.deliver(1)
    assert receiver.ids == [item_id]
    assert watcher.fetch_failures == [f"item {done + 1000}, named by a job, is gone"]
    assert rig.tracked == []


def test_without_a_transport_an_item_fails(rig: Rig) -> None:
    rig.carry(TransportSpec(name="paid", build=Receiver, event_name="paid"))
    (item_id,) = rig.create(1, event_name="created")
    rig.deliver(1)
    assert rig.row(item_id).status == Status.FAILED
    assert "no transport" in rig.row(item_id).error_log


def test_with_several_transports_all_must_succeed_and_each_is_called_again_on_retry(make_rig: MakeRig) -> None:
    rig = make_rig(box=RETRIES)
    first, second = Receiver(), Receiver(FailsFirst(1))
    rig.carry(first=first, second=second)
    (item_id,) = rig.create(1)
    rig.deliver(2)
    assert (first.ids, second.ids) == ([item_id] * 2, [item_id] * 2)
    assert rig.row(item_id).status == Status.DELIVERED


def test_past_the_cutoff_a_job_stops_between_items_and_the_rest_stays_pending_for_the_next(make_rig: MakeRig) -> None:
    rig = make_rig(bucket_size=1, processor={"brpop_delay": 0.2, "cutoff_timeout": 0.001})
    rig.carry(Receiver())
    ids = rig.create(*range(20))
    with rig.worker() as watcher:
        watcher.wait_for(lambda: set(rig.statuses()) == {Status.DELIVERED} or len(watcher.states) > 40)
    assert ("order_outbox_item", "timeout") in watcher.states
    assert watcher.delivered == ids


def test_item_middlewares_stand_around_all_transports_of_an_item(rig: Rig) -> None:
    log: list[str] = []

    def around(item: Item, call_next: Callable[[], Any]) -> Any:
        log.append("before")
        result = call_next()
        log.append("after")
        return result

    def note(name: str) -> Callable[[Item], None]:
        return lambda _item: log.append(name)

    rig.carry(first=BatchReceiver(note("first")), second=Receiver(note("second")))
    rig.surround(item_process=[around])
    rig.create(1)
    rig.deliver(1)
    assert log == ["before", "first", "second", "after"]


def test_create_and_batch_middlewares_stand_around_their_steps(rig: Rig) -> None:
    log: list[str] = []

    def around(name: str) -> Callable[..., Any]:
        def middleware(*arguments: Any) -> Any:
            log.append(name)
            return arguments[-1]()

        return middleware

    rig.carry(Receiver())
    kinds = ("create_item", "create_batch", "batch_process", "item_process")
    rig.surround(**{kind: [around(f"{kind} outer"), around(f"{kind} inner")] for kind in kinds})
    with rig.engine.begin() as connection:
        rig.boxes.create_outbox_item(connection, BOX, event_key=1, payload=b"")
    rig.create(1)
    rig.deliver(2, processor_threads=1)
    assert log[:4] == ["create_item outer", "create_item inner", "create_batch outer", "create_batch inner"]
    assert log[4:] == ["batch_process outer", "batch_process inner", *["item_process outer", "item_process inner"] * 2]


def test_a_lease_is_renewed_while_a_slow_job_goes_on_and_nobody_else_gets_the_bucket(rig: Rig, spy: Spy) -> None:
    gate, other = Gate(), Receiver()
    rig.carry(gate)
    (item_id,) = rig.create(3)
    left: list[int] = []

    def renewed_three_times() -> bool:
        left.append(spy.remaining(f"sbmt:outbox:processor:{BOX}:3:lock"))
        return sum(after > before for before, after in pairwise(left)) >= 3

    with rig.worker() as first:
        assert gate.entered.wait(30)
        rig.carry(other)
        with rig.worker() as second:
            eventually(renewed_three_times)
            gate.open()
            first.wait_for_settled(1)
        assert second.delivered == []
    assert (gate.ids, other.ids, rig.statuses()) == ([item_id], [], [Status.DELIVERED])
