"""A log whose positions are in the numbers of another server's transactions, brought to those of this one.

What tells it: the server's identifier (a restored dump, a logical copy, ``pg_upgrade``), a count of transactions that is behind a
position (``pg_resetwal``), or a row whose transaction this server has yet to begin (a log that was copied without its positions).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Engine, text

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.connecting.limiting import unlimited
from boxengine.adapters.sql.log import in_doubt
from boxengine.adapters.sql.log.tables import (
    BUCKET,
    ID_IS_GIVEN,
    LogTable,
    arriving_by,
    doubled_positions,
    identifying,
    in_text,
    publications_in_the_way,
    reflect_log,
)
from boxengine.adapters.sql.shape.tables import BoxTable, reflect
from boxengine.domain.box import Box
from boxengine.errors import StoreUnavailable

REASON = (
    "its positions are in the numbers of another server's transactions (a restored dump, a logical copy, pg_resetwal)"
)
STILL_ARRIVING = (
    "rows of its log still arrive from another server by logical replication ({}), with that server's numbers, and some would "
    "never go out: drop the subscription before workers start here"
)
_MAY_NOT_CHOOSE = (
    "box {box.name}: buckets have two positions, as the data of a dump was restored beside those of db create; this account "
    "lacks DELETE on {positions}: as its owner, run boxengine db reposition {box.source.name}"
)
_PATIENCE = 5
"""Seconds to wait for writers' transactions. Writers that come later wait as long."""
_BEFORE_ALL = "'3'::xid8"
"""The first number that a server gives to a transaction: visible in every snapshot."""


class ForeignPositions(StoreUnavailable):
    """The positions of a log do not say what was delivered."""


def reposition(engine: Engine, box: Box, *, anyway: bool = False) -> int | None:
    """Moves every item that may not have been delivered to the side table, and begins a new count. Returns how many.

    The old numbers mean nothing here. The highest id that was passed still does, and so does the time at which its item was
    created: items written since have a higher id, or were created later. Nobody writes to the log meanwhile. All readers of the
    log are brought over together, because its rows get other numbers.

    Args:
        anyway: also where nothing tells that the numbers are another server's.

    Returns:
        None: the positions are in this server's numbers, and nothing was done.

    Raises:
        SchemaMismatch: the box has no log.
        StoreConflict: writers did not end their transactions in time.
        ForeignPositions: rows still arrive from the other server, this account may not do it, new items get ids of old ones, or
            a publication has the server refuse it.
    """
    with translated(engine), engine.begin() as connection:
        unlimited(connection)
        sides = [reflect(connection, reader) for reader in box.readers]
        logs = [reflect_log(connection, side) for side in sides]
        connection.execute(text(f"SET LOCAL lock_timeout = '{_PATIENCE}s'"))
        tables = [in_text(logs[0].log), *(in_text(found.positions) for found in logs)]
        connection.execute(text(f"LOCK TABLE {', '.join(tables)} IN SHARE ROW EXCLUSIVE MODE"))
        refuse_arrivals(connection, box, logs[0])
        for found in logs:
            _keep_the_newest(connection, box, found)
        if not anyway and not any(is_foreign(connection, found) for found in logs):
            return None
        _refuse_what_is_unsafe(connection, box, logs)
        aside = sum(connection.execute(text(_step_aside(*pair))).rowcount for pair in zip(sides, logs, strict=True))
        _renumber_rows(connection, box, logs[0])
        for found in logs:
            connection.execute(text(_renumber(found)))
        return aside


def refuse_arrivals(connection: Connection, box: Box, found: LogTable) -> None:
    """Raises:
    ForeignPositions: rows of the log arrive by logical replication, with numbers that a position here may already have passed.
    """
    if names := arriving_by(connection, found):
        raise ForeignPositions(f"box {box.name}: {STILL_ARRIVING.format(', '.join(names))}")


def _keep_the_newest(connection: Connection, box: Box, found: LogTable) -> None:
    """Of a bucket with several positions, the one that has moved most often: what ``db create`` gives has not moved at all."""
    if not doubled_positions(connection, found):
        return
    may = text("SELECT has_table_privilege(:positions, 'DELETE')")
    if not connection.execute(may, {"positions": found.positions}).scalar():
        raise ForeignPositions(_MAY_NOT_CHOOSE.format(box=box, positions=found.positions))
    positions = in_text(found.positions)
    older = (
        f"DELETE FROM {positions} AS p USING {positions} AS newer WHERE newer.bucket = p.bucket AND newer.turn > p.turn"
    )
    connection.execute(text(older))


def is_foreign(connection: Connection, found: LogTable) -> bool:
    """Whether one of the positions, or of the log's rows, is in another server's numbers."""
    return bool(connection.execute(text(_has_foreign_positions(found))).scalar()) or has_rows_ahead(connection, found)


