"""How the conformance suite reaches each implementation of the coordination ports, and makes time pass for it."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import redis

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.failures import MemoryFailures
from boxengine.adapters.memory.leases import MemoryLeases
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.memory.wakeups import MemoryWakeups
from boxengine.adapters.memory.workers import MemoryWorkers
from boxengine.adapters.redis.connection import connect
from boxengine.adapters.redis.failures import RedisFailures
from boxengine.adapters.redis.leases import RedisLeases
from boxengine.adapters.redis.pauses import RedisPauses
from boxengine.adapters.redis.queue import RedisJobQueue
from boxengine.adapters.redis.wakeups import RedisNotifier, RedisWakeups
from boxengine.adapters.redis.workers import RedisWorkers
from boxengine.adapters.system import SystemClock
from boxengine.domain.box import Box, BoxType
from boxengine.domain.job import Job
from boxengine.ports import Clock, FailureMemory, Hold, JobQueue, Leases, Pauses, Signal, Wakeups, Workers

NAMES = ("memory", "redis")
NO_WAIT = timedelta(0)
WAIT = timedelta(seconds=60)
TTL = timedelta(seconds=30)
NOON = 1_800_000_000


def make_box(name: str = "order_outbox_item", box_type: BoxType = BoxType.OUTBOX, *, buckets: int = 16) -> Box:
    """A box of so many buckets."""
    return Box(name=name, type=box_type, table="items", bucket_size=buckets)


def job(bucket: int, *ids: int, pushed_at: int = NOON) -> Job:
    """A job; its ids default to one made of the bucket."""
    return Job(bucket, pushed_at, ids or (bucket + 1,))


def seized(queue: JobQueue, box: Box, bucket: int) -> Hold:
    """A hold of this bucket, which nobody else may have."""
    hold = queue.seize(box, [job(bucket)], ttl=TTL)
    assert hold is not None
    return hold


@dataclass
class Rig(ABC):
    """One implementation of every coordination port, over one server or memory."""

    clock: Clock
    queue: JobQueue
    leases: Leases
    pauses: Pauses
    failures: FailureMemory
    workers: Workers
    wakeups: Wakeups
    corrupt: list[tuple[str, bytes]]
    """What ``on_corrupt`` was told."""

    def take(self, *boxes: Box, share: int = 1, wait: timedelta = NO_WAIT, ttl: timedelta = TTL) -> Hold:
        """A hold; fails the test where there is none."""
        hold = self.queue.take(boxes, wait=wait, ttl=ttl, share=share)
        assert hold is not None
        return hold

    def finds_nothing(self, *boxes: Box) -> bool:
        """Whether a take comes back with empty hands."""
        return self.queue.take(boxes, wait=NO_WAIT, ttl=TTL, share=1) is None

    @abstractmethod
    def push_raw(self, box: Box, element: bytes) -> None:
        """Queues an element as a stranger would."""

    @abstractmethod
    def notify(self, signals: Iterable[Signal]) -> None:
        """What a writer does after its commit."""

    @abstractmethod
    def pass_time(self, span: timedelta) -> None:
        """Everything with a time limit grows older by ``span``."""

    @abstractmethod
    def flush_all(self) -> None:
        """What FLUSHALL does to it."""


class MemoryRig(Rig):
    """The in-memory twins, under a manual clock."""

    def __init__(self) -> None:
        corrupt: list[tuple[str, bytes]] = []
        self.manual_clock = clock = ManualClock()
        self.memory = (
            MemoryJobQueue(
                clock=clock, on_corrupt=lambda box, elements: corrupt.extend((box.name, each) for each in elements)
            ),
            MemoryLeases(clock=clock),
            MemoryPauses(),
            MemoryFailures(clock=clock),
            MemoryWorkers(clock=clock),
        )
        self.bell = MemoryWakeups()
        super().__init__(clock, *self.memory, self.bell, corrupt)

    def push_raw(self, box: Box, element: bytes) -> None:
        self.memory[0].push_raw(box, element)

    def notify(self, signals: Iterable[Signal]) -> None:
        self.bell.notify(signals)

    def pass_time(self, span: timedelta) -> None:
        self.manual_clock.advance(span)

    def flush_all(self) -> None:
        for part in self.memory:
            part.flush()


class RedisRig(Rig):
    """The Redis adapters on a real server; ``client`` is another program's view of it."""

    def __init__(self, url: str) -> None:
        corrupt: list[tuple[str, bytes]] = []
        # Neither channels nor FLUSHALL know databases, and other tests may share the server.
        self.channel = f"test:{uuid.uuid4().hex}"
        self.client: redis.Redis = connect(url)
        # A take that waits does so for the whole of ``WAIT``.
        self._own = own = connect(url, answer_timeout=2 * WAIT)
        clock = SystemClock()
        super().__init__(
            clock,
            RedisJobQueue(
                own,
                clock=clock,
                on_corrupt=lambda box, elements: corrupt.extend((box.name, each) for each in elements),
            ),
            RedisLeases(own),
            RedisPauses(own),
            RedisFailures(own, clock=clock),
            RedisWorkers(own),
            RedisWakeups(own, clock=clock, channel=self.channel),
            corrupt,
        )

    def push_raw(self, box: Box, element: bytes) -> None:
        self.client.lpush(f"{box.name}:job_queue", element)

    def notify(self, signals: Iterable[Signal]) -> None:
        RedisNotifier(self._own, channel=self.channel).notify(signals)

    def pass_time(self, span: timedelta) -> None:
        """Takes it off what is left to each key: nobody needs to wait."""
        passed = int(span / timedelta(milliseconds=1))
        for key in self.client.keys("*"):
            left: Any = self.client.pttl(key)
            if left >= 0:
                # A key whose time is up is deleted by this, too.
                self.client.pexpire(key, left - passed)

    def flush_all(self) -> None:
        self.client.flushdb()

    def close(self) -> None:
        """Frees all connections."""
        self.wakeups.close()
        self.client.close()
        self._own.close()


@contextmanager
def open_rig(name: str, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """The implementation of that name."""
    if name == "memory":
        yield MemoryRig()
        return
    rig = RedisRig(request.getfixturevalue("redis_url"))
    try:
        yield rig
    finally:
        rig.close()
