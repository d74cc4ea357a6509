"""Polling: how much a poll takes, and what each tactic lets put it off."""

from __future__ import annotations

from typing import Any

import pytest

from boxengine.domain.item import Status
from tests.eventually import eventually
from tests.integration.engine.receivers import Gate, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.parity.harness import QUEUE, RETRIES, MakeRig, Spy, servers_of

ONE_PARTITION = {"tactic": "aggressive", "concurrency": 1}


def busy(spy: Spy, *, length: int, bucket: int = 99) -> None:
    """A queue of so many jobs of a bucket that nobody works on."""
    for _ in range(length):
        spy.client.lpush(QUEUE, f"{bucket}:1700000000:1")


def test_a_poll_takes_at_most_the_regular_batch_size(make_rig: MakeRig) -> None:
    rig = make_rig(poller={**ONE_PARTITION, "regular_items_batch_size": 8, "retryable_items_batch_size": 4})
    rig.carry(Receiver())
    rig.create(*range(100))
    watcher = rig.deliver(100)
    assert max(found for _, found, _ in watcher.polls) <= 8


def test_of_rows_with_errors_a_poll_takes_at_most_the_retryable_batch_size(make_rig: MakeRig) -> None:
    poller = {**ONE_PARTITION, "regular_items_batch_size": 8, "retryable_items_batch_size": 4}
    rig = make_rig(poller=poller, box={**RETRIES, "max_retries": 50})
    rig.carry(Receiver())
    for number in range(40):
        rig.insert(bucket=number % 4, event_key=str(number), errors_count=1)
    watcher = rig.deliver(40)
    assert max(found for _, found, _ in watcher.polls) <= 4


def test_a_full_retryable_part_does_not_hide_regular_rows(make_rig: MakeRig) -> None:
    poller = {**ONE_PARTITION, "regular_items_batch_size": 4, "retryable_items_batch_size": 4}
    rig = make_rig(poller=poller, box={**RETRIES, "max_retries": 50})
    rig.carry(Receiver())
    for number in range(40):
        rig.insert(bucket=number % 4, event_key=str(number), errors_count=1)
    regular = rig.create(1)
    with rig.worker() as watcher:
        watcher.wait_for(lambda: regular[0] in watcher.delivered)


def test_the_buckets_of_a_partition_are_those_of_its_number_modulo_the_partitions(make_rig: MakeRig) -> None:
    rig = make_rig(bucket_size=10)
    assert [list(rig.box().partition(number, 4)) for number in range(4)] == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]


def paused_then_resumed(rig: Rig, tactic: str, *, skipped: bool) -> None:
    rig.carry(Receiver())
    rig.create(1)
    with servers_of(rig) as connected:
        connected.pauses.set(rig.box(), polling_enabled=False)
        with rig.worker(tactic=tactic) as watcher:
            watcher.listen(0.5)
            assert (watcher.polls == []) is skipped
            connected.pauses.set(rig.box(), polling_enabled=True)
            watcher.wait_for_settled(1)


def test_tactic_default(make_rig: MakeRig, spy: Spy) -> None:
    rig = make_rig(poller={"tactic": "default", "max_queue_size": 5}, processor={"brpop_delay": 0.2})
    gate = Gate()
    rig.carry(gate)
    rig.create(*range(4))
    with rig.worker(processor_threads=1) as watcher:
        assert gate.entered.wait(30)
        busy(spy, length=10)
        rig.create(*range(4))
        watcher.wait_for(lambda: ("redis_queue_size", "skip") in watcher.throttles)
        gate.open()
        watcher.wait_for_settled(8)


def test_tactic_low_priority(make_rig: MakeRig) -> None:
    rig = make_rig(poller={"tactic": "low-priority", "min_queue_size": 2})
    rig.carry(Receiver())
    rig.create(*range(4))
    watcher = rig.deliver(4)
    assert watcher.throttles[0] == ("redis_queue_min_size", "throttle")


def test_tactic_aggressive(make_rig: MakeRig, spy: Spy) -> None:
    rig, gate = make_rig(poller={"tactic": "aggressive", "max_queue_size": 5}), Gate()
    rig.carry(gate)
    rig.create(*range(4))
    with rig.worker(processor_threads=1) as watcher:
        assert gate.entered.wait(30)
        busy(spy, length=10)
        rig.create(*range(4))
        watcher.wait_for(lambda: ("redis_queue_size", "skip") in watcher.throttles)
        gate.open()
        watcher.wait_for_settled(8)
        assert {throttler for throttler, _ in watcher.throttles} == {"redis_queue_size"}


@pytest.mark.parametrize("tactic", ["default", "low-priority", "aggressive"])
def test_a_paused_box_is_skipped_by_every_tactic_but_noop(make_rig: MakeRig, tactic: str) -> None:
    paused_then_resumed(make_rig(), tactic, skipped=True)


def test_tactic_noop(make_rig: MakeRig, spy: Spy) -> None:
    rig, gate = make_rig(poller={"tactic": "noop", "max_queue_size": 1}), Gate()
    rig.carry(gate)
    rig.create(*range(4))
    with rig.worker(processor_threads=1) as watcher:
        assert gate.entered.wait(30)
        before = len(watcher.polls)
        busy(spy, length=10)
        watcher.wait_for(lambda: len(watcher.polls) > before + 2)
        gate.open()
        watcher.wait_for_settled(4)
    assert watcher.throttles == []


def test_a_backlog_is_drained_at_full_speed_whatever_the_rate_limit(make_rig: MakeRig) -> None:
    poller: dict[str, Any] = {"tactic": "default", "rate_limit": 1, "rate_interval": 3600, "concurrency": 1}
    rig = make_rig(poller={**poller, "regular_items_batch_size": 4})
    rig.carry(Receiver())
    rig.create(*range(400))
    rig.deliver(400)
    assert set(rig.statuses()) == {Status.DELIVERED}


def test_an_idle_box_is_polled_not_at_all_and_only_checked(make_rig: MakeRig) -> None:
    rig = make_rig(poller={"tactic": "default"}, wakeup="redis")
    rig.carry(Receiver())
    with rig.worker() as watcher:
        watcher.listen(1.5)
        assert watcher.polls == []
        ids = rig.create(1)
        eventually(lambda: watcher.delivered == ids)
    assert [name for name, _, _ in watcher.polls if name != BOX] == []
