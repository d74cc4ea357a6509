"""Moves NOTIFY out of the application's transactions while many of them commit.

PostgreSQL lets one notifying transaction commit at a time, its wait for the disk included: with 16 writers a fifth as many
transactions commit as without. A lone transaction pays nothing, and a NOTIFY in it wakes a worker soonest. So
a process notifies in a transaction if it has not done so for a moment, and nobody else is about to notify. Otherwise one
thread (on an event loop, a task) notifies after the commits, once for all since its last time. A transaction that only notifies
does not wait for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from weakref import ref

from sqlalchemy import AsyncAdaptedQueuePool, Connection, Engine, NullPool, Pool, QueuePool
from sqlalchemy.engine import TwoPhaseTransaction

from boxengine.adapters.announcer import Announcer, Pace, TaskAnnouncer
from boxengine.adapters.sql.waking.line import Line, has_one_connection, notification_of
from boxengine.adapters.sql.waking.notifying import IN_TRANSACTION, Way
from boxengine.ports import Clock, Signal

OFTEN = 0.5
"""Of the time for which the thread lets commits gather: after this, a transaction of the process may notify once more. Sooner
than the thread, so that at a moderate rate most items need no thread; no more often where the servers are at their limit."""
BROKEN_FOR = 10.0
"""Seconds for which transactions notify by themselves after the thread has failed to."""


class _Ways(NamedTuple):
    """How the wake-ups of an engine's transactions are sent."""

    in_turn: Way
    """For one transaction now and then."""
    later: Way
    """For those in between."""
    pace: Pace
    """Of the thread or task."""
    hangs: Callable[[], bool]
    """Whether the thread or task waits for a server that does not answer."""


_ALWAYS = _Ways(IN_TRANSACTION, IN_TRANSACTION, Pace(), lambda: False)
_NOT_AT_ALL = Way(lambda _signals: None, in_transaction=False)
"""Nobody can be told, which costs one poll interval."""


class EasedNotify:
    """Decides for each insertion of a process who notifies. Shared by its boxes and threads."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._last_turn = self._broken_until = float("-inf")
        self._ways_here = f"_boxengine_ways_{id(self)}"
        """The attribute of a pool that holds its ways. They live as long as the pool; a dictionary here would keep every engine
        for ever. While they name an announcer, they keep this object, whose number is then no other's."""

    def way(self, connection: Connection) -> Way:
        """How the wake-up of the connection's transaction is sent."""
        now = self._clock.monotonic()
        if now < self._broken_until:
            way = IN_TRANSACTION
        else:
            engine = connection.engine
            ways = getattr(engine.pool, self._ways_here, None) or self._ways(engine)
            if ways.hangs():
                way = IN_TRANSACTION
            # On a loop, a single writer would gain nothing and only wait for the task.
            elif now - self._last_turn >= OFTEN * ways.pace.gap or (
                isinstance(engine.pool, AsyncAdaptedQueuePool) and engine.pool.checkedout() <= 1
            ):
                self._last_turn = now
                way = ways.in_turn
            else:
                way = ways.later
        # By its attribute: the public ``get_transaction`` would be one more call for each insertion.
        if way.in_transaction and isinstance(connection._transaction, TwoPhaseTransaction):  # noqa: SLF001
            return self._beside(connection.engine)
        return way

    def _beside(self, engine: Engine) -> Way:
        """For a transaction that must not notify: PostgreSQL refuses to prepare one that has."""
        way = self._ways(engine).later
        return _NOT_AT_ALL if way.tell is None else way

    def _ways(self, engine: Engine) -> _Ways:
        pool = engine.pool
        known: _Ways | None = getattr(pool, self._ways_here, None)
        if known is not None:
            return known
        # Without a lock, which another thread could hold at a fork: of two threads, both take what the first has left.
        ways: _Ways = pool.__dict__.setdefault(self._ways_here, self._new_ways(engine, pool))
        return ways

    def _new_ways(self, engine: Engine, pool: Pool) -> _Ways:
        if not _can_spare_one(pool):
            return _ALWAYS
        announcer = self._announcer(engine, ref(pool))
        tell = announcer.tell
        return _Ways(Way(tell, in_transaction=True), Way(tell, in_transaction=False), announcer.pace, announcer.hangs)

    def _announcer(self, engine: Engine, known: ref[Pool]) -> Announcer | TaskAnnouncer:
        if engine.dialect.is_async:
            return TaskAnnouncer(partial(self._notify_on_loop, engine, known))
        return Announcer(partial(Line, engine, known, failed=self._failed))

    def _failed(self) -> None:
        self._broken_until = self._clock.monotonic() + BROKEN_FOR

    async def _notify_on_loop(self, engine: Engine, known: ref[Pool], signals: list[Signal]) -> None:
        # There already where an application has such an engine.
        from sqlalchemy.ext.asyncio import AsyncEngine  # noqa: PLC0415
        from sqlalchemy.util import greenlet_spawn  # noqa: PLC0415

        pool = known()
        try:
            connection = await AsyncEngine(engine).connect()
            try:
                # Where a listener of the application's has begun a transaction, the mode stays as it is.
                await connection.run_sync(lambda plain: plain.connection.commit())
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                await connection.exec_driver_sql(*notification_of(signals, engine.dialect))
            finally:
                # Also if the loop ends and cancels the task: nobody closes a connection returned to a pool disposed of.
                if engine.pool is not pool:
                    await connection.invalidate()
                # Not by the connection's own block: that leaves it to another task, which the loop cancels, too.
                await connection.close()
        except Exception:  # the application's listeners and token providers raise what they like
            self._failed()
        finally:
            if pool is not None and engine.pool is not pool:
                await greenlet_spawn(pool.dispose)


def _can_spare_one(pool: Pool) -> bool:
    """Whether a pool has a connection for the thread beside that of a transaction."""
    return isinstance(pool, NullPool) or (isinstance(pool, QueuePool) and not has_one_connection(pool))
