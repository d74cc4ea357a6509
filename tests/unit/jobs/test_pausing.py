"""A paused box begins no job, and asks again every two seconds whether it still is paused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.domain.jobs import JobBox
from boxengine.engine.jobs.pausing import HEARD, PauseGate
from boxengine.errors import StoreUnavailable

BOX = JobBox(name="report_job", table="report_jobs")
CLAIMED = timedelta(0)


class Decided:
    """``JobPauses`` with one answer."""

    def __init__(self) -> None:
        self.answer: bool | StoreUnavailable | None = None
        self.asked = 0

    def set(self, box: JobBox, *, running: bool, who: str) -> None:
        raise NotImplementedError

    def forget(self, box: JobBox, *, who: str) -> None:
        raise NotImplementedError

    def running(self, box: JobBox) -> bool | None:
        assert box is BOX
        self.asked += 1
        if isinstance(self.answer, StoreUnavailable):
            raise self.answer
        return self.answer


class Scene:
    def __init__(self, *, auto_disabled: bool = False) -> None:
        self.pauses, self.clock, self.claims, self.given_back = Decided(), ManualClock(), 0, 0
        self.gate = PauseGate(BOX, self, pauses=self.pauses, clock=self.clock, auto_disabled=auto_disabled)

    def turn(self) -> timedelta:
        self.claims += 1
        return CLAIMED

    def give_back(self) -> None:
        self.given_back += 1


def test_a_box_that_nobody_paused_claims_and_asks_only_now_and_then() -> None:
    scene = Scene()
    assert [scene.gate.turn() for _ in range(5)] == [CLAIMED] * 5
    assert (scene.claims, scene.pauses.asked) == (5, 1)


def test_a_pause_is_heard_within_two_seconds_and_so_is_its_end() -> None:
    scene = Scene()
    scene.gate.turn()
    scene.pauses.answer = False
    scene.clock.advance(HEARD)
    assert [scene.gate.turn(), scene.gate.turn()] == [HEARD, HEARD]
    assert scene.claims == 1
    assert scene.given_back == 2
    scene.pauses.answer = True
    scene.clock.advance(HEARD)
    assert scene.gate.turn() == CLAIMED


@pytest.mark.parametrize(("decided", "claims"), [(None, 0), (True, 1), (False, 0)])
def test_a_box_that_starts_paused_waits_for_somebody_to_resume_it(decided: bool | None, claims: int) -> None:
    scene = Scene(auto_disabled=True)
    scene.pauses.answer = decided
    scene.gate.turn()
    assert scene.claims == claims


def test_while_nobody_can_say_whether_it_is_paused_nothing_is_claimed() -> None:
    scene = Scene()
    scene.pauses.answer = StoreUnavailable("the database: gone")
    with pytest.raises(StoreUnavailable):
        scene.gate.turn()
    assert scene.claims == 0