def has_rows_ahead(connection: Connection, found: LogTable) -> bool:
    """Whether the log shows rows of transactions that this server has not begun yet."""
    return bool(connection.execute(text(_has_rows_ahead(found))).scalar())


def _has_foreign_positions(found: LogTable) -> str:
    return f"SELECT {in_doubt.has_foreign_positions(in_text(found.positions))}"


def _has_rows_ahead(found: LogTable) -> str:
    return f"SELECT {in_doubt.has_rows_ahead(in_text(found.log), in_text(found.positions))}"


def _refuse_what_is_unsafe(connection: Connection, box: Box, logs: Sequence[LogTable]) -> None:
    sequence = connection.execute(
        text("SELECT pg_get_serial_sequence(:name, 'id')"), {"name": logs[0].readers.side("")}
    ).scalar()
    may = text("SELECT has_table_privilege(:log, 'UPDATE') AND has_sequence_privilege(:sequence, 'SELECT')")
    if not connection.execute(may, {"log": logs[0].log, "sequence": sequence}).scalar():
        raise _may_not(box, logs[0].log, str(sequence))
    given = f"SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM {in_text(str(sequence))}"
    last = int(connection.execute(text(given)).scalar() or 0)
    passed = " UNION ALL ".join(f"SELECT max(high) AS id FROM {in_text(found.positions)}" for found in logs)
    there = (
        f"SELECT i.id FROM {in_text(logs[0].positions)} AS p CROSS JOIN LATERAL (SELECT t.id FROM {in_text(logs[0].log)} AS t "
        f"WHERE {BUCKET} = p.bucket ORDER BY {BUCKET} DESC, t.id DESC LIMIT 1) AS i"
    )
    highest = int(connection.execute(text(f"SELECT max(id) FROM ({passed} UNION ALL {there}) AS known")).scalar() or 0)
    if last < highest:
        raise _behind(box, str(sequence), last, highest)


def _renumber_rows(connection: Connection, box: Box, found: LogTable) -> None:
    """Gives rows with numbers that this server has not reached one that every snapshot has passed. There are none after
    ``pg_upgrade``, which keeps the count."""
    log, ahead = in_text(found.log), "NOT pg_visible_in_snapshot(xact, pg_current_snapshot())"
    if connection.execute(text(f"SELECT EXISTS (SELECT FROM {log} WHERE {ahead})")).scalar():
        if names := publications_in_the_way(connection, found, of=["pubupdate"]):
            raise _published(box, found, names)
        connection.execute(text(f"UPDATE {log} SET xact = {_BEFORE_ALL} WHERE {ahead}"))


def _published(box: Box, found: LogTable, names: Sequence[str]) -> ForeignPositions:
    return ForeignPositions(
        f"box {box.name}: {REASON}, and its rows cannot get numbers of this one, because the log has no replica identity, and a "
        f"publication has it ({', '.join(names)}); it goes on by itself after, as the owner: {identifying(found.log)}"
    )


def _may_not(box: Box, log: str, sequence: str) -> ForeignPositions:
    return ForeignPositions(
        f"box {box.name}: {REASON}, which do not tell what was delivered; this account lacks UPDATE on {log} or "
        f"SELECT on {sequence} to go on without them: as their owner, run boxengine db reposition {box.source.name}"
    )


def _behind(box: Box, sequence: str, last: int, highest: int) -> ForeignPositions:
    return ForeignPositions(
        f"box {box.name}: {REASON}, and new items get ids of old ones: {sequence} stands at {last}, and an item has the id "
        f"{highest}; it goes on by itself after: SELECT setval('{sequence}', {highest})"
    )


def _renumber(found: LogTable) -> str:
    return (
        f"UPDATE {in_text(found.positions)} AS p SET passed = pg_current_snapshot(), batch = NULL, place = 0, "
        "floor = NULL, ceiling = NULL, turn = turn + 1, "
        f"high = greatest(high, (SELECT max(t.id) FROM {in_text(found.log)} AS t WHERE {BUCKET} = p.bucket)), "
        "server = (SELECT system_identifier FROM pg_control_system())"
    )


def _step_aside(side: BoxTable, found: LogTable) -> str:
    columns = ", ".join(map(in_text, found.shared))
    log = in_text(found.log)
    return (
        f"INSERT INTO {side.in_text} ({columns}, updated_at) {ID_IS_GIVEN} "
        f"SELECT {', '.join(f't.{in_text(name)}' for name in found.shared)}, now() "
        f"FROM {log} AS t JOIN ({in_doubt.last_passed(log, in_text(found.positions))}) AS p ON p.bucket = t.bucket "
        f"WHERE {in_doubt.is_in_doubt(side.in_text)}"
    )
