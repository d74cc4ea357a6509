"""The statements of a conversion: triggers that move what was just written between table and log, and the copy out of the log."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine.interfaces import Dialect

from boxengine.adapters.sql.log.stage import TO_LOG, TO_TABLE
from boxengine.adapters.sql.log.tables import ID_IS_GIVEN
from boxengine.adapters.sql.shape.tables import BoxTable, quoted
from boxengine.domain.box import Storage

NOT_IN_A_LOG = ("available_at", "dedup_key")
_WHOLE_TABLES = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")
_BY_INDEX = " ".join(f"SET {way} = off" for way in _WHOLE_TABLES)
"""The planner knows nothing of the few rows that a statement has written."""
_SHARED = "<columns>"
"""Stands in a function for the columns that log and table have both."""
BY_INDEX = tuple(f"SET LOCAL {way} = off" for way in _WHOLE_TABLES)
"""Nor does it know how few rows lie beyond the positions: it would read all of a log, for which writers would wait."""


class Redirects:
    """The texts for one box. All names are quoted."""

    def __init__(self, dialect: Dialect, side: BoxTable, log: str, positions: str, columns: Sequence[str]) -> None:
        """Args:
        columns: that table and log have both, the id among them.
        """
        self.side, self.log, self.positions = side.name, log, positions
        name = side.box.table.rpartition(".")[2]
        self.to_log = quoted(dialect, side.schema, f"{name}_to_log")
        self.to_table = quoted(dialect, side.schema, f"{name}_to_table")
        self._columns = columns
        self._held_here = [each for each in NOT_IN_A_LOG if side.has(each)]

    def functions(self) -> list[str]:
        """Both functions. They run with their owner's rights, so that writers need no further privileges."""
        return [self._function(self.to_log, self._into_log()), self._function(self.to_table, self._into_table())]

    def trigger_of_log(self) -> str:
        return self._trigger(TO_TABLE, self.log, self.to_table)

    def trigger_of_table(self) -> str:
        return self._trigger(TO_LOG, self.side, self.to_log)

    def turn(self, trigger: str, *, on: bool) -> str:
        """Turns a trigger on or off. Unlike dropping it, this does not wait for readers."""
        table = self.side if trigger == TO_LOG else self.log
        return f"ALTER TABLE {table} {'ENABLE' if on else 'DISABLE'} TRIGGER {trigger}"

    def lock(self, *, first: Storage) -> str:
        """Keeps writers out.

        Args:
            first: the table that items are moved away from at the moment. Writers lock it first, too. In the other order, a new
                writer would hold a lock that the switch still needs, and wait for one that the switch holds.
        """
        tables = [self.side, self.log] if first is Storage.TABLE else [self.log, self.side]
        return f"LOCK TABLE {', '.join(tables)} IN SHARE ROW EXCLUSIVE MODE"

    def begin_now(self) -> str:
        """Moves the positions past what was redirected, for a log without rows."""
        return f"UPDATE {self.positions} SET passed = pg_current_snapshot(), turn = turn + 1 WHERE batch IS NULL"

    def copy(self, bucket: int | None = None) -> str:
        """Copies what no delivery has passed into the table, where it goes out by id, and moves the position behind it.

        All of it in one statement: the rows that it sees are those which the new position has passed.

        Args:
            bucket: whose lock is held; None: the locks of all are.
        """
        of = "" if bucket is None else f"p.bucket = {bucket:d} AND "
        where = "" if bucket is None else f" WHERE p.bucket = {bucket:d}"
        return (
            f"WITH aside AS (INSERT INTO {self.side} ({', '.join(self._columns)}, status, errors_count, updated_at) "
            f"{ID_IS_GIVEN} SELECT {self._from('t')}, 0, 0, statement_timestamp() "
            f"FROM {self.positions} AS p JOIN {self.log} AS t ON t.bucket = p.bucket AND t.xact >= pg_snapshot_xmin(p.passed) "
            f"WHERE {of}NOT ({PASSED}) ORDER BY t.id RETURNING id, bucket) "
            f"UPDATE {self.positions} AS p SET passed = pg_current_snapshot(), batch = NULL, place = 0, floor = NULL, "
            "ceiling = NULL, high = greatest(p.high, (SELECT max(id) FROM aside WHERE aside.bucket = p.bucket)), "
            f"turn = p.turn + 1{where} RETURNING (SELECT count(*) FROM aside)"
        )

    def waiting(self) -> str:
        """Whether the log has rows that no delivery has passed. Reads all of it."""
        return (
            f"SELECT EXISTS (SELECT FROM {self.log} AS t LEFT JOIN {self.positions} AS p ON p.bucket = t.bucket "
            f"WHERE p.bucket IS NULL OR NOT ({PASSED}))"
        )

    # ── the parts ────────────────────────────────────────────────────────────────────────────────────

    def _into_log(self) -> str:
        """A row that a worker has copied out of the log stays, and so does what a log has no place for."""
        held = "".join(f" AND n.{name} IS NULL" for name in self._held_here)
        return (
            f"WITH moved AS (INSERT INTO {self.log} ({_SHARED}) SELECT {_SHARED} FROM written AS n "
            f"WHERE n.status = 0 AND n.errors_count = 0 AND n.processed_at IS NULL{held} "
            f"AND NOT EXISTS (SELECT FROM {self.log} AS t WHERE (t.bucket + 0) = n.bucket AND t.id = n.id) "
            f"ORDER BY n.id RETURNING id) DELETE FROM {self.side} AS r USING moved WHERE r.id = moved.id"
        )

    def _into_table(self) -> str:
        return (
            f"WITH moved AS (INSERT INTO {self.side} ({_SHARED}, status, errors_count, updated_at) {ID_IS_GIVEN} "
            f"SELECT {_SHARED}, 0, 0, n.created_at FROM written AS n ORDER BY n.id RETURNING id, bucket) "
            f"DELETE FROM {self.log} AS r USING moved WHERE (r.bucket + 0) = moved.bucket AND r.id = moved.id"
        )

    def _from(self, alias: str) -> str:
        return ", ".join(f"{alias}.{name}" for name in self._columns)

    def _function(self, name: str, body: str) -> str:
        """Looks the columns up when it runs: somebody may give both tables another one, whose values must move, too."""
        log, side = (each.replace("'", "''") for each in (self.log, self.side))
        shared = (
            "SELECT string_agg(quote_ident(l.attname), ', ' ORDER BY l.attnum) FROM pg_attribute AS l "
            f"JOIN pg_attribute AS s ON s.attrelid = '{side}'::regclass AND s.attname = l.attname AND s.attgenerated = '' "
            f"WHERE l.attrelid = '{log}'::regclass AND l.attnum > 0 AND NOT l.attisdropped AND l.attgenerated = ''"
        )
        return (
            f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            f"SET search_path = pg_catalog, pg_temp {_BY_INDEX} AS $boxengine$\nBEGIN\n"
            f"  EXECUTE replace($sql${body}$sql$, '{_SHARED}', ({shared}));\n"
            "  RETURN NULL;\nEND\n$boxengine$"
        )

    @staticmethod
    def _trigger(trigger: str, table: str, function: str) -> str:
        return (
            f"CREATE TRIGGER {trigger} AFTER INSERT ON {table} REFERENCING NEW TABLE AS written "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
        )


PASSED = (
    "pg_visible_in_snapshot(t.xact, p.passed) "
    "OR (p.batch IS NOT NULL AND t.id <= p.place AND pg_visible_in_snapshot(t.xact, p.batch))"
)
"""Whether the position ``p`` of its bucket has passed the log's row ``t``."""
