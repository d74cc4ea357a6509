"""Polling: how much a poll takes, and what each tactic lets put it off."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import boxengine
from boxengine.app.assembly import ground
from boxengine.domain.item import Status
from boxengine.domain.outcome import Failure
from boxengine.engine.timing import TIMING
from tests.eventually import eventually
from tests.integration.engine.receivers import Gate, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.watcher import Watcher
from tests.parity.harness import QUEUE, RETRIES, MakeRig, Spy, servers_of

OTHER = "other_outbox_item"
ONE_PARTITION = {"tactic": "aggressive", "concurrency": 1}


LONG_AGO = 1_700_000_000


@pytest.fixture(autouse=True)
def asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue's length is asked for at each poll: an "empty" reading of a moment ago may let one poll through."""
    monkeypatch.setattr(ground, "TIMING", replace(TIMING, empty=0.0))


def busy(spy: Spy, *, length: int, bucket: int = 99, pushed_at: int = LONG_AGO) -> None:
    """A queue of so many jobs of a bucket that nobody works on."""
    for _ in range(length):
        spy.client.lpush(QUEUE, f"{bucket}:{pushed_at}:1")


def test_poll_defaults(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "plain.yml").write_text("outbox_items: {order_outbox_item: }")
    poller = boxengine.load(tmp_path / "plain.yml").resolved.settings.poller
    assert (poller.concurrency, poller.threads_count, poller.general_timeout) == (6, 1, timedelta(seconds=60))
    assert (poller.regular_items_batch_size, poller.retryable_items_batch_size) == (200, 100)
    assert (poller.tactic, poller.rate_limit, poller.rate_interval) == ("default", 60, timedelta(seconds=60))
    assert (poller.min_queue_size, poller.max_queue_size) == (10, 100)
    assert (poller.min_queue_timelag, poller.queue_delay) == (timedelta(seconds=5), timedelta(seconds=0.1))


def test_a_poll_takes_the_lowest_ids(make_rig: MakeRig) -> None:
    rig = make_rig(bucket_size=1, poller={**ONE_PARTITION, "regular_items_batch_size": 4})
    ids = rig.create(*range(20))
    with servers_of(rig) as connected:
        assert [row.id for row in connected.store.poll(rig.box(), [0], 4)] == ids[:4]


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


def skips_while_the_queue_is_long(rig: Rig, spy: Spy) -> Watcher:
    """Ends when all is delivered."""
    gate = Gate()
    rig.carry(gate)
    rig.create(0)
    busy(spy, length=2)  # enough for low-priority
    with rig.worker(processor_threads=1) as watcher:
        assert gate.entered.wait(30)
        busy(spy, length=10)
        # Of another bucket than the one in work: its holder goes on with that by itself, so nobody asks to poll it.
        rig.create(1)
        watcher.wait_for(lambda: ("redis_queue_size", "skip") in watcher.throttles)
        gate.open()
        watcher.wait_for_settled(2)
    return watcher


SMALL_QUEUE = {"min_queue_size": 2, "max_queue_size": 5, "min_queue_timelag": 0}


@pytest.mark.parametrize("tactic", ["default", "low-priority", "aggressive"])
def test_a_queue_longer_than_the_maximum_is_left_alone_by_every_tactic_but_noop(
    make_rig: MakeRig, spy: Spy, tactic: str
) -> None:
    skips_while_the_queue_is_long(make_rig(poller={"tactic": tactic, **SMALL_QUEUE}), spy)


RATE = {"rate_limit": 2, "rate_interval": 3600}


def is_rate_limited(rig: Rig) -> Watcher:
    """A box whose polls find nothing but an item that fails time and again; the other box is not concerned."""
    rig.carry(Receiver(lambda _item: Failure("no")))
    rig.carry(Receiver(), box=OTHER)
    rig.create(1)
    rig.create(*range(40), box=OTHER)
    with rig.worker() as watcher:
        watcher.wait_for(lambda: ("rate_limited", "throttle") in watcher.throttles and len(watcher.delivered) == 40)
    return watcher


RETRIED = {"max_retries": 50, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.05}


def test_tactic_default(make_rig: MakeRig) -> None:
    """Paused box and long queue: above. What is left is the rate limit per box."""
    rig = make_rig(outbox_items={BOX: RETRIED, OTHER: {}}, poller={"tactic": "default", **RATE}, wakeup="redis")
    watcher = is_rate_limited(rig)
    assert {throttler for throttler, _ in watcher.throttles} == {"rate_limited"}


def test_tactic_low_priority_waits_while_the_queue_is_short(make_rig: MakeRig) -> None:
    rig = make_rig(poller={"tactic": "low-priority", "min_queue_size": 2})
    rig.carry(Receiver())
    rig.create(*range(4))
    watcher = rig.deliver(4)
    assert watcher.throttles[0] == ("redis_queue_min_size", "throttle")


def test_tactic_low_priority_skips_while_the_oldest_job_is_young(make_rig: MakeRig, spy: Spy) -> None:
    rig = make_rig(poller={"tactic": "low-priority", "min_queue_size": 1, "min_queue_timelag": 3600}, bucket_size=8)
    gate = Gate()
    rig.carry(gate)
    (first,) = rig.create(1)
    spy.client.lpush(QUEUE, f"1:{LONG_AGO}:{first}")
    with rig.worker(processor_threads=1) as watcher:
        assert gate.entered.wait(30)
        spy.client.lpush(QUEUE, f"7:{int(time.time())}:1")
        rig.create(2)
        watcher.wait_for(lambda: ("redis_queue_time_lag", "skip") in watcher.throttles)
        # The poller may have queued the first item's bucket beside the job that it did not put there itself.
        queued = {element.partition(b":")[0] for element in spy.elements()}
        assert b"7" in queued
        assert b"2" not in queued
        gate.open()
        watcher.wait_for_settled(2)


