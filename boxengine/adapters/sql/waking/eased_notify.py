"""Moves NOTIFY out of the application's transactions while many of them commit.

PostgreSQL lets one notifying transaction commit at a time, its wait for the disk included: with 16 writers a fifth as many
transactions commit as without. A lone transaction pays nothing, and a NOTIFY in it wakes a worker soonest. So
a process notifies in its transactions while its commits are far apart and no other process is about to notify. Otherwise one
thread (on an event loop, a task) notifies after the commits, once for all since its last time. A transaction that only notifies
does not wait for the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary, ref

from sqlalchemy import AsyncAdaptedQueuePool, Connection, Engine, Pool, QueuePool
from sqlalchemy.exc import SQLAlchemyError

from boxengine.adapters.announcer import Announcer, TaskAnnouncer
from boxengine.adapters.sql.waking.line import Line, notifying
from boxengine.adapters.sql.waking.notifying import IN_TRANSACTION, Way
from boxengine.ports import Clock, Signal

FAR_APART = 0.04
"""With this many seconds between two items of a process, each transaction notifies by itself."""
BROKEN_FOR = 10.0
"""Seconds for which transactions notify by themselves after the thread has failed to."""


class _Ways(NamedTuple):
    """How the wake-ups of an engine's transactions are sent."""

    far_apart: Way
    close: Way
    """While items of this process follow each other closely."""


class EasedNotify:
    """Decides for each insertion of a process who notifies. Shared by its boxes and threads."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._last = self._broken_until = float("-inf")
        self._announcers: WeakKeyDictionary[Pool, Announcer | TaskAnnouncer] = WeakKeyDictionary()
        self._latest: tuple[Callable[[], Pool | None], _Ways] = (lambda: None), _Ways(IN_TRANSACTION, IN_TRANSACTION)
        """The ways of the last transaction's pool: to look them up anew would take longer than all else here."""
        self._lock = threading.Lock()

    def way(self, connection: Connection) -> Way:
        """How the wake-up of the connection's transaction is sent."""
        now = self._clock.monotonic()
        far_apart, self._last = now - self._last >= FAR_APART, now
        if now < self._broken_until:
            return IN_TRANSACTION
        engine = connection.engine
        known, ways = self._latest
        if known() is not engine.pool:
            ways = self._ways(engine)
        # On a loop, a single writer would gain nothing and only wait for the task.
        if far_apart or (isinstance(engine.pool, AsyncAdaptedQueuePool) and engine.pool.checkedout() <= 1):
            return ways.far_apart
        return ways.close

    def _ways(self, engine: Engine) -> _Ways:
        # The thread needs a connection of its own, which a pool that shares its only connection cannot give.
        if not isinstance(engine.pool, QueuePool):
            return _Ways(IN_TRANSACTION, IN_TRANSACTION)
        with self._lock:
            announcer = self._announcers.get(engine.pool)
            if announcer is None:
                announcer = self._announcer(engine, ref(engine.pool))
                self._announcers[engine.pool] = announcer
        ways = _Ways(Way(announcer.tell, in_transaction=True), Way(announcer.tell, in_transaction=False))
        self._latest = ref(engine.pool), ways
        return ways

    def _announcer(self, engine: Engine, known: ref[QueuePool]) -> Announcer | TaskAnnouncer:
        if engine.dialect.is_async:
            return TaskAnnouncer(partial(self._notify_on_loop, engine, known))
        return Announcer(partial(Line, engine, known, failed=self._failed))

    def _failed(self) -> None:
        self._broken_until = self._clock.monotonic() + BROKEN_FOR

    async def _notify_on_loop(self, engine: Engine, known: ref[QueuePool], signals: list[Signal]) -> None:
        # There already where an application has such an engine.
        from sqlalchemy.ext.asyncio import AsyncEngine  # noqa: PLC0415
        from sqlalchemy.util import greenlet_spawn  # noqa: PLC0415

        pool = known()
        try:
            connection = await AsyncEngine(engine).connect()
            try:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                await connection.exec_driver_sql(*notifying(signals, engine.dialect))
            finally:
                # Also if the loop ends and cancels the task: nobody closes a connection returned to a pool disposed of.
                if engine.pool is not pool:
                    await connection.invalidate()
                # Not by the connection's own block: that leaves it to another task, which the loop cancels, too.
                await connection.close()
        except (SQLAlchemyError, OSError):
            self._failed()
        finally:
            if pool is not None and engine.pool is not pool:
                await greenlet_spawn(pool.dispose)
