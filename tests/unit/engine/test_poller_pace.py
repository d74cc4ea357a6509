"""How fast the poller goes on: the rate limit is for polls that find nothing, and for nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.leases import MemoryLeases
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.memory.store import MemoryStore
from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.domain.job import ANY_ID, Job
from boxengine.domain.outcome import Settlement
from boxengine.engine.observation import NullObserver, NullTracer
from boxengine.engine.polling.checks import Checks
from boxengine.engine.polling.looks import PollLimits
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.poller import Poller
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.polling.tactics import TACTICS
from boxengine.engine.polling.throttlers import Pace
from boxengine.engine.running.outages import Outages
from boxengine.ports import Duty, LeaseName, WhenLong
from tests.unit.engine.bench import BUCKETS, make_box

BOX = make_box(max_retries=3)
LEASE = timedelta(seconds=4)
STEP = timedelta(milliseconds=10)


class Shop:
    """A poller over memory; its clock moves only when told to."""

    def __init__(self, tactic: str, box: Box = BOX) -> None:
        self.box = box
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.queue = MemoryJobQueue(clock=self.clock)
        observer = NullObserver()
        self.leases = MemoryLeases(clock=self.clock)
        schedule, rules = Schedule([box], partitions=BUCKETS, clock=self.clock), TACTICS[tactic](Pace())
        pauses = PauseWatch(MemoryPauses(), [box], clock=self.clock, auto_disabled=False)
        checks = Checks(
            schedule,
            store=self.store,
            queue=self.queue,
            pauses=pauses,
            wakeups=None,
            tactic=rules,
            clock=self.clock,
        )
        self.poller = Poller(
            schedule,
            checks=checks,
            store=self.store,
            queue=self.queue,
            leases=self.leases,
            pauses=pauses,
            tactic=rules,
            middlewares=(),
            outages=Outages(observer=observer, error_tracker=lambda *_args, **_context: None, clock=self.clock),
            observer=observer,
            tracer=NullTracer(),
            clock=self.clock,
            queue_jobs=self.queue.push,
            token="me",
            limits=PollLimits(take_wait=0.0),
        )

    def poll(self, span: timedelta) -> None:
        """Lets so much time pass, the poller taking its turns."""
        for _ in range(span // STEP):
            self.poller.turn()
            self.clock.advance(STEP)

    def deliver_within(self, limit: timedelta) -> timedelta:
        """How long it takes until nothing is pending; what is queued is delivered at once."""
        started = self.clock.now()
        while self.clock.now() < started + limit and any(row.status == Status.PENDING for row in self.store.rows(BOX)):
            self.poller.turn()
            self._deliver()
            self.clock.advance(STEP)
        return self.clock.now() - started

    def _deliver(self) -> None:
        hold = self.queue.take([BOX], wait=timedelta(0), ttl=LEASE, share=1)
        if hold is not None:
            with self.store.claims(BOX).open(dict.fromkeys(hold.buckets), 100) as claim:
                claim.commit(Settlement(delivered=[item.id for item in claim.items]))
            self.queue.release(hold, hold.buckets)


@pytest.mark.parametrize("tactic", ["default", "low-priority"])
def test_retries_that_are_due_are_polled_however_many_were_polled_before(tactic: str) -> None:
    """Found by the chaos suite: once 60 polls had found nothing but retries, none was delivered for up to a minute."""
    shop = Shop(tactic)
    long_ago = shop.clock.now() - timedelta(hours=1)
    for _ in range(30):
        for key in range(BUCKETS):
            shop.store.insert(BOX, event_key=key, errors_count=1, processed_at=long_ago)
        assert shop.deliver_within(timedelta(seconds=90)) < timedelta(seconds=10)


def test_the_buckets_of_a_worker_that_died_are_polled_half_a_second_after_its_leases_at_the_latest() -> None:
    """Found by the chaos suite: the poller looked once a second, and five seconds are promised from crash to recovery."""
    shop = Shop("default")
    for key in range(BUCKETS):
        shop.store.insert(BOX, event_key=key)
    shop.poller.turn()
    shop.clock.advance(timedelta(seconds=0.1))  # so that the leases do not run out at the very moment of a look
    for number in range(BUCKETS):
        shop.leases.acquire(LeaseName(Duty.POLLING, BOX.name, number), "dead", ttl=LEASE)
    shop.queue.push(BOX, [Job(bucket, 0, (bucket + 1,)) for bucket in BOX.buckets])
    assert shop.queue.take([BOX], wait=timedelta(0), ttl=LEASE, share=1) is not None
    assert shop.deliver_within(timedelta(seconds=90)) <= LEASE + timedelta(seconds=0.5)


def test_buckets_with_much_work_do_not_keep_the_others_out_of_the_queue() -> None:
    """They are handed back after each turn, to a queue that is so long that nothing is polled."""
    shop, threads = Shop("default", make_box(bucket_size=400)), 4
    busy, quiet = shop.box.buckets[:350], shop.box.buckets[350:]
    served = set[int]()

    def deliver(rounds: int) -> None:
        for _ in range(rounds):
            taken = [shop.queue.take([shop.box], wait=timedelta(0), ttl=LEASE, share=threads) for _ in range(threads)]
            shop.poll(timedelta(seconds=1))
            for hold in filter(None, taken):
                served.update(hold.buckets)
                jobs = [Job(bucket, 0, ANY_ID) for bucket in sorted(hold.buckets)]
                shop.queue.hand_back(hold, jobs, when_long=WhenLong.FREE)

    for bucket in busy:
        shop.store.insert(shop.box, event_key=bucket)
    deliver(30)
    assert served == set(busy)
    for bucket in quiet:
        shop.store.insert(shop.box, event_key=bucket)
    deliver(60)
    assert served == set(shop.box.buckets)
