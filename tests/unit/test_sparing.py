"""How often a look asks the database: the longer its answers take, the less often, within a share of its time."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import pytest

from boxengine.app.overview import sparing as timed
from boxengine.app.overview.sparing import AFTER_FAILURE, SELDOM, SHARE, Sparing
from boxengine.errors import StoreUnavailable


class Time:
    """A clock, and a database whose answers take time."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.asked = 0

    def question(self, seconds: float) -> Callable[[], int]:
        def ask() -> int:
            self.now += seconds
            self.asked += 1
            return self.asked

        return ask

    def asked_within(self, sparing: Sparing, *, seconds: float, cost: float) -> int:
        """How often it is asked, if somebody looks every two seconds."""
        before, until = self.asked, self.now + seconds
        while self.now < until:
            sparing.ask(("orders", "counts"), self.question(cost))
            self.now += 2
        return self.asked - before


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(timed, "monotonic", lambda: found.now)
    return found


def test_what_is_cheap_is_asked_at_every_look(time: Time) -> None:
    assert time.asked_within(Sparing(), seconds=60, cost=0.001) == 30


def test_what_a_small_installation_asks_is_asked_at_every_look(time: Time) -> None:
    """Three boxes, each with four questions of half a millisecond, and a live page that looks every two seconds."""
    sparing, names = Sparing(), [(box, each) for box in "abc" for each in ("counts", "since", "stuck", "stranded")]
    for _ in range(30):
        for name in names:
            sparing.ask(name, time.question(0.0005))
        time.now += 2
    assert time.asked == 30 * len(names)


def test_the_dearer_a_round_is_the_less_often_its_questions_are_asked(time: Time) -> None:
    def asked(cost: float) -> int:
        sparing = Sparing()
        time.asked_within(sparing, seconds=60, cost=cost)
        return time.asked_within(sparing, seconds=600, cost=cost)

    times = [asked(cost) for cost in (0.0095, 0.012, 0.015, 0.019, 0.022, 0.03, 0.06)]
    assert times == sorted(times, reverse=True)
    assert times[0] >= 295, "nearly every look"
    assert times[4] * 0.022 / 600 <= SHARE


def test_what_is_dear_takes_no_more_than_its_share_of_the_time(time: Time) -> None:
    sparing, cost = Sparing(), 0.08
    time.asked_within(sparing, seconds=20, cost=cost)
    times = time.asked_within(sparing, seconds=600, cost=cost)
    assert 0.5 * SHARE < (times - 1) * cost / 600 <= SHARE


def test_nobody_waits_longer_for_a_new_answer_however_dear_it_is(time: Time) -> None:
    sparing = Sparing()
    time.asked_within(sparing, seconds=60, cost=1.5)
    assert time.asked_within(sparing, seconds=660, cost=1.5) >= 660 // (SELDOM + 4)


def test_one_slow_answer_among_quick_ones_changes_nothing(time: Time) -> None:
    sparing = Sparing()
    assert sparing.ask(("orders", "counts"), time.question(3.0)) == 1
    time.now += 2
    assert sparing.ask(("orders", "counts"), time.question(0.001)) == 2


def test_all_questions_together_take_no_more_than_the_share(time: Time) -> None:
    sparing, costs = Sparing(), {"counts": 0.02, "since": 0.002, "stuck": 0.005}
    spent = 0.0
    for _ in range(3):  # as the costs become known
        for question, cost in costs.items():
            sparing.ask(("orders", question), time.question(cost))
        time.now += SELDOM
    began = time.now
    while time.now < began + 600:
        for question, cost in costs.items():
            before = time.asked
            sparing.ask(("orders", question), time.question(cost))
            spent += cost * (time.asked - before)
        time.now += 2
    assert 0.5 * SHARE < spent / (time.now - began) <= SHARE


def test_an_error_is_raised_and_the_question_asked_again(time: Time) -> None:
    def gone() -> int:
        raise StoreUnavailable("gone")

    sparing = Sparing()
    with pytest.raises(StoreUnavailable):
        sparing.ask(("orders", "counts"), gone)
    assert sparing.ask(("orders", "counts"), time.question(0.0)) == 1


def test_a_question_that_keeps_failing_slowly_is_spared_too(time: Time) -> None:
    def too_long() -> int:
        time.now += 2.0
        time.asked += 1
        raise StoreUnavailable("canceling statement due to statement timeout")

    sparing, until = Sparing(), time.now + 130
    while time.now < until:
        with pytest.raises(StoreUnavailable, match="timeout"):
            sparing.ask(("orders", "counts"), too_long)
        time.now += 2
    assert 130 // (AFTER_FAILURE + 4) <= time.asked <= 130 // AFTER_FAILURE + 2


def test_what_somebody_changed_is_asked_at_once_and_nothing_else(time: Time) -> None:
    sparing, dear = Sparing(), 0.2
    for box in ("orders", "bills") * 3:
        sparing.ask((box, "counts"), time.question(dear))
        time.now += SELDOM
    time.now -= SELDOM - 2
    sparing.ask(("orders", "counts"), time.question(dear))
    asked = time.asked
    sparing.forget("orders")
    assert sparing.ask(("orders", "counts"), time.question(dear)) == asked + 1
    sparing.ask(("bills", "counts"), time.question(dear))
    assert time.asked == asked + 1


def test_the_age_of_an_answer_is_known(time: Time) -> None:
    sparing = Sparing()
    assert sparing.age(("orders", "counts")).total_seconds() == 0
    sparing.ask(("orders", "counts"), time.question(1.0))
    time.now += 7
    assert sparing.age(("orders", "counts")).total_seconds() == 7


def test_a_question_costs_the_same_however_many_others_there_are(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at two hundred boxes asks a thousand questions. If each went through all, that would cost more than the answers."""
    roots = list[float]()

    def counted(number: float) -> float:
        roots.append(number)
        return sqrt(number)

    monkeypatch.setattr(timed, "sqrt", counted)
    sparing, names = Sparing(), [(str(box), "counts") for box in range(200)]
    for name in names * 2:
        sparing.ask(name, time.question(0.001))
    asked, before = time.asked, len(roots)
    for name in names:
        sparing.ask(name, time.question(0.001))
    assert time.asked == asked
    assert len(roots) - before == len(names)
