"""Retention: what a pass deletes, how it goes through time, and when it stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.leases import MemoryLeases
from boxengine.adapters.memory.store import LOOKED_AT, MemoryStore
from boxengine.domain.box import Box, BoxType, Storage
from boxengine.domain.box import Retention as Policy
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.engine.observation import NullObserver
from boxengine.engine.retention import INTERVAL, LEASE_TTL, LOOKS, TURN_LIMIT, Retention
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.rounds import SOON
from boxengine.errors import BoxError, StoreUnavailable
from boxengine.ports import Duty, LeaseName, Partitions, Turnover
from boxengine.ports.events import Deleted, Event, OutageBegan, OutageEnded

POLICY = Policy(
    delivered=timedelta(days=1), others=timedelta(days=2), batch_size=2, pause=timedelta(0), window=timedelta(hours=1)
)
BOX = Box(name="order_item", type=BoxType.OUTBOX, table="order_items", retention=POLICY)
LOG_BOX = replace(BOX, storage=Storage.LOG)
OTHER_BOX = replace(BOX, name="other_item", table="other_items")
LEASE = LeaseName(Duty.RETENTION, "order_item")


class CountingStore(MemoryStore):
    """Counts the looks, and lets a test act between two of them."""

    looks = 0

    def delete_finished(
        self, box: Box, statuses: Sequence[int], *, created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        self.looks += 1
        found = super().delete_finished(
            box, statuses, created_from=created_from, created_before=created_before, limit=limit
        )
        self.after_a_look()
        return found

    def after_a_look(self) -> None:
        """Nothing, unless a test says otherwise."""


class Watching(NullObserver):
    """Keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def see(self, event: Event) -> None:
        self.seen.append(event)