def test_tactic_low_priority_has_the_rate_limit_too(make_rig: MakeRig) -> None:
    poller = {"tactic": "low-priority", "min_queue_size": 0, "min_queue_timelag": 0, **RATE}
    is_rate_limited(make_rig(outbox_items={BOX: RETRIED, OTHER: {}}, poller=poller, wakeup="redis"))


def test_tactic_aggressive(make_rig: MakeRig, spy: Spy) -> None:
    watcher = skips_while_the_queue_is_long(make_rig(poller={"tactic": "aggressive", **SMALL_QUEUE}), spy)
    assert {throttler for throttler, _ in watcher.throttles} == {"redis_queue_size"}


@pytest.mark.parametrize("tactic", ["default", "low-priority", "aggressive", "noop"])
def test_a_paused_box_is_skipped_by_every_tactic_but_noop(make_rig: MakeRig, tactic: str) -> None:
    rig = make_rig(outbox_items={BOX: {}, OTHER: {}})
    for name in (BOX, OTHER):
        rig.carry(Receiver(), box=name)
        rig.create(*range(4), box=name)
    with servers_of(rig) as connected:
        connected.pauses.set(rig.box(), polling_enabled=False)
    with rig.worker(tactic=tactic) as watcher:
        watcher.wait_for(lambda: len(watcher.delivered) >= 4)
        rig.create(*range(4), box=OTHER)
        watcher.wait_for(lambda: watcher.boxes.count(OTHER) > 0 and len(watcher.delivered) >= 8)
    assert (BOX in {name for name, _, _ in watcher.polls}) is (tactic == "noop")


def test_tactic_noop(make_rig: MakeRig, spy: Spy) -> None:
    rig, gate = make_rig(poller={"tactic": "noop", "min_queue_size": 1, "max_queue_size": 1}), Gate()
    rig.carry(gate)
    rig.create(0)
    with rig.worker(processor_threads=1) as watcher:
        assert gate.entered.wait(30)
        busy(spy, length=10)
        before = len(watcher.polls)
        # A row of a bucket that nobody has asks for a poll, which any other tactic would put off.
        rig.create(1)
        watcher.wait_for(lambda: len(watcher.polls) > before)
        gate.open()
        watcher.wait_for_settled(2)
    assert watcher.throttles == []


def test_a_backlog_is_drained_at_full_speed_whatever_the_rate_limit(make_rig: MakeRig) -> None:
    poller: dict[str, Any] = {"tactic": "default", "rate_limit": 1, "rate_interval": 3600, "concurrency": 1}
    rig = make_rig(poller={**poller, "regular_items_batch_size": 4})
    rig.carry(Receiver())
    rig.create(*range(400))
    rig.deliver(400)
    assert set(rig.statuses()) == {Status.DELIVERED}


@pytest.mark.parametrize("wakeup", ["notify", "redis"])
def test_a_commit_wakes_the_poller(make_rig: MakeRig, wakeup: str) -> None:
    rig = make_rig(poller={"tactic": "default", "rate_limit": 1, "rate_interval": 600}, wakeup=wakeup)
    rig.carry(Receiver())
    with rig.worker() as watcher:

        def heard() -> bool:  # the listener may not be connected yet
            rig.create(1)
            watcher.listen(0.5)
            return bool(watcher.delivered)

        eventually(heard)
        watcher.wait_for_settled(len(rig.rows()))


def test_an_idle_box_is_polled_not_at_all_and_only_checked(make_rig: MakeRig) -> None:
    rig = make_rig(poller={"tactic": "default"}, wakeup="redis")
    rig.carry(Receiver())
    with rig.worker() as watcher:
        watcher.listen(1.5)
        assert watcher.polls == []
        ids = rig.create(1)
        eventually(lambda: watcher.delivered == ids)


def test_an_item_whose_time_comes_is_polled_soon(make_rig: MakeRig) -> None:
    rig = make_rig(poller={"tactic": "default", "rate_limit": 1, "rate_interval": 600})
    rig.carry(Receiver())
    (later,) = rig.create(1, available_at=datetime.now(UTC) + timedelta(seconds=1))
    rig.deliver(1)
    assert rig.row(later).processed_at >= rig.row(later).available_at


def test_polling_auto_disabled(make_rig: MakeRig) -> None:
    rig = make_rig(polling_auto_disabled=True)
    rig.carry(Receiver())
    rig.create(1)
    with servers_of(rig) as connected, rig.worker() as watcher:
        watcher.listen(0.5)
        assert watcher.polls == []
        connected.pauses.set(rig.box(), polling_enabled=True)
        watcher.wait_for_settled(1)


def test_poll_middlewares_stand_around_each_poll(rig: Rig) -> None:
    polled: list[Any] = []

    def around(task: Any, call_next: Callable[[], Any]) -> Any:
        polled.append((task.box.name, task.partition))
        return call_next()

    rig.carry(Receiver())
    rig.surround(poll=[around])
    rig.create(3)
    rig.deliver(1)
    assert (BOX, 3) in polled
