"""Sends wake-ups beside the application's work, so that none of its commits waits for that."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, suppress
from contextvars import Context
from math import inf

from boxengine.errors import Unavailable
from boxengine.ports import Signal

Send = Callable[[list[Signal]], None]

MOST = 1000
"""Signals that wait for a server that is slow; then only their boxes are remembered."""

SHARE = 1 / 10
"""An announcer spends at most this share of its time on sending, which takes time from those that write. While many write, a
sending takes longer, and commits gather for longer. No smaller share then: it gave 64 writing processes back an eighth of their
commits, but at 5,000 items/s the p99 of a fresh item rose from 110 to 400 ms."""
SHORTEST, LONGEST = 0.01, 0.4
"""Seconds for which commits gather before the next sending. A busy worker looks by itself after the longest."""
WEIGHT = 1 / 4
"""Of the last sending in the mean of all. One that the machine held up must not decide alone: at 200 transactions a second,
half of the items would wait for that one."""


HANGING = 5.0
"""Seconds after which a sending counts as hanging. A server that has vanished without closing its connections may keep one for a
quarter of an hour."""


class Pace:
    """How long commits gather before the next sending."""

    def __init__(self) -> None:
        self._usual = 0.0
        """Seconds that a sending takes."""
        self.gap = SHORTEST
        """Seconds."""

    def sent(self, took: float) -> None:
        """A sending took so many seconds."""
        self._usual += (took - self._usual) * WEIGHT
        self.gap = min(LONGEST, max(SHORTEST, self._usual / SHARE))


class _Gathered:
    """What waits in one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[Iterable[Signal]] = deque()
        self.sending = False
        self.began = inf
        """Monotonic time at which the sending under way has begun."""

    def begin(self) -> bool:
        """Whether nobody sends; the caller has to see to it then."""
        with self.lock:
            begins, self.sending = not self.sending, True
        return begins

    def next(self) -> list[Signal]:
        with self.lock:
            self.sending = False
            signals = list(self._taken())
            self.sending = bool(signals)
        return signals

    def join(self) -> None:
        with self.lock:
            self.waiting.append(list(self._taken()))

    def _taken(self) -> dict[Signal, None]:
        """All that waits, each once. Under the lock, so that what is joined is never missed meanwhile."""
        taken: dict[Signal, None] = {}
        for _ in range(len(self.waiting)):
            taken = _joined(taken, self.waiting.popleft())
        return taken


class Announcer:
    """Takes signals from any thread at once, and sends those of many commits together.

    Each process has its own. One for all processes of a machine sent 65 times where 64 processes had sent 3,400 times, and gave
    them no commit back: to hand the signals over took each of them as long.

    The thread lives only while there is something to send, and the interpreter waits for it before it exits: a program that
    ends right after its commit loses no hint.
    """

    def __init__(self, line: Callable[[], AbstractContextManager[Send]]) -> None:
        """Args:
        line: opens what a thread sends through, for each thread anew; the last one may still be closing its own.
        """
        self._line = line
        self.pace = Pace()
        self._gathered: dict[int, _Gathered] = {}
        """By process: threads do not live on in a forked one, which would find their lock as they held it."""

    def tell(self, signals: list[Signal]) -> None:
        """Has the signals sent; returns without waiting for that."""
        process = os.getpid()
        gathered = self._gathered.get(process)
        if gathered is None:  # of threads that tell first at once, all take what the first has left
            gathered = self._gathered.setdefault(process, _Gathered())
        # Without the lock, which the writers would wait for: ``next`` says that nobody sends before it takes what waits.
        gathered.waiting.append(signals)
        if len(gathered.waiting) > MOST:
            gathered.join()
        if not gathered.sending and gathered.begin():
            try:
                threading.Thread(target=self._run, args=[gathered], name="boxengine-announcer", daemon=False).start()
            except RuntimeError:
                # The system gives no more threads, or the interpreter exits. The caller has committed, so it must not see that;
                # what waits goes out with a later signal.
                gathered.sending = False

    def hangs(self) -> bool:
        """Whether a sending of this process has not ended for long, so that what is told now would have to wait."""
        gathered = self._gathered.get(os.getpid())
        return gathered is not None and time.monotonic() - gathered.began > HANGING

    def _run(self, gathered: _Gathered) -> None:
        try:
            with self._line() as send:
                while signals := gathered.next():
                    began = gathered.began = time.monotonic()
                    with suppress(Unavailable):  # the hints are lost, which costs one poll interval
                        send(signals)
                    gathered.began = inf
                    self.pace.sent(time.monotonic() - began)
                    time.sleep(self.pace.gap)
        except BaseException:
            gathered.began = inf
            gathered.sending = False  # else nobody would ever begin again
            raise


class _OfThread(threading.local):
    """What waits for the loops of one thread, which run one after the other. Loops of two threads may share an engine."""

    def __init__(self) -> None:
        self.waiting: dict[Signal, None] = {}
        self.task: asyncio.Task[None] | None = None
        self.began = inf
        """Monotonic time at which the sending under way has begun."""


class TaskAnnouncer:
    """The same on the committing code's event loop: a task sends the signals gathered meanwhile.

    A loop that ends right after the commit cancels the task; the hint is lost, which costs one poll interval.
    """

    def __init__(self, send: Callable[[list[Signal]], Awaitable[None]]) -> None:
        self._send = send
        self.pace = Pace()
        self._here = _OfThread()

    def tell(self, signals: list[Signal]) -> None:
        """Has the signals sent; returns without waiting for that. Call it on a running loop."""
        here = self._here
        here.waiting = _joined(here.waiting, signals)
        loop = asyncio.get_running_loop()
        if here.task is None or here.task.done() or here.task.get_loop() is not loop:
            # In a context of its own: what it does is no part of the request that happened to commit. Not by the loop: a task
            # factory of the application's may take no context, or begin the task at once, in the middle of the commit.
            here.task = asyncio.Task(self._run(), loop=loop, name="boxengine-announcer", context=Context())

    def hangs(self) -> bool:
        """As ``Announcer.hangs``, on this thread's loop."""
        return time.monotonic() - self._here.began > HANGING

    async def _run(self) -> None:
        here = self._here
        while here.waiting:
            signals, here.waiting = list(here.waiting), {}
            began = here.began = time.monotonic()
            try:
                await self._send(signals)
            finally:
                here.began = inf
            self.pace.sent(time.monotonic() - began)
            await asyncio.sleep(self.pace.gap)


def _joined(waiting: dict[Signal, None], signals: Iterable[Signal]) -> dict[Signal, None]:
    """The waiting signals joined with these; if there are too many, one for each box."""
    waiting.update(dict.fromkeys(signals))
    return (
        waiting if len(waiting) <= MOST else dict.fromkeys(signal._replace(bucket=None, due=True) for signal in waiting)
    )
