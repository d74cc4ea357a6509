"""The poller's agenda."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.domain.box import Backoff, StrictOrder
from boxengine.engine.polling.schedule import NEVER, Schedule
from boxengine.engine.polling.tasks import Announce, Check, Look, Task
from tests.eventually import eventually
from tests.unit.engine.bench import make_box

BOX = make_box(bucket_size=6)


class Agenda:
    """A schedule of one box in three partitions, over a clock of its own."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.schedule = Schedule([BOX], partitions=3, clock=self.clock)
        self.check = Check(BOX)
        assert self.take() == self.check
        self.schedule.done(self.check, next_in=100.0)

    def take(self) -> Task | None:
        return self.schedule.take(wait=0.0)

    def look(self) -> Look:
        task = self.take()
        assert isinstance(task, Look)
        return task

    def announcement(self) -> Announce:
        task = self.take()
        assert isinstance(task, Announce)
        return task

    def advance(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


@pytest.fixture
def agenda() -> Agenda:
    return Agenda()


def test_at_the_start_each_box_is_checked_and_no_partition_polled() -> None:
    other = make_box(name="other_outbox_item")
    schedule = Schedule([BOX, other], partitions=3, clock=ManualClock())
    assert {schedule.take(wait=0.0), schedule.take(wait=0.0)} == {Check(BOX), Check(other)}
    assert schedule.take(wait=0.0) is None


def test_a_box_has_no_more_partitions_than_buckets() -> None:
    small = make_box(bucket_size=2)
    assert Schedule([small], partitions=6, clock=ManualClock()).partitions(small) == 2


def test_a_wake_up_makes_the_partitions_of_its_buckets_due(agenda: Agenda) -> None:
    agenda.schedule.wake(BOX.name, [1, 4])
    assert agenda.take() == Look(BOX, 1)
    assert agenda.take() is None


def test_a_wake_up_without_buckets_makes_all_partitions_due(agenda: Agenda) -> None:
    agenda.schedule.wake(BOX.name)
    assert {agenda.take() for _ in range(3)} == {Look(BOX, number) for number in range(3)}


def test_a_wake_up_of_an_unknown_box_is_ignored(agenda: Agenda) -> None:
    agenda.schedule.wake("somebody's else")
    assert agenda.take() is None


def test_a_wake_up_for_later_waits_and_does_not_put_off_an_earlier_one(agenda: Agenda) -> None:
    agenda.schedule.wake(BOX.name, [0], within=10.0)
    agenda.schedule.wake(BOX.name, [0], within=20.0)
    agenda.advance(9.0)
    assert agenda.take() is None
    agenda.advance(1.0)
    assert agenda.take() == Look(BOX, 0)


def test_a_task_under_way_is_given_to_nobody_else(agenda: Agenda) -> None:
    agenda.schedule.wake(BOX.name, [0])
    assert agenda.take() is not None
    agenda.schedule.wake(BOX.name, [0])
    assert agenda.take() is None


def test_a_task_woken_while_under_way_is_due_again_when_it_is_done(agenda: Agenda) -> None:
    agenda.schedule.wake(BOX.name, [0])
    task = agenda.take()
    assert task is not None
    agenda.schedule.wake(BOX.name, [0])
    agenda.schedule.done(task, next_in=NEVER)
    assert agenda.take() == task


def test_even_a_wake_up_waits_for_the_shortest_gap(agenda: Agenda) -> None:
    agenda.schedule.wake(BOX.name, [0])
    task = agenda.take()
    assert task is not None
    agenda.schedule.wake(BOX.name, [0])
    agenda.schedule.done(task, not_before=2.0)
    agenda.advance(1.0)
    assert agenda.take() is None
    agenda.advance(1.0)
    assert agenda.take() == task


def test_a_task_that_is_done_comes_again_by_itself(agenda: Agenda) -> None:
    agenda.advance(100.0)
    assert agenda.take() == agenda.check


def test_a_look_is_prompted_if_a_wake_up_asked_for_it(agenda: Agenda) -> None:
    agenda.schedule.wake(BOX.name, [0])
    task = agenda.look()
    assert task.prompted
    agenda.schedule.done(task, next_in=1.0)
    agenda.advance(1.0)
    assert not agenda.look().prompted


def test_a_wake_up_during_a_poll_prompts_the_next_one(agenda: Agenda) -> None:
    agenda.schedule.wake(BOX.name, [0], prompt=False)
    task = agenda.look()
    assert not task.prompted
    agenda.schedule.wake(BOX.name, [0])
    agenda.schedule.done(task)
    assert agenda.look().prompted


def test_a_check_that_finds_rows_does_not_prompt(agenda: Agenda) -> None:
    agenda.schedule.wake(BOX.name, [0], prompt=False)
    assert not agenda.look().prompted


def test_a_check_asked_for_comes_before_its_time_and_once(agenda: Agenda) -> None:
    agenda.schedule.check(BOX.name, within=0.2)
    agenda.schedule.check(BOX.name, within=5.0)
    assert agenda.take() is None
    agenda.advance(0.2)
    assert agenda.take() == agenda.check
    agenda.schedule.check(BOX.name, within=0.0)
    agenda.schedule.done(agenda.check, next_in=100.0)
    assert agenda.take() == agenda.check
    agenda.schedule.done(agenda.check, next_in=100.0)
    assert agenda.take() is None


def test_stopping_lets_a_waiting_thread_go_with_nothing(agenda: Agenda) -> None:
    answers: list[Task | None] = []
    waiting = threading.Thread(target=lambda: answers.append(agenda.schedule.take(wait=1000.0)))
    waiting.start()
    agenda.schedule.stop()
    waiting.join(10)
    assert answers == [None]
    agenda.schedule.wake(BOX.name)
    assert agenda.take() is None


def test_a_named_bucket_makes_an_announcement_due_and_is_handed_out_once(agenda: Agenda) -> None:
    agenda.schedule.announce(BOX.name, [1, 4])
    task = agenda.announcement()
    assert (task, task.buckets) == (Announce(BOX, 1), frozenset({1, 4}))
    agenda.schedule.done(task)
    assert agenda.take() is None


def test_announcements_can_be_taken_by_themselves(agenda: Agenda) -> None:
    agenda.schedule.wake(BOX.name, [0])
    assert agenda.schedule.take_announcement() is None
    agenda.schedule.announce(BOX.name, [1])
    agenda.schedule.announce(BOX.name, [2], within=1.0)
    task = agenda.schedule.take_announcement()
    assert task is not None
    assert (task, task.buckets) == (Announce(BOX, 1), frozenset({1}))
    assert agenda.schedule.take_announcement() is None


def test_a_bucket_that_is_named_while_its_announcement_is_under_way_is_for_the_next(agenda: Agenda) -> None:
    agenda.schedule.announce(BOX.name, [1])
    task = agenda.announcement()
    agenda.schedule.announce(BOX.name, [4])
    assert agenda.take() is None
    agenda.schedule.done(task)
    assert agenda.announcement().buckets == {4}


def test_a_look_at_a_partition_and_an_announcement_of_it_are_two_things(agenda: Agenda) -> None:
    agenda.schedule.wake(BOX.name, [1], within=10.0, prompt=False)
    agenda.schedule.announce(BOX.name, [1])
    agenda.schedule.done(agenda.announcement())
    agenda.advance(10.0)
    assert agenda.take() == Look(BOX, 1)


def test_buckets_that_the_box_does_not_have_are_not_announced(agenda: Agenda) -> None:
    agenda.schedule.announce(BOX.name, [6, 4_000_000_000])
    agenda.schedule.announce("somebody's else", [1])
    assert agenda.take() is None


def test_under_strict_order_a_bucket_that_held_nothing_due_is_looked_at_until_it_does() -> None:
    box = make_box(bucket_size=6, strict_order=StrictOrder.KEY, backoff=Backoff())
    schedule = Schedule([box], partitions=3, clock=ManualClock())
    schedule.take(wait=0.0)  # its check
    schedule.found(box, due=(), nothing=[1, 2])
    schedule.announce(box.name, [1, 4])
    tasks = {schedule.take(wait=0.0), schedule.take(wait=0.0)}
    assert tasks == {Look(box, 1), Announce(box, 1)}
    assert {task.buckets for task in tasks if isinstance(task, Announce)} == {frozenset({4})}
    for task in tasks:
        assert task is not None
        schedule.done(task)
    schedule.found(box, due=[1], nothing=())
    schedule.announce(box.name, [1])
    assert schedule.take(wait=0.0) == Announce(box, 1)


def test_without_strict_order_every_named_bucket_is_announced(agenda: Agenda) -> None:
    agenda.schedule.found(BOX, due=(), nothing=[1])
    agenda.schedule.announce(BOX.name, [1])
    assert agenda.announcement().buckets == {1}


def test_a_box_is_known_by_its_name_whatever_its_partition_strategy_is() -> None:
    @dataclass
    class Spread:
        """Not hashable, as a dataclass is that may change."""

        width: int = 1

        def __call__(self, key: object, bucket_size: int) -> int:
            return self.width % bucket_size

    odd = replace(BOX, partition_strategy=Spread())
    schedule = Schedule([odd], partitions=3, clock=ManualClock())
    task = schedule.take(wait=0.0)
    assert task == Check(BOX)
    assert task is not None
    assert task.box is odd


# ── who is woken ─────────────────────────────────────────────────────────────────────────────────────

LONG = 3600.0


def test_no_thread_is_woken_for_what_the_caller_takes_next(agenda: Agenda, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that wakes for nothing competes with the one that delivers: 0.1 to 0.3 ms for a lone item."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(agenda.schedule.take, wait=LONG)
        assert eventually(lambda: agenda.schedule._awaited < NEVER)
        with monkeypatch.context() as patch:
            woken: list[None] = []
            patch.setattr(agenda.schedule._changed, "notify_all", lambda: woken.append(None))
            agenda.schedule.announce(BOX.name, [1], quietly=True)
            task = agenda.schedule.take_announcement()
            assert task is not None
            assert task.buckets == {1}
            agenda.schedule.done(task)
            agenda.schedule.rouse()
        agenda.schedule.stop()
        assert waiting.result(timeout=10) is None
        assert not woken


def test_what_nobody_has_taken_is_for_the_threads_that_wait(agenda: Agenda) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(agenda.schedule.take, wait=LONG)
        assert eventually(lambda: agenda.schedule._awaited < NEVER)
        agenda.schedule.announce(BOX.name, [1], quietly=True)
        agenda.schedule.rouse()
        task = waiting.result(timeout=10)
        assert isinstance(task, Announce)
        assert task.buckets == {1}


@pytest.mark.parametrize("ask", ["wake", "announce", "check", "done"])
def test_a_thread_that_waits_for_a_later_task_hears_of_an_earlier_one(agenda: Agenda, ask: str) -> None:
    schedule = agenda.schedule
    schedule.wake(BOX.name, [2])
    look = agenda.look()
    asks: dict[str, Callable[[], object]] = {
        "wake": lambda: schedule.wake(BOX.name, [1]),
        "announce": lambda: schedule.announce(BOX.name, [1]),
        "check": lambda: schedule.check(BOX.name, within=0.0),
        "done": lambda: schedule.done(look, next_in=0.0),
    }
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(schedule.take, wait=LONG) for _ in range(2)]
        assert eventually(lambda: schedule._awaited < NEVER)
        asks[ask]()
        assert eventually(lambda: any(each.done() for each in waiting))
        schedule.stop()
        assert sum(each.result(timeout=10) is not None for each in waiting) == 1
