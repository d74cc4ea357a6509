"""Moves NOTIFY out of the application's transactions while many of them commit.

PostgreSQL lets one notifying transaction commit at a time, its wait for the disk included: with 16 writers a fifth as many
transactions commit as without. A lone transaction pays nothing, and a NOTIFY in it wakes a worker soonest. So
a process notifies in its transactions while its commits are far apart. While they are close, one thread (on an event loop, a
task) notifies after the commits, once for all since its last time. A transaction that only notifies does not wait for the disk.
"""

from __future__ import annotations

import threading
from functools import lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary, ref

from sqlalchemy import (
    Connection,
    Dialect,
    Engine,
    Pool,
    PoolProxiedConnection,
    QueuePool,
    String,
    bindparam,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import SQLAlchemyError

from boxengine.adapters.announcer import Announcer, TaskAnnouncer
from boxengine.adapters.sql.waking.after_commit import Send
from boxengine.adapters.sql.waking.listen import CHANNEL
from boxengine.ports import Clock, Signal

FAR_APART = 0.04
"""With this many seconds between two items of a process, each transaction notifies by itself."""
BROKEN_FOR = 10.0
"""Seconds for which transactions notify by themselves after the thread has failed to."""


class EasedNotify:
    """Decides for each insertion of a process who notifies. Shared by its boxes and threads."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._last = self._broken_until = float("-inf")
        self._announcers: WeakKeyDictionary[Pool, Announcer | TaskAnnouncer] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def sender(self, connection: Connection) -> Send | None:
        """What to call after the commit; None: the transaction should notify by itself."""
        now = self._clock.monotonic()
        far_apart, self._last = now - self._last >= FAR_APART, now
        if far_apart or now < self._broken_until:
            return None
        engine = connection.engine
        # The thread needs a connection of its own, which a pool that shares its only connection cannot give.
        if not isinstance(engine.pool, QueuePool):
            return None
        # On a loop, a single writer would gain nothing and only wait for the task.
        if engine.dialect.is_async and engine.pool.checkedout() <= 1:
            return None
        with self._lock:
            announcer = self._announcers.get(engine.pool)
            if announcer is None:
                announcer = self._announcer(engine, ref(engine.pool))
                self._announcers[engine.pool] = announcer
        return announcer.tell

    def _announcer(self, engine: Engine, known: ref[Pool]) -> Announcer | TaskAnnouncer:
        if engine.dialect.is_async:
            return TaskAnnouncer(partial(self._notify_on_loop, engine, known))
        return Announcer(partial(self._notify, engine, known))

    def _notify(self, engine: Engine, known: ref[Pool], signals: list[Signal]) -> None:
        pool = known()
        # Through the driver: Core would take twice the time for it, and that from the threads that write.
        driver_errors: type[Exception] = engine.dialect.loaded_dbapi.Error
        connection: PoolProxiedConnection | None = None
        try:
            connection = engine.raw_connection()
            _execute(connection.dbapi_connection, *_notifying(signals, engine.dialect))
            if engine.pool is not pool:
                # The application has disposed of its engine: nobody closes a connection returned to the old pool.
                connection.invalidate()
        except (SQLAlchemyError, driver_errors):
            # These hints are lost, which costs one poll interval.
            self._broken_until = self._clock.monotonic() + BROKEN_FOR
            if connection is not None:
                connection.invalidate()
        finally:
            if connection is not None:
                connection.close()
        if pool is not None and engine.pool is not pool:
            pool.dispose()  # it was disposed of while the connection was being returned

    async def _notify_on_loop(self, engine: Engine, known: ref[Pool], signals: list[Signal]) -> None:
        # There already where an application has such an engine.
        from sqlalchemy.ext.asyncio import AsyncEngine  # noqa: PLC0415
        from sqlalchemy.util import greenlet_spawn  # noqa: PLC0415

        pool = known()
        try:
            connection = await AsyncEngine(engine).connect()
            try:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                await connection.exec_driver_sql(*_notifying(signals, engine.dialect))
            finally:
                # Also if the loop ends and cancels the task; as above.
                if engine.pool is not pool:
                    await connection.invalidate()
                # Not by the connection's own block: that leaves it to another task, which the loop cancels, too.
                await connection.close()
        except (SQLAlchemyError, OSError):
            self._broken_until = self._clock.monotonic() + BROKEN_FOR
        finally:
            if pool is not None and engine.pool is not pool:
                await greenlet_spawn(pool.dispose)


def _execute(driver: Any, statement: str, values: Any) -> None:
    """Runs it in a transaction of its own. Every synchronous PostgreSQL driver of SQLAlchemy has ``autocommit``."""
    before, driver.autocommit = driver.autocommit, True
    cursor = driver.cursor()
    try:
        cursor.execute(statement, values)
    finally:
        cursor.close()
        driver.autocommit = before


def _notifying(signals: list[Signal], dialect: Dialect) -> tuple[str, Any]:
    """One statement that sends all of them, with its values, as the driver takes both."""
    text, positional = _compiled(dialect)
    texts = Signal.encode_all(signals)
    return text, (texts,) if positional else {"texts": texts}


@lru_cache(maxsize=16)
def _compiled(dialect: Dialect) -> tuple[str, bool]:
    """Compiled once: at every execution Core would take more time from the writers than the server does."""
    texts = bindparam("texts", type_=ARRAY(String))
    channel = literal_column(f"'{CHANNEL}'", String)
    compiled: Any = select(func.pg_notify(channel, func.unnest(texts))).compile(dialect=dialect)
    return str(compiled), compiled.positional
