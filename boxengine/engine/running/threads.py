"""Threads that repeat a turn until they are stopped. They survive errors, and each has a name for when it will not stop."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta

from boxengine.engine.attempt import ends_the_worker, text_of
from boxengine.engine.running.health import Health, LoopProgress
from boxengine.engine.running.outages import Outages
from boxengine.ports import Clock

RESTART_AFTER = 1.0
"""Seconds before a thread that ended is replaced, because the cause may last for a moment."""


class ThreadGroup:
    """A group of threads that run the same turn.

    A turn returns the pause before the next one, and only this group waits, on the stop event. If a turn raises, the group
    reports it once per outage, waits with growing pauses and tries again. If a thread ends all the same, the group reports
    and replaces it; until then the worker is not alive.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], timedelta],
        *,
        count: int = 1,
        limit: timedelta,
        health: Health,
        clock: Clock,
        outages: Outages,
        randomness: random.Random,
    ) -> None:
        """Args:
        limit: a turn that takes longer counts as hanging.
        """
        self.name = name
        self._turn = turn
        self._limit = limit
        self._health = health
        self._clock = clock
        self._outages = outages
        self._random = randomness
        self._stopping = threading.Event()
        self._threads = [self._thread(f"boxengine-{name}-{number}") for number in range(count)]
        self._replacing = threading.Lock()
        self._started = False

    def start(self) -> None:
        """Starts the threads. A second call does nothing."""
        if not self._started:
            self._started = True
            for thread in self._threads:
                thread.start()

    def ask_to_stop(self) -> None:
        """Lets no further turn begin. Does not wait for the turns under way."""
        self._stopping.set()

    def join(self, *, until: float) -> list[str]:
        """Waits for the threads until this monotonic time. Returns the names of those that still run."""
        if not self._started:
            return []
        stuck = []
        for number in range(len(self._threads)):
            with self._replacing:
                thread = self._threads[number]
            if thread.ident is None:
                continue  # it could not be started
            thread.join(max(0.0, until - self._clock.monotonic()))
            if thread.is_alive():
                stuck.append(thread.name)
        return stuck

    def _thread(self, name: str, *, instead_of: LoopProgress | None = None) -> threading.Thread:
        return threading.Thread(target=self._run, args=(instead_of,), name=name, daemon=True)

    def _run(self, instead_of: LoopProgress | None) -> None:
        if instead_of is not None:
            self._stopping.wait(RESTART_AFTER)
            self._health.forget(instead_of)
        progress = self._health.loop(threading.current_thread().name, limit=self._limit)
        try:
            while not self._stopping.is_set():
                pause = self._take_turn(progress)
                progress.tick(pause=timedelta(seconds=pause))
                if pause:
                    self._stopping.wait(pause)
        except BaseException as error:  # not raised by a turn, but by an observer or error tracker
            self._replace(progress, error)
        else:
            self._health.forget(progress)

    def _replace(self, progress: LoopProgress, error: BaseException) -> None:
        progress.died(f"{type(error).__name__}: {text_of(error)}")
        me = threading.current_thread()
        with self._replacing:
            self._threads[self._threads.index(me)] = successor = self._thread(me.name, instead_of=progress)
            successor.start()

    def _take_turn(self, progress: LoopProgress) -> float:
        progress.tick()
        try:
            pause = self._turn().total_seconds()
        except BaseException as error:  # a loop must survive whatever its turn raises, SystemExit included
            if ends_the_worker(error):
                raise
            # Threads that fail at the same moment should not retry at the same moment.
            return self._outages.failed(self.name, error) * (0.5 + self._random.random() / 2)
        self._outages.worked(self.name)
        return pause
