"""Counts what is not noisy: SQL statements, Redis commands, jobs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import redis

from bench.servers import Site
from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.ports import Hold, JobQueue, Observer, QueueState, WhenLong
from boxengine.ports.events import Event, HoldEnded, Polled, Settled

_OURS = b"app=boxengine "
_STATEMENT = (b"LOG:  statement: ", b"LOG:  execute ")


class StatementLog:
    """PostgreSQL's own log of the statements of one database, BEGIN and COMMIT included.

    Counts only connections with the application name ``boxengine``: the worker's, except those that only listen.
    """

    def __init__(self, site: Site) -> None:
        self._path = site.stand.postgres_log
        # Applies to connections made from now on.
        site.execute(f"ALTER DATABASE {site.database} SET log_statement = 'all'")
        self._from = self._path.stat().st_size

    def restart(self) -> None:
        """Forgets the statements so far."""
        self._from = self._path.stat().st_size

    def statements(self) -> list[str]:
        """The statements since the last ``restart``, repeated as often as they were sent."""
        return [line.decode(errors="replace") for line in self._lines()]

    def _lines(self) -> Iterator[bytes]:
        with Path(self._path).open("rb") as log:
            log.seek(self._from)
            for line in log:
                if line.startswith(_OURS):
                    marker = next((marker for marker in _STATEMENT if marker in line), None)
                    if marker is not None:
                        yield line.partition(marker)[2].strip()


def redis_commands(client: redis.Redis) -> int:
    """Commands since ``CONFIG RESETSTAT``, including those within scripts, without those that this function sends."""
    statistics: dict[str, dict[str, int]] = client.info("commandstats")
    looks = {"cmdstat_info", "cmdstat_config", "cmdstat_config|resetstat"}
    return sum(each["calls"] for name, each in statistics.items() if name not in looks)


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class JobTally:
    """The jobs of one drain, by what happened to them."""

    pushed: int = 0
    """Pushed by pollers, or handed back by processors whose turn was over; no more than this can have been popped."""
    useful: int = 0
    """Buckets from which a hold delivered at least one item."""


class JobObserver:
    """Counts jobs; called with each item's bucket in the thread that works on it."""

    def __init__(self, tally: JobTally, then: Observer) -> None:
        self._tally = tally
        self._then = then
        self._lock = threading.Lock()
        self._mine = threading.local()

    def see(self, event: Event) -> None:
        match event:
            case Polled():
                with self._lock:
                    self._tally.pushed += event.pushed
            case Settled():
                self._seen().update(item.bucket for item in event.items)
            case HoldEnded():
                with self._lock:
                    self._tally.useful += len(self._seen())
                self._seen().clear()
            case _:
                pass
        self._then.see(event)

    def _seen(self) -> set[int]:
        seen: set[int] = self._mine.__dict__.setdefault("seen", set())
        return seen


class CountingQueue:
    """A queue that counts the jobs handed back to it."""

    def __init__(self, queue: JobQueue, tally: JobTally) -> None:
        self._queue = queue
        self._tally = tally
        self._lock = threading.Lock()

    def push(self, box: Box, jobs: Sequence[Job]) -> int:
        return self._queue.push(box, jobs)

    def take(self, boxes: Sequence[Box], *, wait: timedelta, ttl: timedelta, share: int) -> Hold | None:
        return self._queue.take(boxes, wait=wait, ttl=ttl, share=share)

    def seize(self, box: Box, jobs: Sequence[Job], *, ttl: timedelta, left: bool = False) -> Hold | None:
        return self._queue.seize(box, jobs, ttl=ttl, left=left)

    def extend(self, hold: Hold, *, ttl: timedelta) -> frozenset[int]:
        return self._queue.extend(hold, ttl=ttl)

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        return self._queue.release(hold, buckets)

    def hand_back(self, hold: Hold, jobs: Sequence[Job], *, when_long: WhenLong = WhenLong.QUEUE) -> bool:
        queued = self._queue.hand_back(hold, jobs, when_long=when_long)
        if queued:
            with self._lock:
                self._tally.pushed += len(jobs)
        return queued

    def leave(self, hold: Hold, buckets: Iterable[int]) -> None:
        self._queue.leave(hold, buckets)

    def give_way(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        return self._queue.give_way(hold, buckets)

    def interrupt(self) -> None:
        self._queue.interrupt()

    def finish(self, box: Box, jobs: Sequence[Job]) -> None:
        self._queue.finish(box, jobs)

    def in_work(self, box: Box) -> frozenset[int]:
        return self._queue.in_work(box)

    def unattended(self, box: Box, buckets: Iterable[int]) -> list[int]:
        return self._queue.unattended(box, buckets)

    def state(self, box: Box) -> QueueState:
        return self._queue.state(box)

    def ping(self) -> None:
        self._queue.ping()
