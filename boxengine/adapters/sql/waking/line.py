"""The connection on which a thread notifies for the transactions of a process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import Any
from weakref import ref

from sqlalchemy import (
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

from boxengine.adapters.announcer import Send
from boxengine.adapters.sql.waking.listen import CHANNEL
from boxengine.ports import Signal


class Line:
    """Sends on a connection of the engine's pool, while the block runs. Belongs to one thread.

    The connection stays out as long as the pool has others. Returned after each sending, it would change places with the
    writers': two connections by turns take a tenth more time from a writer than one does. Without a pool (``NullPool``) it
    stays out as long as there is something to send.
    """

    def __init__(self, engine: Engine, known: ref[Pool], *, failed: Callable[[], object]) -> None:
        """Connects at the first sending.

        Args:
            known: the engine's pool for as long as the application has not disposed of that.
            failed: called when the database could not be told. These hints are lost, which costs one poll interval.
        """
        self._engine = engine
        self._known = known
        self._failed = failed
        self._driver_errors: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._connection: PoolProxiedConnection | None = None
        self._mode: Any = None
        """The connection's own ``autocommit``."""

    def __enter__(self) -> Send:
        return self._send

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._return()

    def _send(self, signals: list[Signal]) -> None:
        try:
            # Through the driver: Core would take twice the time for it, and that from the threads that write.
            cursor = self._connected().cursor()
            try:
                cursor.execute(*notification_of(signals, self._engine.dialect))
            finally:
                cursor.close()
        except Exception:  # the application's listeners and token providers raise what they like
            self._failed()
            connection, self._connection = self._connection, None
            if connection is not None:
                _drop(connection)
        pool = self._known()
        if pool is None or pool is not self._engine.pool or _is_used_up(pool):
            self._return()

    def _connected(self) -> Any:
        """The driver's connection, in autocommit mode: every synchronous PostgreSQL driver of SQLAlchemy has that."""
        if self._connection is None:
            self._connection = self._engine.raw_connection()
            driver: Any = self._connection.dbapi_connection
            self._mode = driver.autocommit
            try:
                driver.autocommit = True
            except self._driver_errors:  # a listener of the application's has begun a transaction
                driver.commit()
                driver.autocommit = True
        return self._connection.dbapi_connection

    def _return(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            self._give_back(connection)
        except Exception:  # a listener's: the thread goes on
            self._failed()
            _drop(connection)

    def _give_back(self, connection: PoolProxiedConnection) -> None:
        pool = self._known()
        if self._engine.pool is pool:
            driver: Any = connection.dbapi_connection
            try:
                driver.autocommit = self._mode
            except self._driver_errors:  # it has been lost meanwhile
                connection.invalidate()
        else:
            # The application has disposed of its engine: nobody closes a connection returned to the old pool.
            connection.invalidate()
        connection.close()
        if pool is not None and self._engine.pool is not pool:
            pool.dispose()  # it was disposed of while the connection was being returned


def _drop(connection: PoolProxiedConnection) -> None:
    with suppress(Exception):  # a listener's again
        connection.invalidate()
        connection.close()


def has_one_connection(pool: QueuePool) -> bool:
    """Whether the pool never gives out a second connection beside the first."""
    return pool.size() == 1 and _is_fixed(pool)


def _is_used_up(pool: Pool) -> bool:
    if not isinstance(pool, QueuePool):
        return False
    spare = pool.size() - pool.checkedout()
    return spare < 0 or (spare == 0 and _is_fixed(pool))


def _is_fixed(pool: QueuePool) -> bool:
    """Whether the pool opens no connections beyond its size."""
    return pool._max_overflow == 0  # noqa: SLF001 - SQLAlchemy tells it nowhere else; -1: as many as are asked for


def notification_of(signals: list[Signal], dialect: Dialect) -> tuple[str, Any]:
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
