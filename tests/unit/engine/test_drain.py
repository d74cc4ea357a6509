"""Whose turn it is among the buckets of a hold."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.system import SystemClock
from boxengine.domain.job import ANY_ID, Job
from boxengine.engine.delivering.holds.drain import Drain
from boxengine.engine.delivering.holds.follow_up import FollowUp
from boxengine.engine.delivering.holds.holding import Holding
from boxengine.engine.delivering.holds.sizing import WORTH_SHARING, Sizing
from boxengine.engine.delivering.work import Errand, Report
from boxengine.engine.observation import NullObserver
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from tests.unit.engine.bench import make_box

BOX = make_box()


class Reads:
    """A work whose batches come to these buckets, of which nothing is exhausted."""

    box = BOX

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.come_to: Collection[int] = ()

    def run(self, errand: Errand) -> Report:
        self.asked = list(errand.positions)
        return Report(WORTH_SHARING, positions={bucket: None for bucket in self.asked if bucket in self.come_to})


def drain_of(work: Reads, buckets: Collection[int]) -> Drain:
    clock = SystemClock()
    queue = MemoryJobQueue(clock=clock)
    hold = queue.seize(BOX, [Job(bucket, 0, ANY_ID) for bucket in buckets], ttl=timedelta(seconds=60))
    assert hold is not None
    schedule = Schedule([BOX], partitions=1, clock=clock)
    return Drain(
        Holding(hold, queue),
        work,
        sizing=Sizing(BOX),
        follow_up=FollowUp(
            schedule=schedule,
            outages=Outages(observer=NullObserver(), error_tracker=lambda *_, **__: None, clock=clock),
            clock=clock,
        ),
        pauses=PauseWatch(MemoryPauses(), [BOX], clock=clock),
        clock=clock,
    )


def test_buckets_that_gave_rows_let_the_others_go_first() -> None:
    work = Reads()
    drain = drain_of(work, range(4))
    work.come_to = {0, 1, 2, 3}
    drain.step(until=1e9)
    assert work.asked == [0, 1, 2, 3]
    work.come_to = {0, 1}
    drain.step(until=1e9)
    drain.step(until=1e9)
    assert work.asked == [2, 3, 0, 1]