class Bench:
    def __init__(self) -> None:
        self.observer = Watching()
        self.clock = ManualClock()
        self.store = CountingStore(self.clock)
        self.leases = MemoryLeases(clock=self.clock)
        self.retention = self.worker("me")

    def worker(self, token: str, partitions: Partitions | None = None, *, boxes: Sequence[Box] = (BOX,)) -> Retention:
        observer = self.observer
        outages = Outages(observer=observer, error_tracker=lambda *_, **__: None, clock=self.clock)
        return Retention(
            boxes,
            store=self.store,
            leases=self.leases,
            outages=outages,
            observer=observer,
            clock=self.clock,
            token=token,
            partitions=partitions,
        )

    def insert(self, status: Status, *, hours: float) -> ItemId:
        created_at = self.clock.now() - timedelta(hours=hours)
        return self.store.insert(BOX, event_key="k", status=status, created_at=created_at)

    def left(self) -> list[int]:
        return [row.id for row in self.store.rows(BOX)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_is_old_is_decided_by_the_databases_clock(bench: Bench) -> None:
    bench.insert(Status.FAILED, hours=1)
    bench.clock.advance(timedelta(days=30))  # the worker's alone
    bench.store.now = lambda: bench.clock.now() - timedelta(days=30)  # type: ignore[method-assign]
    assert bench.retention.clean_up(BOX) == 0
    assert len(bench.left()) == 1


def test_each_status_goes_after_its_own_period_and_pending_rows_never_go(bench: Bench) -> None:
    for hours in (100, 30, 3):
        for status in Status:
            bench.insert(status, hours=hours)
    assert bench.retention.clean_up(BOX) == 4
    kept = {(row.status, (bench.clock.now() - row.created_at) // timedelta(hours=1)) for row in bench.store.rows(BOX)}
    pending, failed, delivered, discarded = map(int, Status)
    assert kept == {
        *((pending, hours) for hours in (100, 30, 3)),
        *((status, hours) for status in (failed, discarded) for hours in (30, 3)),
        (delivered, 3),
    }


def test_what_has_failed_lately_stays_however_long_it_had_waited_and_keeps_no_older_failure(bench: Bench) -> None:
    now = bench.clock.now()
    late, early = (
        bench.store.insert(
            BOX,
            event_key="k",
            status=Status.FAILED,
            created_at=now - timedelta(days=40),
            processed_at=now - timedelta(hours=hours),
        )
        for hours in (1, 60)
    )
    assert bench.retention.clean_up(BOX) == 1
    assert bench.left() == [late]
    bench.clock.advance(timedelta(hours=48))
    assert bench.retention.clean_up(BOX) == 1, f"{late} was kept for two days, as {early} was"


def test_time_in_which_nothing_was_created_is_passed_over(bench: Bench) -> None:
    for hours in (10_000, 9_999.5, 30, 29.5):
        bench.insert(Status.DELIVERED, hours=hours)
    assert bench.retention.clean_up(BOX) == 4
    assert bench.store.looks <= 6


def test_a_second_worker_leaves_the_box_to_the_first(bench: Bench) -> None:
    bench.insert(Status.DELIVERED, hours=30)
    assert bench.leases.acquire(LEASE, "another", ttl=LEASE_TTL)
    assert bench.retention.clean_up(BOX) is None
    bench.leases.release(LEASE, "another")
    assert bench.retention.clean_up(BOX) == 1


def test_a_worker_whose_lease_another_has_taken_stops_after_the_statement_under_way(bench: Bench) -> None:
    for hours in range(30, 60):
        bench.insert(Status.DELIVERED, hours=90 - hours)

    def lose() -> None:
        bench.leases.release(LEASE, "me")
        bench.leases.acquire(LEASE, "another", ttl=LEASE_TTL)

    bench.store.after_a_look = lose  # type: ignore[method-assign]
    deleted = bench.retention.clean_up(BOX)
    assert deleted == 30 - len(bench.left())
    assert bench.store.looks == 1
    assert not bench.leases.acquire(LEASE, "me", ttl=LEASE_TTL)


class EndlessPartitions:
    """There is always one more to empty, which takes a minute."""

    def __init__(self, clock: ManualClock, leases: MemoryLeases) -> None:
        self._clock = clock
        self._leases = leases
        self.emptied = 0
        self.seized = False

    def turn_over(self, box: Box, *, created_before: datetime, go_on: Callable[[], bool] = lambda: True) -> Turnover:
        while go_on() and self.emptied < 100:
            self._clock.advance(LEASE_TTL - timedelta(seconds=1))
            self.seized = self.seized or self._leases.acquire(LEASE, "another", ttl=LEASE_TTL)
            self._clock.advance(timedelta(seconds=1))
            self.emptied += 1
        return Turnover()


class Turning:
    """Partitions whose next pass ends like this."""

    def __init__(self, done: Turnover | BoxError) -> None:
        self.done = done
        self.created_before: datetime | None = None

    def turn_over(self, box: Box, *, created_before: datetime, go_on: Callable[[], bool] = lambda: True) -> Turnover:
        self.created_before = created_before
        if isinstance(self.done, BoxError):
            raise self.done
        return self.done


def test_rows_of_a_log_that_went_with_partitions_are_counted_beside_those_of_the_table(bench: Bench) -> None:
    turning = Turning(Turnover(deleted=40))
    bench.insert(Status.DELIVERED, hours=30)
    assert bench.worker("me", turning).clean_up(LOG_BOX) == 41
    assert turning.created_before == bench.clock.now() - timedelta(days=1)
    assert Deleted(LOG_BOX, rows=40, seconds=0.0) in bench.observer.seen
    assert bench.worker("me", turning).clean_up(BOX) == 0


@pytest.mark.parametrize(
    "trouble", [Turnover(trouble="no partition for what is written now"), StoreUnavailable("no partition")]
)
def test_trouble_with_partitions_is_told_once_and_rows_are_deleted_all_the_same(
    bench: Bench, trouble: Turnover | BoxError
) -> None:
    turning = Turning(trouble)
    retention = bench.worker("me", turning)
    for _ in range(2):
        bench.insert(Status.DELIVERED, hours=30)
        assert retention.clean_up(LOG_BOX) == 1
    turning.done = Turnover()
    retention.clean_up(LOG_BOX)
    began, ended = (each for each in bench.observer.seen if isinstance(each, OutageBegan | OutageEnded))
    assert isinstance(began, OutageBegan)
    assert began.what == "partitions of order_item"
    assert "no partition" in began.reason
    assert isinstance(ended, OutageEnded)


def test_stop_ends_a_pass_after_the_statement_under_way(bench: Bench) -> None:
    for hours in range(30, 60):
        bench.insert(Status.DELIVERED, hours=90 - hours)
    bench.store.after_a_look = bench.retention.stop  # type: ignore[method-assign]
    bench.retention.clean_up(BOX)
    assert bench.store.looks == 1
    assert bench.left()


def test_stop_ends_a_turn_without_a_question_about_the_boxes_that_are_left(bench: Bench) -> None:
    bench.insert(Status.DELIVERED, hours=30)
    retention = bench.worker("me", boxes=[BOX, OTHER_BOX])
    bench.store.after_a_look = retention.stop  # type: ignore[method-assign]
    asked, oldest = [], bench.store.oldest_finished

    def ask(box: Box, statuses: Sequence[int]) -> datetime | None:
        asked.append(box.name)
        return oldest(box, statuses)

    bench.store.oldest_finished = ask  # type: ignore[method-assign]
    retention.turn()
    assert set(asked) == {BOX.name}


def test_a_turn_ends_in_time_for_health_and_the_next_begins_with_the_boxes_behind(bench: Bench) -> None:
    for _ in range(100):
        bench.insert(Status.DELIVERED, hours=30)
    bench.store.insert(
        OTHER_BOX, event_key="k", status=Status.DELIVERED, created_at=bench.clock.now() - timedelta(hours=30)
    )
    retention = bench.worker("me", boxes=[BOX, OTHER_BOX])
    bench.store.after_a_look = lambda: bench.clock.advance(timedelta(minutes=1))  # type: ignore[method-assign]
    began = bench.clock.now()
    assert retention.turn() == SOON
    assert bench.clock.now() - began == TURN_LIMIT
    assert len(bench.left()) == 40
    assert len(bench.store.rows(OTHER_BOX)) == 1
    assert retention.turn() == INTERVAL
    assert (bench.left(), list(bench.store.rows(OTHER_BOX))) == ([], [])
    deleted = [event.box.name for event in bench.observer.seen if isinstance(event, Deleted)]
    assert deleted[30] == OTHER_BOX.name


def test_partitions_are_emptied_no_longer_than_a_turn_may_last_and_under_the_lease(bench: Bench) -> None:
    partitions = EndlessPartitions(bench.clock, bench.leases)
    retention = bench.worker("me", partitions, boxes=[LOG_BOX, OTHER_BOX])
    assert retention.turn() == SOON
    assert partitions.emptied == TURN_LIMIT // LEASE_TTL
    assert not partitions.seized


def test_what_is_cleaned_up_outside_of_turns_is_cleaned_up_to_the_end(bench: Bench) -> None:
    bench.retention.turn()
    for _ in range(100):
        bench.insert(Status.DELIVERED, hours=30)
    bench.store.after_a_look = lambda: bench.clock.advance(timedelta(minutes=1))  # type: ignore[method-assign]
    assert bench.retention.clean_up(BOX) == 100


def test_old_rows_behind_a_young_one_are_deleted_whatever_their_status(bench: Bench) -> None:
    young = bench.insert(Status.DELIVERED, hours=1)
    for status in (Status.DELIVERED, Status.FAILED, Status.DISCARDED):
        bench.insert(status, hours=100)
    pending = bench.insert(Status.PENDING, hours=100)
    bench.retention.clean_up(BOX)
    assert bench.left() == [young, pending]


def test_a_pass_looks_at_a_part_of_a_large_table_and_the_next_goes_on_from_there(bench: Bench) -> None:
    young = [bench.insert(Status.DELIVERED, hours=1) for _ in range(LOOKED_AT * LOOKS)]
    old = bench.insert(Status.DELIVERED, hours=100)
    assert bench.retention.clean_up(BOX) == 0
    assert bench.retention.clean_up(BOX) == 1
    later = bench.insert(Status.FAILED, hours=100)
    bench.store.update(BOX, young[0], created_at=bench.clock.now() - timedelta(hours=100))
    assert sum(bench.retention.clean_up(BOX) or 0 for _ in range(3)) == 2  # the round begins anew
    assert not {old, later, young[0]} & set(bench.left())
