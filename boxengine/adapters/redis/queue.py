"""The job queue over Redis lists, with at most one job per bucket queued or in progress.

A bucket is queued while the hash ``{box}:queued`` has its mark, and in progress while its lease exists. A push and a
take each cost one script call; a take costs a BRPOP before it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar, cast

import redis
from redis.exceptions import NoPermissionError, ReadOnlyError, RedisError, ResponseError

from boxengine.adapters.redis import keys
from boxengine.adapters.redis import queue_scripts as scripts
from boxengine.adapters.redis.bucket_leases import BucketLeases
from boxengine.adapters.redis.connection import Arguments, milliseconds, translated
from boxengine.adapters.redis.foreign import LONGEST_LEASE, drop_foreign, is_number, is_wrong_type
from boxengine.adapters.redis.script import Scripts
from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.timing import TIMING
from boxengine.ports import Clock, Hold, QueueState, WhenLong

_JOBS_PER_CALL = 1000  # Lua's unpack takes some 8,000 values, and a script keeps all other clients waiting.
_ANSWER_MARGIN = 1.0  # Seconds that a BRPOP's answer may come late before the socket's time limit strikes.
_LARGEST_JOB = 1 << 20  # Bytes; ten times what the largest poll makes of one bucket.
_AGES_EVERY = 60.0
"""Seconds between two looks at how long the leases of a box still last."""
_BELL_RINGS = 10_000
"""Milliseconds after which the bell's key is gone where no take has heard it."""
_Answer = TypeVar("_Answer")
_Taken = tuple[list[bytes], list[bytes], list[bytes]]
"""Jobs, elements and keys that were no jobs or leases, and buckets whose last holder died."""


