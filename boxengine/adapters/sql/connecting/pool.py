"""A pool that closes connections returned to it after it was disposed of."""

from __future__ import annotations

from sqlalchemy import QueuePool
from sqlalchemy.pool import ConnectionPoolEntry


class DisposablePool(QueuePool):
    """The pool of a worker, whose threads dispose of the engine while others are at work on its connections.

    An engine that is disposed of closes the idle connections of its pool and makes a new pool. A connection in use at that
    moment is returned to the old pool, which nobody uses any more: it would stay open until garbage collection.
    """

    # SQLAlchemy names a pool's logger after its module. Under `boxengine` it would tell of each lost connection at INFO,
    # the level of a worker; under `sqlalchemy` it is as quiet as any other pool.
    _sqla_logger_namespace = "sqlalchemy.pool.impl.DisposablePool"

    _disposed = False

    def dispose(self) -> None:
        # Set before the pool is emptied, so that a connection returned in between is closed by one of the two.
        self._disposed = True
        super().dispose()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if self._disposed:
            super().dispose()
