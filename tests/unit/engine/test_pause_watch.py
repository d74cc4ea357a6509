"""What is known of paused boxes while the coordinator is away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.domain.box import Box
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.errors import QueueUnavailable
from tests.unit.engine.bench import make_box


class Away(MemoryPauses):
    """A coordinator that does not answer until it is ``back``."""

    def __init__(self, *, enabled: bool) -> None:
        super().__init__()
        self.back = False
        self.enabled = enabled

    def polling_enabled(self, boxes: Sequence[Box]) -> Mapping[str, bool]:
        if not self.back:
            raise QueueUnavailable("redis is away")
        return {box.name: self.enabled for box in boxes}


def test_a_worker_that_starts_before_its_coordinator_takes_every_box_for_paused() -> None:
    clock, box, coordinator = ManualClock(), make_box(), Away(enabled=False)
    watch = PauseWatch(coordinator, [box], clock=clock)
    assert watch.paused(box)
    coordinator.back = True
    assert watch.paused(box), "the first question is still fresh"
    assert watch.running([box]) == [box], "that the coordinator is away is found out by asking it"


def test_once_the_coordinator_answers_the_boxes_that_run_are_told_of() -> None:
    clock, box, coordinator = ManualClock(), make_box(), Away(enabled=True)
    resumed: list[str] = []
    watch = PauseWatch(coordinator, [box], clock=clock, resumed=resumed.append)
    assert watch.paused(box)
    coordinator.back = True
    clock.advance(timedelta(seconds=10))
    assert not watch.paused(box)
    assert resumed == [box.name]
