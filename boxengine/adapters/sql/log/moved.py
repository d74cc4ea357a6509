"""A log whose positions are in the numbers of another server's transactions, brought to those of this one."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from boxengine.adapters.sql.errors import translated
from boxengine.adapters.sql.log.tables import BUCKET, LogTable, in_text, reflect_log
from boxengine.adapters.sql.tables import BoxTable, reflect
from boxengine.domain.box import Box

_PATIENCE = 5
"""Seconds to wait for writers' transactions; those that come later wait as long."""
_BEFORE_ALL = "'3'::xid8"
"""The first number that a server gives to a transaction: visible in every snapshot."""


def reposition(engine: Engine, box: Box) -> int | None:
    """Lets all that may not have been delivered step aside, and begins a new count; returns how many items stepped aside.

    Where old numbers tell nothing any more, the highest id that was passed does: what was written since has a higher one.
    Nobody writes to the log meanwhile. All readers of the log are brought over together, since its rows get other numbers.
    None: the positions are in this server's numbers, and nothing was done.

    Raises:
        SchemaMismatch: the box has no log.
        StoreConflict: writers did not end their transactions in time.
    """
    with translated(engine), engine.begin() as connection:
        sides = [reflect(connection, reader) for reader in box.readers]
        logs = [reflect_log(connection, side) for side in sides]
        connection.execute(text(f"SET LOCAL lock_timeout = '{_PATIENCE}s'"))
        tables = [in_text(logs[0].log), *(in_text(found.positions) for found in logs)]
        connection.execute(text(f"LOCK TABLE {', '.join(tables)} IN SHARE ROW EXCLUSIVE MODE"))
        if not any(is_foreign(connection, found) for found in logs):
            return None
        aside = sum(connection.execute(text(_step_aside(*pair))).rowcount for pair in zip(sides, logs, strict=True))
        connection.execute(
            text(
                f"UPDATE {in_text(logs[0].log)} SET xact = {_BEFORE_ALL} "
                "WHERE NOT pg_visible_in_snapshot(xact, pg_current_snapshot())"
            )
        )
        for found in logs:
            connection.execute(text(_renumber(found)))
        return aside


def _renumber(found: LogTable) -> str:
    return (
        f"UPDATE {in_text(found.positions)} AS p SET passed = pg_current_snapshot(), batch = NULL, place = 0, "
        "floor = NULL, ceiling = NULL, turn = turn + 1, "
        f"high = greatest(high, (SELECT max(t.id) FROM {in_text(found.log)} AS t WHERE {BUCKET} = p.bucket)), "
        "server = (SELECT system_identifier FROM pg_control_system())"
    )


def is_foreign(connection: Connection, found: LogTable) -> bool:
    """Whether positions are in the numbers of another server's transactions."""
    query = (
        f"SELECT count(*) FROM {in_text(found.positions)} WHERE server <> (SELECT system_identifier FROM pg_control_system()) "
        "OR pg_snapshot_xmax(coalesce(batch, passed)) > pg_snapshot_xmax(pg_current_snapshot())"
    )
    return bool(connection.execute(text(query)).scalar())


def _step_aside(side: BoxTable, found: LogTable) -> str:
    columns = ", ".join(map(in_text, found.shared))
    return (
        f"INSERT INTO {side.in_text} ({columns}, updated_at) SELECT {', '.join(f't.{in_text(name)}' for name in found.shared)}, "
        f"now() FROM {in_text(found.log)} AS t JOIN {in_text(found.positions)} AS p ON p.bucket = t.bucket "
        "WHERE (t.id > p.high OR NOT pg_visible_in_snapshot(t.xact, p.passed)) "
        "AND NOT (p.batch IS NOT NULL AND t.id <= p.place AND pg_visible_in_snapshot(t.xact, p.batch))"
    )
