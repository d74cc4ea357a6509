"""Makes partitions of a log ahead of time, empties those that every reader has passed, and drops the empty ones.

No step waits longer than ``PATIENCE`` for a lock, because whoever comes later waits behind it. Making and emptying a partition
conflict with readers alone: a writer locks the log in a mode that they do not touch, and the one partition that it writes into.
Only a drop conflicts with writers, and nothing is urgent about it, as an empty partition takes no room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import TypeVar

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from boxengine.adapters.sql.connecting.cursors import Cursor, cursor_of
from boxengine.adapters.sql.connecting.errors import CONFLICT_STATES, translated
from boxengine.adapters.sql.connecting.limiting import unlimited
from boxengine.adapters.sql.log.partitions import Partitions, Range, name_of, note, partitions_of, span_of
from boxengine.adapters.sql.log.readers import PassedByAll, Readers
from boxengine.adapters.sql.log.tables import AUTOVACUUM, BUCKET, in_text, log_name, names_in
from boxengine.adapters.sql.shape.tables import BoxTable, for_driver, quoted
from boxengine.domain.box import Box
from boxengine.ports import Turnover

PATIENCE = "100ms"
ATTEMPTS = 3
"""In one pass; the next pass tries again."""
LONGEST_SEARCH = "1s"
"""For rows of a new partition in the default one, which is locked meanwhile."""
_AS_THE_LOG = "INCLUDING ALL EXCLUDING IDENTITY EXCLUDING INDEXES EXCLUDING STATISTICS"
"""A partition that lacks what the log computes could not be added to it. Its indexes come from the log as it is added."""
_LATER = CONFLICT_STATES | {"23514", "57014"}
"""A lock that somebody holds; a row of the new range that stands in the default partition; a search that took too long."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a log is, and who reads it."""

    schema: str
    log: str
    """Its name, not quoted."""
    quoted_log: str
    readers: Readers


def place_of(side: BoxTable) -> Place:
    """Where the log is that a side table's box reads."""
    return Place(schema=side.schema, log=names_in(side.box)[0], quoted_log=log_name(side), readers=Readers.of(side))


def turn_over(
    engine: Engine, box: Box, place: Place, *, created_before: datetime, go_on: Callable[[], bool] = lambda: True
) -> Turnover | None:
    """Makes what is missing ahead, and removes what every reader has passed and is old; None: the log has no partitions.

    Run by several at once, each partition is made, emptied and dropped once. Each step is one transaction, so a run that is
    cut off leaves nothing half done.

    Args:
        created_before: only partitions are emptied that have no item created since.
        go_on: asked before each is emptied, and before those are dropped.
    """
    with translated(engine), engine.connect() as connection:
        found = partitions_of(connection, place.quoted_log)
        connection.rollback()
        if found is None:
            return None
        if not found.may_alter:
            return Turnover(trouble=_not_ours(found, place))
        turn = _Turn(connection, found, box, place)
        made = turn.patiently(turn.make_ahead) or ()
        deleted = 0
        for each in takewhile(lambda _: go_on(), found.closed):
            deleted += turn.patiently(partial(turn.empty, each, created_before)) or 0
        dropped = turn.patiently(turn.drop_empty) if go_on() else None
        return Turnover(made=made, dropped=dropped or (), deleted=deleted, trouble=turn.trouble())


