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
from boxengine.domain.item import Item
from boxengine.domain.job import Job
from boxengine.domain.outcome import Settlement
from boxengine.engine.observation import NullObserver
from boxengine.ports import Hold, JobQueue, QueueState

_OURS = b"app=boxengine "
_STATEMENT = (b"LOG:  statement: ", b"LOG:  execute ")


class StatementLog:
    """PostgreSQL's own log of the statements of one database, BEGIN and COMMIT included.

    Counts what connections that call themselves ``boxengine`` send: the worker's, apart from those that only listen.
    """

    def __init__(self, site: Site) -> None:
        self._path = site.stand.postgres_log
        # Holds for connections made from now on.
        site.execute(f"ALTER DATABASE {site.database} SET log_statement = 'all'")
        self._from = self._path.stat().st_size

    def restart(self) -> None:
        """What was sent so far does not count."""
        self._from = self._path.stat().st_size

    def statements(self) -> list[str]:
        """The texts since the start, each once for every time it was sent."""
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
    """Commands since ``CONFIG RESETSTAT``, those within scripts included, those of this look excluded."""
    statistics: dict[str, dict[str, int]] = client.info("commandstats")
    looks = {"cmdstat_info", "cmdstat_config", "cmdstat_config|resetstat"}
    return sum(each["calls"] for name, each in statistics.items() if name not in looks)


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class JobTally:
    """What became of the jobs of one drain."""

    pushed: int = 0
    """By pollers, and back by processors whose turn was over: at most so many were popped."""
    useful: int = 0
    """Buckets from which a hold delivered at least one item."""


class JobObserver(NullObserver):
    """Counts jobs; hears of each item's bucket in the thread that works on it."""

    def __init__(self, tally: JobTally, then: NullObserver) -> None:
        self._tally = tally
        self._then = then
        self._lock = threading.Lock()
        self._mine = threading.local()

    def polled(self, box: Box, partition: int, *, found: int, pushed: int, seconds: float) -> None:  # noqa: ARG002
        with self._lock:
            self._tally.pushed += pushed

    def settled(self, box: Box, items: Sequence[Item], settlement: Settlement, *, seconds: float) -> None:
        seen: set[int] = self._mine.__dict__.setdefault("seen", set())
        seen.update(item.bucket for item in items)
        self._then.settled(box, items, settlement, seconds=seconds)

    def job_done(self, box: Box, buckets: Iterable[int], *, state: str, seconds: float) -> None:  # noqa: ARG002
        seen: set[int] = self._mine.__dict__.pop("seen", set())
        with self._lock:
            self._tally.useful += len(seen)


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

    def extend(self, hold: Hold, *, ttl: timedelta) -> frozenset[int]:
        return self._queue.extend(hold, ttl=ttl)

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        return self._queue.release(hold, buckets)

    def hand_back(self, hold: Hold, jobs: Sequence[Job]) -> None:
        with self._lock:
            self._tally.pushed += len(jobs)
        self._queue.hand_back(hold, jobs)

    def leave(self, hold: Hold, buckets: Iterable[int]) -> None:
        self._queue.leave(hold, buckets)

    def unattended(self, box: Box, buckets: Iterable[int]) -> list[int]:
        return self._queue.unattended(box, buckets)

    def state(self, box: Box) -> QueueState:
        return self._queue.state(box)

    def ping(self) -> None:
        self._queue.ping()
