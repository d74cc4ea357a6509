"""When bounds are used, how far they move, and what makes them be forgotten; on PostgreSQL in ``tests/integration``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from boxengine.adapters.memory.clock import ManualClock
from boxengine.domain.bounds import RENAMED, Bounds, Pace, Range, Seen

PACE = Pace(items=100, slow=1.0, parts=2, shortest=5.0, share=10.0, rarely=1000.0)
BUCKETS = range(4)


@dataclass
class FakeSight:
    """A box of which nothing is pending but what ``first`` says."""

    last: int = 50
    seconds: float = 0.5
    running: Collection[str] = ()
    first: dict[int, int] = field(default_factory=dict)
    meanwhile: Callable[[], object] = lambda: None
    asked: list[Mapping[int, Range]] = field(default_factory=list)

    def last_drawn(self) -> int:
        return self.last

    def writers(self) -> Collection[str]:
        return self.running

    def look(self, ranges: Mapping[int, Range]) -> Seen:
        self.asked.append(ranges)
        self.meanwhile()
        found = {bucket: self.first[bucket] for bucket, each in ranges.items() if self._is_within(bucket, each)}
        return Seen(found, self.seconds)

    def _is_within(self, bucket: int, each: Range) -> bool:
        return bucket in self.first and each.after < self.first[bucket] <= each.up_to


def bounds_of(bounds: Bounds) -> list[int]:
    return [bounds.after(bucket) for bucket in BUCKETS]


def used(sight: FakeSight, clock: ManualClock | None = None) -> Bounds:
    """Bounds of a box whose walk is slow, moved up to the last id."""
    bounds = Bounds(BUCKETS, monotonic=(clock or ManualClock()).monotonic, pace=PACE)
    bounds.claimed(1)
    for _ in range(3):
        bounds.advance(sight)
    assert bounds_of(bounds) == [50, 50, 50, 50]
    return bounds


def test_nothing_is_asked_while_nothing_is_claimed() -> None:
    assert not Bounds(BUCKETS, monotonic=ManualClock().monotonic, pace=PACE).due


def test_a_lost_connection_has_no_idle_box_timed() -> None:
    bounds = Bounds(BUCKETS, monotonic=ManualClock().monotonic, pace=PACE)
    bounds.forget()
    assert not bounds.due
    bounds.claimed(1)
    assert bounds.due


def test_the_walk_is_timed_with_the_first_item_and_then_once_in_so_many() -> None:
    bounds, sight = Bounds(BUCKETS, monotonic=ManualClock().monotonic, pace=PACE), FakeSight(seconds=0.1)
    bounds.claimed(1)
    assert bounds.due
    bounds.advance(sight)
    assert [list(asked) for asked in sight.asked] == [[0, 2]]
    due = []
    for count in (99, 1):
        bounds.claimed(count)
        due.append(bounds.due)
    assert due == [False, True]
    assert bounds_of(bounds) == [0, 0, 0, 0]


def test_where_nothing_is_claimed_a_slow_look_makes_the_walk_be_timed_now_and_then() -> None:
    clock, sight = ManualClock(), FakeSight(seconds=0.1)
    bounds = Bounds(BUCKETS, monotonic=clock.monotonic, pace=PACE)
    due = []
    for seconds, since in ((0.9, 0.0), (1.0, 0.0), (0.9, 11.0), (1.0, 0.0), (1.0, 9.0)):
        clock.advance(timedelta(seconds=since))
        bounds.looked(seconds)
        due.append(bounds.due)
        if bounds.due:
            bounds.advance(sight)
    assert due == [False, True, False, True, False]
    assert len(sight.asked) == 2


def test_a_reader_that_is_farther_than_the_bound_stays_there() -> None:
    bounds = used(FakeSight())
    assert [bounds.after(0), bounds.after(0, 7), bounds.after(0, 70)] == [50, 50, 70]


def test_what_a_look_has_found_is_dropped_if_the_bounds_were_forgotten_meanwhile() -> None:
    sight = FakeSight()
    bounds = used(sight)
    sight.last = 80
    bounds.claimed(1)
    bounds.advance(sight)
    sight.meanwhile = bounds.forget
    bounds.advance(sight)
    assert bounds_of(bounds) == [0, 0, 0, 0]


def test_a_proposal_waits_for_the_writers_of_its_time_and_for_no_later_ones() -> None:
    sight = FakeSight()
    bounds = used(sight)
    sight.last, sight.running = 80, {"early"}
    bounds.claimed(1)
    bounds.advance(sight)
    sight.running = {"early", "late"}
    bounds.advance(sight)
    assert bounds.after(0) == 50
    sight.running = {"late"}
    bounds.advance(sight)
    assert bounds.after(0) == 80


def test_a_transaction_that_may_have_had_another_name_is_waited_for() -> None:
    sight = FakeSight()
    bounds = used(sight)
    sight.last, sight.running = 80, {"6/2"}
    bounds.claimed(1)
    bounds.advance(sight)
    sight.running = {RENAMED}
    bounds.advance(sight)
    assert bounds.after(0) == 50


def test_a_proposal_is_dropped_if_ids_are_set_back_before_it_is_adopted() -> None:
    sight = FakeSight()
    bounds = used(sight)
    sight.last = 80
    bounds.claimed(1)
    bounds.advance(sight)
    sight.last = 60
    bounds.advance(sight)
    assert bounds_of(bounds) == [0, 0, 0, 0]


def test_a_look_from_the_start_lowers_a_bound_and_tells_of_its_bucket() -> None:
    clock, sight = ManualClock(), FakeSight()
    bounds = used(sight, clock)
    sight.first = {0: 7}
    clock.advance(timedelta(seconds=5.0))
    assert set(bounds.advance(sight)) == {0}
    assert bounds_of(bounds) == [6, 50, 50, 50]


def test_looks_from_the_start_take_turns_and_pause_in_proportion_to_what_they_cost() -> None:
    clock, sight = ManualClock(), FakeSight(seconds=2.0)
    bounds = used(sight, clock)
    clock.advance(timedelta(seconds=5.0))
    del sight.asked[:]
    bounds.advance(sight)
    clock.advance(timedelta(seconds=19.0))
    assert not bounds.due
    clock.advance(timedelta(seconds=1.0))
    bounds.advance(sight)
    assert [list(asked) for asked in sight.asked] == [[0, 2], [1, 3]]


def test_bounds_are_given_up_once_the_walk_is_quick() -> None:
    clock, sight = ManualClock(), FakeSight()
    bounds = used(sight, clock)
    sight.seconds = 0.01
    for _ in range(2):
        clock.advance(timedelta(seconds=5.0))
        bounds.advance(sight)
    assert bounds_of(bounds) == [0, 0, 0, 0]
    assert not bounds.due
