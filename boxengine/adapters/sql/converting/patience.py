"""Waits for the locks of a switch in such a way that writers never wait long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, text

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.log.under_way import DeliveryUnderWay
from boxengine.errors import StoreConflict

_HOLDERS = text(
    "SELECT a.pid, coalesce(nullif(a.application_name, ''), a.usename), x.gid, "
    "CAST(extract(epoch FROM clock_timestamp() - coalesce(x.prepared, a.xact_start)) AS bigint) "
    "FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid "
    # No process has a prepared transaction; only its lock on itself says which it is.
    "LEFT JOIN pg_locks AS own ON l.pid IS NULL AND own.pid IS NULL AND own.locktype = 'transactionid' AND own.granted "
    "AND own.virtualtransaction = l.virtualtransaction LEFT JOIN pg_prepared_xacts AS x ON x.transaction = own.transactionid "
    "WHERE l.granted AND l.relation = ANY(SELECT to_regclass(name) FROM unnest(CAST(:tables AS text[])) AS name) "
    "AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()) "
    "AND (l.mode NOT IN ('AccessShareLock', 'RowShareLock') OR :readers) AND (a.pid IS NOT NULL OR x.gid IS NOT NULL) "
    "ORDER BY coalesce(x.prepared, a.xact_start) LIMIT 1"
)
"""The oldest transaction in the way. A database made from a template has tables of the same numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How a step tries to get its locks."""

    lock_timeout: float
    """Seconds for which one attempt may hold up writers. Below PostgreSQL's ``deadlock_timeout`` (1 s), no writer is ever ended
    for it."""
    attempts: int
    pause: float = 1.0
    """Seconds between two attempts, in which writers go on."""
    wait: Callable[[float], object]
    """Waits so many seconds."""
    tell: Callable[[str], object]
    """Shows a line of progress."""

    def insist(self, engine: Engine, tables: list[str], step: Callable[[], None], *, readers: bool = False) -> None:
        """Takes the step, again and again while somebody else holds a lock that it needs.

        Args:
            tables: those that it locks, quoted.
            readers: whether mere readers are in its way, too.

        Raises:
            StoreConflict: after the last attempt, with the transaction in the way.
            DeliveryUnderWay: at once, as the step itself has waited long enough for it.
        """
        for attempt in range(1, self.attempts + 1):
            try:
                return step()
            except DeliveryUnderWay:
                raise
            except StoreConflict as error:
                held = _in_the_way(engine, tables, readers=readers)
                if attempt == self.attempts:
                    raise StoreConflict(f"{held}; the same command goes on from here") from error
                self.tell(f"{held}; attempt {attempt} of {self.attempts}")
                self.wait(self.pause)
        return None


def _in_the_way(engine: Engine, tables: Sequence[str], *, readers: bool) -> str:
    """Who holds a lock on the tables."""
    with translated(engine), engine.connect() as connection:
        holder = connection.execute(_HOLDERS, {"tables": list(tables), "readers": readers}).one_or_none()
    if holder is None:
        return "a lock was not to be had"
    pid, name, prepared, seconds = holder
    if prepared is not None:
        return (
            f"a transaction that was prepared {seconds} s ago as {prepared} is in the way, until COMMIT PREPARED or ROLLBACK "
            "PREPARED ends it"
        )
    # Of other accounts' transactions the server tells it only to members of pg_read_all_stats.
    return f"process {pid} ({name}) is in the way" + ("" if seconds is None else f", with a transaction of {seconds} s")
