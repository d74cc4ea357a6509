"""Processing: what becomes of an item, and of its row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import DISCARD, SKIP, Failure, Verdict
from boxengine.engine.pipeline import TransportSpec
from tests.integration.engine.receivers import BatchReceiver, FailsFirst, Receiver
from tests.integration.engine.rig import Rig
from tests.parity.harness import QUEUE, RETRIES, MakeRig, Spy


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


def test_an_item_that_is_gone_or_not_pending_is_skipped_quietly(rig: Rig, spy: Spy) -> None:
    receiver = Receiver()
    rig.carry(receiver)
    done = rig.insert(status=2, bucket=1)
    spy.client.lpush(QUEUE, f"1:1700000000:{done},{done + 1000}")
    (item_id,) = rig.create(1)
    rig.deliver(1)
    assert receiver.ids == [item_id]
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
