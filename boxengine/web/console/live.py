"""One look that all pages and tabs share; while nobody watches, none is taken."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)
EVERY = 2.0
"""Seconds between two refreshes."""
STALE = 10.0
"""Seconds after which nobody has watched for a while, so that a page waits a moment for a newer look."""
PATIENCE = 0.1
"""How many seconds it waits."""
AFTER_CHANGE = 0.1
"""How many seconds a page waits for a look that shows what somebody has just changed. An open page shows it soon after anyway."""


class Recent(NamedTuple, Generic[T]):
    """What is known at once."""

    look: T | None
    """None: the first look is under way."""
    age: timedelta
    newer: bool
    """Whether a newer one is under way."""


class Live(Generic[T]):
    """Takes looks at an interval while somebody watches."""

    def __init__(
        self, look: Callable[[], T], *, every: float = EVERY, told: Callable[[T], None] = lambda _: None
    ) -> None:
        """Args:
        every: the least number of seconds between two looks.
        told: called with each look, in the thread that took it.
        """
        self._look = look
        self._told = told
        self._every = every
        self._lock = threading.Lock()
        """Held during a look, however long that takes."""
        self._starting = threading.Lock()
        self._latest: T | None = None
        self._taken = -1e9
        self._changes = 0
        self._known_changes = 0
        """How many of the changes the latest look shows."""
        self._watching = threading.Lock()
        """Guards the watchers and their thread. The event loop takes it, so nobody holds it for long."""
        self._watchers: set[_Watcher[T]] = set()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._under_way: Future[T] | None = None

    def now(self, *, fresh: bool = False) -> T:
        """The latest look, or a new one if that is too old or the caller wants a ``fresh`` one."""
        with self._lock:
            if fresh or self._latest is None or self._is_old:
                changes = self._changes
                self._latest = self._look()
                self._taken, self._known_changes = monotonic(), changes
                self._told(self._latest)
            return self._latest

    @property
    def known(self) -> T | None:
        """The latest look, without a wait; None: there is none yet."""
        return self._latest

    def latest(self) -> T:
        """The latest look, without waiting for a newer one that is under way.

        The caller waits only if there is no look yet, for ``AFTER_CHANGE`` if something has changed, and for ``PATIENCE`` if
        nobody has watched for a while.
        """
        latest = self._latest
        if latest is None:
            return self.now()
        if self._known_changes != self._changes:
            return self._changed(patience=AFTER_CHANGE) or latest
        recent = self.recent(patience=PATIENCE if self._age.total_seconds() > STALE else 0.0)
        return latest if recent.look is None else recent.look

    def recent(self, *, patience: float) -> Recent[T]:
        """The latest look, however old. If it is too old, a new one begins, and the caller waits this many seconds for it."""
        if self._is_old:
            under_way = self._refresh()
            if wait_for([under_way], patience).done:
                return Recent(under_way.result(), timedelta(0), newer=False)
            return Recent(self._latest, self._age, newer=True)
        return Recent(self._latest, self._age, newer=False)

    def _changed(self, *, patience: float) -> T | None:
        """A look that shows the latest change; if there is none within so many seconds, the latest look."""
        until = monotonic() + patience
        while self._known_changes != self._changes:
            # The one under way may have begun before the change.
            under_way = self._refresh()
            if not wait_for([under_way], max(0.0, until - monotonic())).done:
                break
            under_way.result()
        return self._latest

    @property
    def _age(self) -> timedelta:
        return timedelta(seconds=monotonic() - self._taken)

    @property
    def _is_old(self) -> bool:
        return self._known_changes != self._changes or monotonic() - self._taken > self._every

    def _refresh(self) -> Future[T]:
        """The new look; there is never more than one."""
        with self._starting:
            if self._under_way is None or self._under_way.done():
                under_way = Future[T]()
                threading.Thread(
                    target=self._fulfil, args=(under_way,), name="boxengine-console-look", daemon=True
                ).start()
                self._under_way = under_way  # now that somebody fulfils it: the system may have no thread left
            return self._under_way

    def _fulfil(self, promised: Future[T]) -> None:
        try:
            promised.set_result(self.now())
        except Exception as error:  # for whoever waits for it
            promised.set_exception(error)

    def forget(self) -> None:
        """Makes the next look a new one, because something has changed."""
        self._changes += 1
        self._wake.set()

    def keep_looking(self, *, every: float) -> None:
        """Takes a look every ``every`` seconds until the process ends, even while nobody watches."""

        def keep() -> None:
            pause = threading.Event()
            while True:
                try:
                    self.now()
                except Exception:  # the next look may do better
                    logger.exception("the console could not read the state of the boxes")
                pause.wait(every)

        threading.Thread(target=keep, name="boxengine-console-keeper", daemon=True).start()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Callable[[], Awaitable[T]]]:
        """Yields what waits for the next look; canceling a wait loses nothing.

        The next look replaces one that was not consumed in time.
        """
        watcher = _Watcher[T](asyncio.get_running_loop())
        with self._watching:
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name="boxengine-console-live", daemon=True)
                thread.start()
                self._thread = thread
            self._watchers.add(watcher)
        try:
            yield watcher.next
        finally:
            with self._watching:
                self._watchers.discard(watcher)

    def _watch(self) -> None:
        while True:
            try:
                latest: T | None = self.now()
            except Exception:  # the next look may do better, and the tabs show how old theirs is
                logger.exception("the console could not read the state of the boxes")
                latest = None
            with self._watching:
                watchers = list(self._watchers)
                if not watchers:
                    self._thread = None
                    return
            if latest is not None:
                for watcher in watchers:
                    watcher.tell(latest)
            self._wake.wait(self._every)
            self._wake.clear()


class _Watcher(Generic[T]):
    """One open tab, which receives looks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[T] = asyncio.Queue(maxsize=1)

    def tell(self, look: T) -> None:
        """Hands over a look; called from the thread that took it."""
        try:
            self._loop.call_soon_threadsafe(self._put, look)
        except RuntimeError:
            return  # the loop has ended, and the tab with it

    async def next(self) -> T:
        return await self._queue.get()

    def _put(self, look: T) -> None:
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(look)
