"""A work that delivers nothing runs under the processor: here it follows a log, where a position moves and no row changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.engine.delivering.holds.processor import ProcessLimits, Processor
from boxengine.engine.delivering.work import Errand, Report
from boxengine.engine.observation import NullObserver
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from tests.unit.engine.bench import make_box, usual

TTL = timedelta(seconds=4)
LOG: Mapping[int, Sequence[str]] = {0: [f"a{number}" for number in range(70)], 1: ["b0", "b1"], 2: []}


class Follower:
    """Reads each bucket of a log on from where it stopped. Nothing is claimed, sent or marked."""

    def __init__(self, box: Box, clock: ManualClock) -> None:
        self.box = box
        self.positions: dict[int, int] = defaultdict(int)
        self.seen: list[str] = []
        self.in_time: list[bool] = []
        self._clock = clock

    def run(self, errand: Errand) -> Report:
        share = max(1, errand.rows // len(errand.positions))
        before = len(self.seen)
        for bucket in errand.positions:
            entries = LOG[bucket][self.positions[bucket] :][:share]
            self.seen += entries
            self.positions[bucket] += len(entries)
        self._clock.advance(TTL / 4)
        self.in_time.append(self._clock.monotonic() < errand.term.valid_until)
        return Report(
            claimed=len(self.seen) - before,
            exhausted=frozenset(bucket for bucket in errand.positions if self.positions[bucket] == len(LOG[bucket])),
        )


def test_a_work_that_delivers_nothing_is_run_until_its_buckets_are_empty() -> None:
    clock, box = ManualClock(), make_box(bucket_size=len(LOG))
    queue, work = MemoryJobQueue(clock=clock), Follower(box, clock)
    processor = Processor(
        {box.name: work},
        queue=queue,
        keeper=LeaseKeeper(queue, clock=clock, length=usual(TTL), longest=timedelta(minutes=3)),
        schedule=Schedule([box], partitions=1, clock=clock),
        pauses=PauseWatch(MemoryPauses(), [box], clock=clock),
        outages=Outages(observer=NullObserver(), error_tracker=lambda *_, **__: None, clock=clock),
        observer=NullObserver(),
        clock=clock,
        limits=ProcessLimits(threads=1, wait=timedelta(0), rows=60),
    )
    queue.push(box, [Job(bucket, 0, (1,)) for bucket in LOG])
    for _ in range(4):
        processor.turn()
    assert sorted(work.seen) == sorted(entry for entries in LOG.values() for entry in entries)
    assert all(work.in_time)
    # The buckets are free for the next who has work for them.
    assert queue.push(box, [Job(bucket, 0, (1,)) for bucket in LOG]) == len(LOG)
