"""The texts of a log box's statements in which its log and its side table meet."""

from __future__ import annotations

from boxengine.adapters.sql.dialects.postgresql_texts import PostgresTexts
from boxengine.adapters.sql.log.tables import BUCKET, ID_IS_GIVEN, LogTable
from boxengine.adapters.sql.shape.tables import BoxTable, for_driver
from boxengine.domain.box import BoxType, StrictOrder
from boxengine.domain.item import Status


class LogTexts:
    """Of one box. Every ``%`` of a name is doubled, because the driver looks for placeholders."""

    def __init__(self, table: BoxTable, found: LogTable, side: PostgresTexts) -> None:
        """Args:
        table: the side table, with each ``%`` of its name doubled.
        side: the texts of the side table's statements.
        """
        self._table = table
        self._side = side
        self._shared = found.shared
        self._log = for_driver(found.log)
        self._positions = for_driver(found.positions)

    def is_parked(self) -> str:
        """Whether the key of a log's row ``t`` has a waiting or failed row in the side table."""
        return (
            f"EXISTS (SELECT 1 FROM {self._table.name} AS e WHERE e.bucket = t.bucket AND e.event_key = t.event_key "
            f"AND (e.status = 1 OR (e.status = 0 AND ({self._side.troubled}))) "
            f"AND (e.status = 1 OR NOT {self._side.is_due('e')}))"
        )

    def is_blocked(self) -> str:
        """Whether the log of a bucket ``held`` must rest, because a row of its side table waits."""
        if self._table.box.strict_order is not StrictOrder.BUCKET:
            return "false"
        return (
            f"EXISTS (SELECT 1 FROM {self._table.name} AS e WHERE e.status = 0 AND ({self._side.troubled}) "
            f"AND (e.bucket, e.id) > (held.bucket, 0) AND e.bucket <= held.bucket AND NOT {self._side.is_due('e')})"
        )

    def copying(self) -> str:
        """Copies rows of the log to the side table, with their outcomes."""
        columns = [for_driver(name) for name in self._shared]
        log = ", error_log" if self._table.has("error_log") else ""
        into = (
            f"INSERT INTO {self._table.name} ({', '.join(columns)}, status, errors_count, processed_at, updated_at{log}) "
            f"{ID_IS_GIVEN}"
        )
        rows = (
            f"SELECT {', '.join(f't.{name}' for name in columns)}, coalesce(f.status, {Status.PENDING:d}), "
            "coalesce(f.errors_count, 0), CASE WHEN f.status IS NOT NULL THEN statement_timestamp() END, "
            f"statement_timestamp(){', f.error_log' if log else ''} "
            "FROM unnest(%s::int[], %s::bigint[], %s::int[], %s::int[], %s::text[]) "
            "AS f(bucket, id, status, errors_count, error_log) "
            f"JOIN {self._log} AS t ON {BUCKET} = f.bucket AND t.id = f.id"
        )
        if self._table.box.type is BoxType.OUTBOX:
            return f"{into} {rows}"
        # An inbox item that somebody has put into the side table as well has its outcome there.
        return f"WITH t AS ({rows}), copied AS ({into} SELECT * FROM t ON CONFLICT DO NOTHING) SELECT FROM t"

    def moving(self) -> str:
        """Moves the positions of buckets on."""
        # A bucket that somebody else has moved meanwhile ends the transaction with an error: its locks are ours, so nobody can.
        return (
            f"WITH moved AS (UPDATE {self._positions} AS p SET passed = f.passed::pg_snapshot, batch = f.batch::pg_snapshot, "
            "place = f.place, floor = f.floor, ceiling = f.ceiling, high = f.high, turn = p.turn + 1 "
            "FROM unnest(%s::int[], %s::text[], %s::text[], "
            "%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[]) "
            "AS f(bucket, passed, batch, place, floor, ceiling, high, turn) "
            "WHERE p.bucket = f.bucket AND p.turn = f.turn RETURNING 1) "
            "SELECT 1 / (count(*) = %s)::int FROM moved"
        )
