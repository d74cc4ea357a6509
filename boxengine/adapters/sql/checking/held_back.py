"""What keeps PostgreSQL from removing dead rows: old transactions, slots that nobody reads, queries on standbys."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from sqlalchemy import Connection, text

from boxengine.ports.people.checkup import Remark

_TRANSACTIONS = text(
    # No interval: some databases write those in a form that the driver does not read (intervalstyle).
    "SELECT pid, coalesce(application_name, ''), coalesce(state, ''), extract(epoch FROM now() - xact_start) "
    "FROM pg_stat_activity WHERE xact_start < now() - make_interval(secs => :long) AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend' ORDER BY xact_start LIMIT 20"
)
_PREPARED = text(
    "SELECT gid, extract(epoch FROM now() - prepared) FROM pg_prepared_xacts WHERE database = current_database() "
    "AND prepared < now() - make_interval(secs => :long) ORDER BY prepared LIMIT 20"
)
_SLOTS = text(
    "SELECT slot_name, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0) FROM pg_replication_slots "
    "WHERE NOT active AND NOT pg_is_in_recovery() ORDER BY 1 LIMIT 20"
)
_STANDBYS = text(
    # A standby with a slot reports to the slot, others to the connection.
    "SELECT held.by, held.age FROM ("
    "SELECT 'The standby ' || coalesce(nullif(application_name, ''), host(client_addr), 'pid ' || pid), age(backend_xmin) "
    "FROM pg_stat_replication UNION ALL "
    "SELECT 'The standby of the replication slot ' || slot_name, age(xmin) FROM pg_replication_slots WHERE active"
    ") AS held(by, age) WHERE held.age > :behind ORDER BY held.age DESC LIMIT 20"
)


def transactions(connection: Connection, longer_than: timedelta, *, area: str) -> Iterator[Remark]:
    """Transactions that have been open for longer, prepared ones too."""
    long = {"long": longer_than.total_seconds()}
    found = connection.execute(_TRANSACTIONS, long).all()
    for pid, name, state, seconds in found:
        whose = f"pid {pid}{f' ({name})' if name else ''}, {state or 'unknown'}"
        yield old_transaction(whose, seconds, f"SELECT pg_terminate_backend({pid})", area=area)
    prepared = connection.execute(_PREPARED, long).all()
    for gid, seconds in prepared:
        end = f"ROLLBACK PREPARED {_literal(gid)}"
        yield old_transaction(f"prepared as {gid}, neither committed nor rolled back", seconds, end, area=area)
    if not found and not prepared:
        yield Remark(area=area, text="No transaction has been open for long.")


def slots(connection: Connection, *, area: str) -> Iterator[Remark]:
    """Replication slots that nobody reads, and that hold back vacuum or keep WAL."""
    for name, behind in connection.execute(_SLOTS):
        yield Remark(
            area=area,
            text=f"Nothing reads the replication slot {name}: it keeps {int(behind) >> 20:,} MiB of the log, and dead rows.",
            advice=f"Start its reader, or run: SELECT pg_drop_replication_slot({_literal(name)})",
        )


def standbys(connection: Connection, more_than: int, *, area: str) -> Iterator[Remark]:
    """Standbys that ask the primary to keep dead rows for their queries (``hot_standby_feedback``).

    Args:
        more_than: transactions that were begun on the primary since the oldest such query was.
    """
    for whose, age in connection.execute(_STANDBYS, {"behind": more_than}):
        yield Remark(
            area=area,
            alarming=True,
            text=f"{whose} has a query that is {age:,} transactions old, and hot_standby_feedback is on. "
            "Dead rows that are younger cannot be removed.",
            advice="End the query (pg_stat_activity on the standby tells which), or set hot_standby_feedback = off there.",
        )


def old_transaction(whose: str, seconds: float, end: str, *, area: str) -> Remark:
    """The finding.

    Args:
        seconds: its age.
        end: the statement that ends it.
    """
    return Remark(
        area=area,
        alarming=True,
        text=f"A transaction has been open for {lasting(seconds)}: {whose}. Dead rows that are younger cannot be removed.",
        advice=f"End it at its source, or run: {end}",
    )


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def lasting(seconds: float) -> str:
    """The time in words."""
    seconds = max(0, round(seconds))
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"  # noqa: PLR2004 - two minutes