class RedisJobQueue:
    """``JobQueue`` over Redis; one object serves all threads.

    Args:
        client: from ``connect``. A blocking take waits at most its socket time limit less a second.
        clock: dates ``Hold.valid_until``.
        enough_ids: a take stops once the ids of its jobs add up to this.
        longest: a queue with more jobs is long to ``hand_back``.
        stale_after: after how long the mark of a queued bucket is checked against the list.
        on_corrupt: told of the elements of one take that are no jobs of the box, as far as their first 200 bytes, and of
            keys that were of a wrong type; they have been dropped.
    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        clock: Clock,
        enough_ids: int = 500,
        longest: int = 100,
        stale_after: timedelta = timedelta(seconds=TIMING.stale),
        on_corrupt: Callable[[Box, Sequence[bytes]], None] = lambda _box, _elements: None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._enough_ids = enough_ids
        self._longest = longest
        self._stale_after = stale_after.total_seconds()
        self._on_corrupt = on_corrupt
        self._turns = itertools.count()
        self._aged: dict[str, float] = {}
        """By box, the monotonic time of the last look at how long its leases last."""
        self._name, self._holds = secrets.token_hex(16), itertools.count()
        self._bell: str | None = None
        """The key that ends a take which waits."""
        socket_timeout = client.connection_pool.connection_kwargs.get("socket_timeout")
        patience = socket_timeout or math.inf
        self._longest_block = max(patience - _ANSWER_MARGIN, patience / 2)
        known = Scripts(client)
        self._push = known.register(scripts.PUSH)
        self._pop_now = known.register(scripts.POP)
        self._take = known.register(scripts.TAKE)
        self._seize = known.register(scripts.SEIZE)
        self._finish = known.register(scripts.FINISH)
        self._hand_back = known.register(scripts.HAND_BACK)
        self._leases = BucketLeases(client, known)

    def push(self, box: Box, jobs: Sequence[Job]) -> int:
        """Queues each job whose bucket is neither queued nor in progress; returns how many."""
        pushed = 0
        with translated("push jobs", self._client):
            for start in range(0, len(jobs), _JOBS_PER_CALL):
                elements = [job.encode() for job in jobs[start : start + _JOBS_PER_CALL]]
                arguments: Arguments = [keys.bucket_lease_prefix(box), self._stale_after, *elements]
                pushed += int(self._tried([box], partial(self._push, keys=_keys(box), args=arguments)))
        return pushed

    def take(self, boxes: Sequence[Box], *, wait: timedelta, ttl: timedelta, share: int) -> Hold | None:
        """Waits for a job of any of the boxes, then takes more of the same box, with their leases."""
        with translated("take jobs", self._client):
            first = self._tried(boxes, partial(self._pop, boxes, wait))
            if first is None:
                return None
            box, element = first
            limits = (max(1, share), self._enough_ids, _JOBS_PER_CALL, box.bucket_size, _LARGEST_JOB)

            asked_at, token = self._clock.monotonic(), self._token()
            arguments: Arguments = [element, token, milliseconds(ttl), keys.bucket_lease_prefix(box), *limits]
            taken = self._tried([box], partial(self._take, keys=_keys(box), args=arguments))
            return self._hold(box, token, taken, until=asked_at + ttl.total_seconds())

    def interrupt(self) -> None:
        """See ``JobQueue.interrupt``. In a thread of its own, because a server that does not answer must not delay a stop."""
        with contextlib.suppress(RuntimeError):  # no thread can be started: Python ends, or the system has no more
            threading.Thread(target=self._ring, name="boxengine-interrupt", daemon=True).start()

    def seize(self, box: Box, jobs: Sequence[Job], *, ttl: timedelta, left: bool = False) -> Hold | None:
        """Takes at once what ``push`` would queue, and with ``left`` what was left to expire; None where that is nothing."""
        if not jobs:
            return None
        asked_at, token = self._clock.monotonic(), self._token()
        elements = [job.encode() for job in jobs]
        arguments: Arguments = [
            token,
            milliseconds(ttl),
            keys.bucket_lease_prefix(box),
            self._stale_after,
            int(left),
            *elements,
        ]
        until = asked_at + ttl.total_seconds()
        with translated("take jobs", self._client):
            answer = self._tried([box], partial(self._seize, keys=_keys(box), args=arguments))
            if answer == scripts.ALL:
                return Hold(box, token, tuple(jobs), until, frozenset(job.bucket for job in jobs))
            return self._hold(box, token, answer, until=until)

    def extend(self, hold: Hold, *, ttl: timedelta) -> frozenset[int]:
        """Renews the leases of the hold's buckets and returns the buckets whose lease was lost."""
        return self._leases.extend(hold, ttl=ttl)

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        """Frees these leases except those wanted again, which it returns: they stay, with the rest of their time."""
        return self._leases.release(hold, buckets)

    def leave(self, hold: Hold, buckets: Iterable[int]) -> None:
        """Lets the leases of these buckets expire by themselves, without their holder being taken for dead."""
        self._leases.leave(hold, buckets)

    def hand_back(self, hold: Hold, jobs: Sequence[Job], *, when_long: WhenLong = WhenLong.QUEUE) -> bool:
        """Frees the leases of the hold's buckets and queues these jobs behind all others."""
        held = sorted(hold.buckets)
        prefix = keys.bucket_lease_prefix(hold.box)
        arguments: Arguments = [
            hold.token,
            prefix,
            self._stale_after,
            self._longest,
            when_long.value,
            len(held),
            *held,
            *(job.encode() for job in jobs),
        ]
        with translated("hand back jobs", self._client):
            return bool(self._tried([hold.box], partial(self._hand_back, keys=_keys(hold.box), args=arguments)))

    def give_way(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        """Leaves these buckets; returns those with which somebody else has finished, which stay."""
        return self._leases.give_way(hold, buckets)

    def finish(self, box: Box, jobs: Sequence[Job]) -> None:
        """Somebody has finished with these buckets, on which it worked without leases."""
        elements = [job.encode() for job in jobs]
        arguments: Arguments = [keys.bucket_lease_prefix(box), self._stale_after, *elements]
        with translated("finish with buckets", self._client):
            self._tried([box], partial(self._finish, keys=_keys(box), args=arguments))

    def unattended(self, box: Box, buckets: Iterable[int]) -> list[int]:
        """The buckets neither in progress nor queued recently, ascending. A push decides whether older marks are valid."""
        asked = sorted(buckets)
        if not asked:
            return []
        with translated("look at the leases", self._client):
            holders, marks = self._tried([box], partial(self._look_at, box, asked))
            self._drop_endless(
                box, [bucket for bucket, holder in zip(asked, holders, strict=True) if holder is not None]
            )
        now = self._clock.now().timestamp()

        def queued(mark: bytes | None) -> bool:
            # Another host's clock may be far ahead, which does not make its marks any fresher.
            return abs(now - (_pushed_at(mark) or 0)) < self._stale_after

        looked = zip(asked, holders, marks, strict=True)
        return [bucket for bucket, holder, mark in looked if holder is None and not queued(mark)]

    def in_work(self, box: Box) -> frozenset[int]:
        """The buckets whose last holder has not released them, whether it works on them or died."""
        with translated("look at the buckets in work", self._client):
            buckets = self._tried([box], partial(self._client.hkeys, keys.in_work(box)))
        return frozenset(int(bucket) for bucket in cast("list[bytes]", buckets) if is_number(bucket))

    def state(self, box: Box) -> QueueState:
        """Length and age of the box's queue; no age where the oldest element is no job."""
        with translated("look at the queue", self._client):
            length, oldest = self._tried([box], partial(self._look, box))
        return QueueState(length, _pushed_at(oldest))

    def ping(self) -> None:
        """Returns if the server answers and takes writes."""
        with translated("be used", self._client):
            pipeline = self._client.pipeline(transaction=False)
            pipeline.ping()
            pipeline.info("replication")
            pipeline.set(keys.NEVER_THERE, "", xx=True)
            pong, role, written = pipeline.execute(raise_on_error=False)
            if isinstance(pong, Exception):
                raise pong
            # A user without the right to ask for it (INFO) gets an error instead.
            if isinstance(role, dict) and role.get("role") == "slave" and role.get("slave_read_only", 1):
                raise ReadOnlyError("the server is a replica and takes no writes")
            # The user may lack the right to this key, or to this command outside of scripts.
            if isinstance(written, Exception) and not isinstance(written, NoPermissionError):
                raise ResponseError(f"the server takes no writes: {written}")

    def _token(self) -> str:
        """One that no other hold has, of whatever process."""
        return f"{self._name}{next(self._holds):x}"

    def _hold(self, box: Box, token: str, answer: _Taken, *, until: float) -> Hold | None:
        """What a script has taken under this token."""
        taken, corrupt, orphaned = answer
        if corrupt:
            self._on_corrupt(box, corrupt)
        if not taken:
            return None
        jobs = tuple(map(Job.decode, taken))
        return Hold(box, token, jobs, until, frozenset(job.bucket for job in jobs), frozenset(map(int, orphaned)))

    def _tried(self, boxes: Sequence[Box], call: Callable[[], _Answer]) -> _Answer:
        """Makes the call; if keys of these boxes are of a wrong type, deletes them and repeats the call once."""
        try:
            return call()
        except ResponseError as error:
            if not is_wrong_type(error):
                raise
        for box in boxes:
            foreign = drop_foreign(self._client, box)
            if foreign:
                self._on_corrupt(box, foreign)
        return call()

    def _look_at(self, box: Box, buckets: Sequence[int]) -> tuple[list[bytes | None], list[bytes | None]]:
        """The leases and the marks of these buckets."""
        prefix = keys.bucket_lease_prefix(box)
        pipeline = self._client.pipeline(transaction=False)
        pipeline.mget([f"{prefix}{bucket}:lock" for bucket in buckets])
        pipeline.hmget(keys.queued(box), list(map(str, buckets)))
        holders, marks = pipeline.execute()
        return holders, marks

    def _drop_endless(self, box: Box, held: Sequence[int]) -> None:
        """Deletes leases that outlast every worker; now and then, because such a one would bar its bucket for as long."""
        now = self._clock.monotonic()
        if not held or now - self._aged.get(box.name, -math.inf) < _AGES_EVERY:
            return
        self._aged[box.name] = now
        prefix = keys.bucket_lease_prefix(box)
        names = [f"{prefix}{bucket}:lock" for bucket in held]
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.pttl(name)
        longest = milliseconds(LONGEST_LEASE)
        endless = [name for name, left in zip(names, pipeline.execute(), strict=True) if left == -1 or left > longest]
        if endless:
            self._client.delete(*endless)
            self._on_corrupt(box, [f"the key {name}, a lease without an end".encode() for name in endless])

    def _look(self, box: Box) -> tuple[int, bytes | None]:
        pipeline = self._client.pipeline(transaction=False)
        pipeline.llen(keys.job_queue(box))
        pipeline.lindex(keys.job_queue(box), -1)
        length, oldest = pipeline.execute()
        return int(length), oldest

    def _pop(self, boxes: Sequence[Box], wait: timedelta) -> tuple[Box, bytes] | None:
        """One job of any of the boxes. Redis serves the first list that has one, so the order changes every time."""
        if not boxes:
            return None
        turn = next(self._turns) % len(boxes)
        by_key = {keys.job_queue(box).encode(): box for box in (*boxes[turn:], *boxes[:turn])}
        if wait > timedelta(0):
            self._bell = keys.bell(boxes[0], self._name)
            every = [*by_key, self._bell.encode()]
            popped = self._client.brpop(every, timeout=min(wait.total_seconds(), self._longest_block))
        else:
            # BRPOP takes zero to mean "without end", and even the shortest other wait lasts until the server's next tick.
            popped = self._pop_now(keys=[*by_key])
        if popped is None:
            return None
        key, element = cast("tuple[bytes, bytes]", popped)
        return (by_key[key], element) if key in by_key else None

    def _ring(self) -> None:
        if self._bell is None:
            return
        # Who stops may close the client meanwhile. The driver then reads from a buffer that is closed, a ValueError, or gone,
        # an AttributeError.
        with contextlib.suppress(RedisError, OSError, ValueError, AttributeError):
            pipeline = self._client.pipeline(transaction=True)
            pipeline.lpush(self._bell, "stop")
            pipeline.pexpire(self._bell, _BELL_RINGS)
            pipeline.execute()


def _keys(box: Box) -> list[str]:
    return [keys.job_queue(box), keys.queued(box), keys.wanted(box), keys.in_work(box)]


def _pushed_at(element: bytes | None) -> int | None:
    if element is None:
        return None
    try:
        return Job.decode(element).pushed_at
    except ValueError:
        return None
