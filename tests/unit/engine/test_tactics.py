"""Poll tactics: one test per row of the table, and of each throttler's edges (SEMANTICS 4)."""

from __future__ import annotations

import pytest

from boxengine.domain.box import Box
from boxengine.engine.polling.tactics import TACTICS, Tactic
from boxengine.engine.polling.throttlers import GO, Answer, Decision, Moment, Pace, Throttler
from boxengine.ports import QueueState
from tests.unit.engine.bench import make_box

BOX = make_box()
PACE = Pace(
    rate_limit=3, rate_interval=60.0, min_queue_size=10, max_queue_size=100, min_queue_timelag=5.0, queue_delay=0.1
)
UNIX_NOW = 1_700_000_000.0
OLD = int(UNIX_NOW) - 60


def moment(
    *, length: int = 50, oldest: int | None = OLD, paused: bool = False, prompted: bool = False, now: float = 0.0
) -> Moment:
    return Moment(
        box=BOX,
        prompted=prompted,
        now=now,
        unix_now=UNIX_NOW,
        paused=lambda _box: paused,
        measure=lambda _box: QueueState(length, oldest),
    )


class Spy(Throttler):
    def __init__(self, throttler: Throttler, order: list[str]) -> None:
        self.name = throttler.name  # type: ignore[misc] # that of one class for each other
        self._throttler = throttler
        self._order = order

    def __call__(self, moment: Moment) -> Decision:
        self._order.append(self.name)
        return self._throttler(moment)


def asked(tactic: Tactic, at: Moment) -> tuple[Decision, list[str]]:
    """The decision, and who was asked, in order."""
    order: list[str] = []
    objection = Tactic(tuple(Spy(each, order) for each in tactic._throttlers), unprompted=1.0).ask(at)
    if objection is None:
        return GO, order
    name, decision = objection
    assert name == order[-1]
    return decision, order


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("default", ["paused_box", "redis_queue_size", "rate_limited"]),
        (
            "low-priority",
            ["paused_box", "redis_queue_min_size", "redis_queue_size", "redis_queue_time_lag", "rate_limited"],
        ),
        ("aggressive", ["paused_box", "redis_queue_size"]),
        ("noop", []),
    ],
)
def test_each_tactic_asks_its_throttlers_in_order(name: str, order: list[str]) -> None:
    assert asked(TACTICS[name](PACE), moment()) == (GO, order)


@pytest.mark.parametrize("name", ["default", "low-priority", "aggressive"])
def test_a_paused_box_is_skipped_and_nobody_else_is_asked(name: str) -> None:
    decision, order = asked(TACTICS[name](PACE), moment(paused=True))
    assert decision.answer is Answer.SKIP
    assert order == ["paused_box"]


@pytest.mark.parametrize("name", ["default", "low-priority", "aggressive"])
@pytest.mark.parametrize(("length", "answer"), [(100, Answer.NOOP), (101, Answer.SKIP)])
def test_a_queue_longer_than_the_maximum_is_skipped(name: str, length: int, answer: Answer) -> None:
    assert asked(TACTICS[name](PACE), moment(length=length))[0].answer is answer


def test_noop_polls_whatever_happens() -> None:
    assert asked(TACTICS["noop"](PACE), moment(paused=True, length=10**6))[0] is GO


def test_low_priority_waits_once_for_a_short_queue_to_fill_and_then_lets_pass() -> None:
    tactic = TACTICS["low-priority"](PACE)
    first = asked(tactic, moment(length=9))[0]
    assert (first.answer, first.retry_in) == (Answer.THROTTLE, 0.1)
    assert asked(tactic, moment(length=9, now=0.1))[0] is GO
    assert asked(tactic, moment(length=9, now=0.2))[0].answer is Answer.THROTTLE


def test_low_priority_does_not_wait_for_a_queue_that_is_long_enough() -> None:
    assert asked(TACTICS["low-priority"](PACE), moment(length=10))[0] is GO


@pytest.mark.parametrize(("age", "answer"), [(4, Answer.SKIP), (5, Answer.NOOP)])
def test_low_priority_skips_while_the_oldest_job_is_young(age: int, answer: Answer) -> None:
    assert asked(TACTICS["low-priority"](PACE), moment(oldest=int(UNIX_NOW) - age))[0].answer is answer


def test_low_priority_does_not_skip_for_an_empty_queues_age() -> None:
    tactic = TACTICS["low-priority"](PACE)
    asked(tactic, moment(length=0, oldest=None))
    assert asked(tactic, moment(length=0, oldest=None, now=0.1))[0] is GO


@pytest.mark.parametrize("name", ["default", "low-priority"])
def test_the_rate_limit_puts_off_polls_that_nobody_asked_for(name: str) -> None:
    tactic = TACTICS[name](PACE)
    assert [asked(tactic, moment(now=float(second)))[0].answer for second in range(4)] == [
        Answer.NOOP,
        Answer.NOOP,
        Answer.NOOP,
        Answer.THROTTLE,
    ]
    assert asked(tactic, moment(now=4.0))[0].retry_in == 56.0
    assert asked(tactic, moment(now=60.0))[0] is GO


def test_polls_that_find_new_rows_do_not_count() -> None:
    tactic = TACTICS["default"](PACE)
    for second in range(5):
        assert asked(tactic, moment(now=float(second)))[0] is GO
        tactic.found_new_rows(BOX)


def test_a_poll_after_a_wake_up_is_never_put_off_by_the_rate_limit() -> None:
    tactic = TACTICS["default"](PACE)
    assert [asked(tactic, moment(prompted=True))[0] for _ in range(50)] == [GO] * 50


def test_each_box_has_a_rate_of_its_own() -> None:
    tactic = TACTICS["default"](PACE)
    for _ in range(4):
        asked(tactic, moment())
    other: Box = make_box(name="other_outbox_item")
    at = Moment(
        box=other,
        prompted=False,
        now=0.0,
        unix_now=UNIX_NOW,
        paused=lambda _box: False,
        measure=lambda _box: QueueState(0, None),
    )
    assert asked(tactic, at)[0] is GO


def test_the_queue_is_looked_at_once_per_decision_and_only_if_somebody_asks() -> None:
    looks: list[Box] = []

    def measure(box: Box) -> QueueState:
        looks.append(box)
        return QueueState(50, OLD)

    def at(paused: bool) -> Moment:
        return Moment(box=BOX, prompted=False, now=0.0, unix_now=UNIX_NOW, paused=lambda _box: paused, measure=measure)

    asked(TACTICS["low-priority"](PACE), at(paused=True))
    assert looks == []
    asked(TACTICS["low-priority"](PACE), at(paused=False))
    assert looks == [BOX]