class _Turn:
    """The steps of one run."""

    def __init__(self, connection: Connection, found: Partitions, box: Box, place: Place) -> None:
        self._connection = connection
        self._found = found
        self._box = box
        self._place = place
        self._log = in_text(place.quoted_log)
        self._driver_error: type[Exception] = connection.dialect.loaded_dbapi.Error

    def patiently(self, step: Callable[[], T]) -> T | None:
        """Runs the step in a transaction of its own; None where somebody held a lock at each attempt."""
        for _ in range(ATTEMPTS):
            try:
                with self._connection.begin():
                    unlimited(self._connection)
                    self._run(f"SET LOCAL lock_timeout = '{PATIENCE}'")
                    if not self._found.is_owner:
                        # Partitions belong to the log's owner, whoever makes them.
                        self._run(f"SET LOCAL ROLE {quoted(self._connection.dialect, self._found.owner)}")
                    # One at a time. Neither readers nor writers wait for this lock.
                    self._run(f"LOCK TABLE ONLY {self._log} IN SHARE UPDATE EXCLUSIVE MODE")
                    return step()
            except (DBAPIError, self._driver_error) as error:
                # Some statements go through the driver's cursor.
                if getattr(getattr(error, "orig", error), "sqlstate", None) not in _LATER:
                    raise
        return None

    def trouble(self) -> str | None:
        """Why new rows go to the default partition; None: another partition takes them."""
        found = partitions_of(self._connection, self._place.quoted_log)
        self._connection.rollback()
        return None if found is None or found.reach > found.current else _uncovered(found, self._place)

    # ── made ahead ───────────────────────────────────────────────────────────────────────────────────

    def make_ahead(self) -> Sequence[str]:
        """Names of the partitions made."""
        found = partitions_of(self._connection, self._place.quoted_log)
        if found is None:
            return ()
        return [self._make(found, low, high) for low, high in found.missing(found.step(span_of(self._box)))]

    def _make(self, found: Partitions, low: int, high: int) -> str:
        unquoted = name_of(self._place.log, low)
        name = in_text(quoted(self._connection.dialect, self._place.schema, unquoted))
        settings = ", ".join(AUTOVACUUM)
        # Not made as a partition, for which writers would have to wait.
        self._run(f"CREATE TABLE {name} (LIKE {self._log} {_AS_THE_LOG}) WITH ({settings})")
        self._run(f"COMMENT ON TABLE {name} IS '{in_text(note(found))}'")
        if found.identified:
            self._run(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        self._run(f"SET LOCAL statement_timeout = '{LONGEST_SEARCH}'")
        self._run(f"ALTER TABLE {self._log} ATTACH PARTITION {name} FOR VALUES FROM ('{low}') TO ('{high}')")
        self._run("SET LOCAL statement_timeout = 0")
        return unquoted

    # ── emptied ──────────────────────────────────────────────────────────────────────────────────────

    def empty(self, part: Range, created_before: datetime) -> int:
        """How many rows were removed: all of them, or none."""
        self._keep_readers()
        found = partitions_of(self._connection, self._place.quoted_log)
        if found is None or part.name not in {each.name for each in found.closed}:
            return 0
        with closing(cursor_of(self._connection)) as cursor:
            if not self._place.readers.may_remove(cursor):
                return 0
            passed = self._place.readers.passed_by_all(cursor)
            if self._is_young(cursor, part, passed, created_before) or not self._is_passed(cursor, part, passed):
                return 0
            cursor.execute(_counted(part.name, passed), (created_before,))
            rows, stays = cursor.fetchone()
        if stays or not rows:
            return 0
        self._run(f"TRUNCATE {in_text(part.name)}")
        return int(rows)

    def _keep_readers(self) -> None:
        """Lets nobody add a subscription meanwhile: it would begin with the oldest item."""
        listed = self._place.readers.listed
        query = text("SELECT to_regclass(:name) IS NOT NULL")
        if self._connection.execute(query, {"name": listed}).scalar():
            self._run(f"LOCK TABLE {in_text(listed)} IN SHARE MODE")

    def _is_passed(self, cursor: Cursor, part: Range, passed: PassedByAll) -> bool:
        """Whether no reader's position is before a row of the partition, except before those that ``retain_at_most`` gives up.

        Rows are asked for, as a position may be far back only because nothing has come for its bucket.
        """
        at_most = self._box.retention.at_most if self._box.subscription is not None else None
        kept = "" if at_most is None else f"AND t.created_at >= now() - interval '{at_most.total_seconds():f} seconds' "
        cursor.execute(_all_passed(part.name, passed, kept), (str(part.high), str(part.high)))
        return bool(cursor.fetchone()[0])

    @staticmethod
    def _is_young(cursor: Cursor, part: Range, passed: PassedByAll, created_before: datetime) -> bool:
        """Whether a bucket's last row is young. This is cheap; the question after it reads the whole partition."""
        cursor.execute(_some_young(part.name, passed), (created_before,))
        return bool(cursor.fetchone()[0])

    # ── dropped ──────────────────────────────────────────────────────────────────────────────────────

    def drop_empty(self) -> Sequence[str]:
        """Names of the partitions dropped: closed ones without rows."""
        found = partitions_of(self._connection, self._place.quoted_log)
        closed = [] if found is None else [each.name for each in found.closed]
        # Where rows were deleted one by one, the first that is left may come after many pages: nobody waits for that search.
        empty = self._empty_ones(closed)
        if not empty:
            return ()
        self._run(f"LOCK TABLE ONLY {self._log} IN ACCESS EXCLUSIVE MODE")
        self._run(f"SET LOCAL statement_timeout = '{PATIENCE}'")
        dropped = self._empty_ones(empty)
        for name in dropped:
            self._run(f"DROP TABLE {in_text(name)}")
        return dropped

    def _empty_ones(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not self._has_rows(name)]

    def _has_rows(self, name: str) -> bool:
        return bool(self._connection.execute(text(f"SELECT EXISTS (SELECT FROM {in_text(name)})")).scalar())

    def _run(self, statement: str) -> None:
        self._connection.execute(text(statement))


def _uncovered(found: Partitions, place: Place) -> str:
    told = f"{place.log} has no partition for what is written now: its default partition takes it, and delivery goes on"
    ahead = [each.low - found.current for each in found.ranges if each.low > found.current]
    if ahead:
        return f"{told}; the next partition begins in {min(ahead):,} transactions"
    return (
        f"{told}; no partition could be made: somebody held locks, or the default partition has rows that belong there"
    )


def _not_ours(found: Partitions, place: Place) -> str | None:
    if found.reach > found.current:
        return None
    return (
        f"{place.log} has no partition for what is written now, and this account may not make one: its default partition takes "
        f"it; run boxengine cleanup as {found.owner}, or let the worker act as that role"
    )


# ── the texts, for the driver ────────────────────────────────────────────────────────────────────────


def _all_passed(partition: str, passed: PassedByAll, kept: str) -> str:
    return (
        f"SELECT NOT EXISTS (SELECT 1 FROM {passed.positions} AS p CROSS JOIN LATERAL ("
        f"SELECT 1 FROM {for_driver(partition)} AS t "
        "WHERE (t.bucket, t.xact, t.id) >= (p.bucket, pg_snapshot_xmin(p.passed), 0) "
        "AND (t.bucket, t.xact, t.id) < (p.bucket, %s::xid8, 0) "
        f"AND NOT pg_visible_in_snapshot(t.xact, p.passed) {kept}LIMIT 1) AS i "
        "WHERE pg_snapshot_xmin(p.passed) < %s::xid8)"
    )


def _some_young(partition: str, passed: PassedByAll) -> str:
    return (
        f"SELECT bool_or(i.created_at >= %s) FROM ({passed.buckets}) AS held CROSS JOIN LATERAL ("
        f"SELECT t.created_at FROM {for_driver(partition)} AS t "
        f"WHERE {BUCKET} = held.bucket ORDER BY {BUCKET} DESC, t.id DESC LIMIT 1) AS i"
    )


def _counted(partition: str, passed: PassedByAll) -> str:
    return (
        "SELECT count(*), coalesce(bool_or(t.created_at >= %s OR held.bucket IS NULL), false) "
        f"FROM {for_driver(partition)} AS t LEFT JOIN ({passed.buckets}) AS held ON held.bucket = t.bucket"
    )
