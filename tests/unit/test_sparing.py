"""How often a look asks the database: what takes it long is asked less often, and never seldom enough to mislead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from boxengine.app.overview import looking
from boxengine.app.overview.looking import SELDOM, SHARE, Sparing
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
    monkeypatch.setattr(looking, "monotonic", lambda: found.now)
    return found


def test_what_is_cheap_is_asked_at_every_look(time: Time) -> None:
    assert time.asked_within(Sparing(), seconds=60, cost=0.001) == 30


def test_what_is_dear_takes_no_more_than_its_share_of_the_time(time: Time) -> None:
    sparing, cost = Sparing(), 0.08
    time.asked_within(sparing, seconds=20, cost=cost)
    times = time.asked_within(sparing, seconds=600, cost=cost)
    assert 0.5 * SHARE < times * cost / 600 <= SHARE


def test_nobody_waits_longer_for_a_new_answer_however_dear_it_is(time: Time) -> None:
    sparing = Sparing()
    time.asked_within(sparing, seconds=60, cost=1.5)
    assert time.asked_within(sparing, seconds=130, cost=1.5) >= 130 // (SELDOM + 4)


def test_one_slow_answer_among_quick_ones_changes_nothing(time: Time) -> None:
    sparing = Sparing()
    assert sparing.ask(("orders", "counts"), time.question(3.0)) == 1
    time.now += 2
    assert sparing.ask(("orders", "counts"), time.question(0.001)) == 2


def test_an_error_is_raised_and_the_question_asked_again(time: Time) -> None:
    def gone() -> int:
        raise StoreUnavailable("gone")

    sparing = Sparing()
    with pytest.raises(StoreUnavailable):
        sparing.ask(("orders", "counts"), gone)
    assert sparing.ask(("orders", "counts"), time.question(0.0)) == 1
