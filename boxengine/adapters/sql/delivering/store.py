"""The store over SQLAlchemy's pool and the driver's own cursors.

SQLAlchemy keeps the connections, knows the dialects and gives users their ``Session``; the statements of the hot
path are hand-written and run on the driver's cursor, which spares their compilation and result objects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy import Engine

from boxengine.adapters.sql.connecting.cursors import Cursor, cursor_of
from boxengine.adapters.sql.connecting.errors import connection_lost, translated
from boxengine.adapters.sql.connecting.identity import identity
from boxengine.adapters.sql.connecting.writes import check as check_writes
from boxengine.adapters.sql.delivering.bounding import SqlBounds
from boxengine.adapters.sql.delivering.claim import SqlClaim, SqlClaims, SqlPlainClaim
from boxengine.adapters.sql.delivering.fronts import Fronts
from boxengine.adapters.sql.delivering.statements import statements_for
from boxengine.adapters.sql.delivering.stranded import stranded, told
from boxengine.adapters.sql.delivering.transaction import ClaimTransaction
from boxengine.adapters.sql.dialects.base import BoxStatements
from boxengine.adapters.sql.dialects.comments import DeliveryComment, Traceparent, commented
from boxengine.adapters.sql.dialects.payloads import MAX_BATCH_BYTES, light
from boxengine.adapters.sql.log.going_on import GoingOn
from boxengine.adapters.sql.log.moved import ForeignPositions
from boxengine.adapters.sql.log.tables import LogTable, reflect_log
from boxengine.adapters.sql.log.turnover import place_of, turn_over
from boxengine.adapters.sql.shape.changes import Shape, shapes, tells_of_a_change
from boxengine.adapters.sql.shape.tables import BoxTable, reflect
from boxengine.domain.bounds import PACE, Pace
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Status
from boxengine.errors import StoreUnavailable
from boxengine.ports import Outlook, PendingRow, Swept, Turnover

_BOXES_AT_ONCE = 50
"""In one statement: it locks each table and its indexes, and a server has room for some thousands of locks."""
_Poll = Callable[[Cursor, Mapping[int, int], int], list[PendingRow]]
T = TypeVar("T")
_Kind = TypeVar("_Kind", bound=SqlPlainClaim)


class SqlStore:
    """``Store``, ``Bounding`` and ``HistoryStore`` over one database. Polls read from its replica, if there is one."""

    def __init__(
        self,
        engine: Engine,
        *,
        looks: Engine | None = None,
        replica: Engine | None = None,
        idle_timeout: timedelta = timedelta(seconds=180),
        writes: bool = False,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        comments: Traceparent | None = None,
        pace: Pace = PACE,
        only_looks: bool = False,
    ) -> None:
        """Connects to nothing yet.

        Args:
            engine: the database that holds the boxes' tables.
            looks: the same database for what only reads, so that it may wait less long for locks; ``engine`` if none.
            replica: where polls read; the primary if none.
            idle_timeout: after which the database ends a claim whose worker has fallen silent within it.
            writes: whether ``ping`` also finds out that the database takes no writes.
            max_batch_bytes: of the payloads of one claim; a larger item is claimed alone.
            comments: puts a comment behind the statements of deliveries, with the trace that this gives; None: no comments.
            pace: how often the bounds of the boxes move.
            only_looks: whether nothing is delivered here, so that questions may begin at the first pending rows of the last look.
        """
        self._writes = writes
        self.engine = engine
        self._looks = looks or engine
        self._replica = replica or self._looks
        self._idle_timeout = idle_timeout
        self._max_batch_bytes = max_batch_bytes
        self._comments = comments
        self._boxes: dict[str, BoxStatements] = {}
        self._tables: dict[str, BoxTable] = {}
        self._shapes: dict[str, Shape] = {}
        self._lock = threading.Lock()
        self._going_on = GoingOn(engine)
        self._bounds = SqlBounds(partial(self._cursor, self._looks), pace=pace)
        self._fronts = Fronts(partial(self._cursor, self._looks)) if only_looks else None

    # ── Store ────────────────────────────────────────────────────────────────────────────────────────

    def poll(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        return self._polled(box, buckets, limit, lambda statements: statements.poll)

    def poll_regular(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        return self._polled(box, buckets, limit, lambda statements: statements.poll_regular)

    def _polled(
        self, box: Box, buckets: Sequence[int], limit: int, query: Callable[[BoxStatements], _Poll]
    ) -> list[PendingRow]:
        share = max(1, limit // max(1, len(buckets)))
        rows = self._ask(
            self._of_one_size(box),
            lambda cursor, statements: query(statements)(cursor, self._begin(box, buckets), share),
        )
        rows.sort()
        return rows

    def outlook(self, box: Box, buckets: Sequence[int]) -> Outlook:
        found = self._ask(
            self._of_one_size(box),
            lambda cursor, statements: statements.outlook(cursor, self._begin(box, buckets)),
        )
        due = [bucket for bucket, _ in found if bucket is not None]
        next_in = [timedelta(seconds=seconds) for bucket, seconds in found if bucket is None]
        return Outlook(due, next_in[0] if next_in else None)

    def pending(self, boxes: Sequence[Box]) -> frozenset[str]:
        try:
            return self._pending(boxes)
        except StoreUnavailable as error:
            if not tells_of_a_change(error.__cause__):
                raise
        self._forget(*boxes)
        return self._pending(boxes)

    def _pending(self, boxes: Sequence[Box]) -> frozenset[str]:
        names: list[str] = []
        with self._cursor(self._replica) as cursor:
            for start in range(0, len(boxes), _BOXES_AT_ONCE):
                some = boxes[start : start + _BOXES_AT_ONCE]
                begins = [self._bounds.of(box).in_use() for box in some]
                cursor.execute(_any_pending([self.table(box) for box in some], begins))
                names += [some[place].name for (place,) in cursor.fetchall()]
        return frozenset(names).union(box.name for box in boxes if self.pending_in_log(box, most=1))

    def pending_in_log(self, box: Box, *, most: int) -> int:
        """How many of its items no delivery has passed yet, of those in its log; 0 where it has none.

        Args:
            most: beyond which it counts no further.
        """
        if box.storage is Storage.TABLE:
            return 0
        with self._cursor(self._looks) as cursor:
            return self._statements(box).pending_in_log(cursor, most)

    def claims(self, box: Box) -> SqlClaims[SqlClaim]:
        return SqlClaims(partial(self._open, SqlClaim, box))

    def plain_claims(self, box: Box) -> SqlClaims[SqlPlainClaim]:
        return SqlClaims(partial(self._open, SqlPlainClaim, box))

    @contextmanager
    def _open(self, kind: type[_Kind], box: Box, buckets: Mapping[int, int], limit: int) -> Iterator[_Kind]:
        bounds = self._bounds.of(box)
        begin = {bucket: bounds.after(bucket, position) for bucket, position in buckets.items()}
        self._going_on.look(self._of_one_size(box))
        with ExitStack() as stack:
            try:
                claim = stack.enter_context(self._claim(kind, box, begin, limit))
            except ForeignPositions:
                self._going_on.go_on(box)
                claim = stack.enter_context(self._claim(kind, box, begin, limit))
            except StoreUnavailable as error:
                if not tells_of_a_change(error.__cause__):
                    # Another server may answer next, which knows less.
                    bounds.forget()
                    self._going_on.unsure(box)
                    raise
                self._forget(box)
                claim = stack.enter_context(self._claim(kind, box, begin, limit))
            yield claim
            bounds.claimed(len(claim.items))

    @contextmanager
    def _claim(self, kind: type[_Kind], box: Box, buckets: Mapping[int, int], limit: int) -> Iterator[_Kind]:
        statements = self._statements(self._of_one_size(box)).for_claim()
        with (
            translated(self.engine),
            self.engine.connect() as connection,
            closing(cursor_of(connection)) as cursor,
        ):
            comment = None if self._comments is None else DeliveryComment(box, self._comments)
            runner = cursor if comment is None else commented(connection, cursor, comment)
            transaction = ClaimTransaction(
                connection, runner, statements, renew=partial(self._renewed, box), max_bytes=self._max_batch_bytes
            )
            try:
                claim = kind(transaction, box, buckets, limit)
                if comment is not None:
                    comment.cover(claim.items)
                yield claim
                if not claim.items:
                    # There is nothing to undo, and a rollback would discard all of the driver's prepared statements.
                    transaction.commit()
            finally:
                transaction.end()

    def ping(self) -> None:
        with self._cursor(self.engine) as cursor:
            if self._writes:
                check_writes(self.engine, cursor)
            else:
                cursor.execute("SELECT 1")
                cursor.fetchone()

    def identity(self) -> str | None:
        """What tells this database from others, whatever its address; None: nothing does, as with MySQL."""
        if self.engine.dialect.name != "postgresql":
            return None
        with self._cursor(self._looks) as cursor:
            return identity(cursor)

    # ── Bounding ─────────────────────────────────────────────────────────────────────────────────────

    def advance(self, box: Box) -> Collection[int]:
        return self._bounds.advance(self.table(box)) if self._bounds.of(box).due else ()

    def bounded(self, box: Box) -> bool:
        return self.engine.dialect.name == "postgresql" and box.storage is Storage.TABLE

    def read_from_start(self, box_name: str) -> None:
        self._bounds.forget(box_name)
        if self._fronts is not None:
            self._fronts.forget(box_name)

    def fronts(self, box: Box) -> Mapping[int, int]:
        """By bucket, the id after which questions about the oldest pending rows may begin."""
        if self._fronts is None or self.engine.dialect.name != "postgresql":
            return dict.fromkeys(box.buckets, 0)
        return self._fronts.of(self.table(box))

    def _begin(self, box: Box, buckets: Sequence[int]) -> dict[int, int]:
        """The buckets, each with the id after which to read."""
        bounds = self._bounds.of(box)
        return {bucket: bounds.after(bucket) for bucket in buckets}

    # ── HistoryStore ─────────────────────────────────────────────────────────────────────────────────

    def counts(self, box: Box) -> Mapping[int, int]:
        with self._cursor(self._looks) as cursor:
            cursor.execute(f"SELECT status, count(*) FROM {self.table(box).name} GROUP BY status")
            counts = {int(status): int(count) for status, count in cursor.fetchall()}
        if waiting := self.pending_in_log(box, most=2**62):
            counts[Status.PENDING] = counts.get(Status.PENDING, 0) + waiting
        return counts

    def oldest_pending(self, box: Box) -> datetime | None:
        begin = self._begin(box, box.buckets) if self._fronts is None else self.fronts(box)
        return self._ask(
            box,
            lambda cursor, statements: statements.oldest_pending(cursor, begin),
        )

    def unread_since(self, box: Box) -> datetime | None:
        if box.storage is Storage.TABLE:
            return None
        return self._ask(box, lambda cursor, statements: statements.unread_since(cursor))

    def stranded_items(self, box: Box) -> int:
        table = self.table(box)
        with self._cursor(self._looks) as cursor:
            return stranded(cursor, table).rows

    def oldest_finished(self, box: Box, statuses: Sequence[int]) -> datetime | None:
        return self._ask(box, lambda cursor, statements: statements.oldest(cursor, statuses))

    def delete_finished(
        self, box: Box, statuses: Sequence[int], *, created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        finished = [status for status in statuses if status != Status.PENDING]
        with self._cursor(self.engine) as cursor:
            deleted = self._statements(box).delete(cursor, finished, created_from, created_before, limit)
            cursor.connection.commit()
            return deleted

    def sweep_finished(self, box: Box, before: Mapping[int, datetime], *, after: int | None, limit: int) -> Swept:
        finished = {status: moment for status, moment in before.items() if status != Status.PENDING}
        with self._cursor(self.engine) as cursor:
            swept = Swept(*self._statements(box).sweep(cursor, finished, after or 0, limit))
            cursor.connection.commit()
            return swept

    def turn_over(self, box: Box, *, created_before: datetime) -> Turnover | None:
        """See ``Partitions.turn_over``."""
        if box.storage is Storage.TABLE:
            return None
        return turn_over(self.engine, box, place_of(self.table(box)), created_before=created_before)

    def stranded(self, box: Box) -> str | None:
        """A message about pending rows in buckets that the box does not have. None: there are no such rows."""
        table = self.table(box)
        with self._cursor(self._replica) as cursor:
            found = stranded(cursor, table)
        return told(table, found) if found.rows else None

    # ── tables ───────────────────────────────────────────────────────────────────────────────────────

    def table(self, box: Box) -> BoxTable:
        """What the box's table looks like; looked up once.

        Raises:
            SchemaMismatch: the table is missing or cannot serve as a box.
        """
        known = self._tables.get(box.name)
        if known is None:
            with self._lock, translated(self._looks), self._looks.connect() as connection:
                known = self._tables.setdefault(box.name, reflect(connection, box))
        return known

    def look_again(self) -> list[str]:
        with self._lock:
            locations = {name: table.location for name, table in self._tables.items()}
        if not locations:
            return []
        with translated(self._looks), self._looks.connect() as connection:
            found = shapes(connection, set(locations.values()))
        changed = [
            name
            for name, location in locations.items()
            if self._shapes.setdefault(location, found[location]) != found[location]
        ]
        self._shapes.update(found)
        with self._lock:
            for name in changed:
                self._tables.pop(name, None)
                self._boxes.pop(name, None)
        for name in changed:
            self._bounds.forget(name)
        return changed

    def _forget(self, *boxes: Box) -> None:
        """Makes the next statement inspect the table again, and closes the connections with statements prepared for it."""
        with self._lock:
            for box in boxes:
                self._tables.pop(box.name, None)
                self._boxes.pop(box.name, None)
        for box in boxes:
            self._bounds.forget(box.name)
        for engine in (self.engine, self._looks, self._replica):
            engine.dispose()

    def _renewed(self, box: Box) -> BoxStatements:
        self._forget(box)
        return self._statements(box)

    def _ask(self, box: Box, question: Callable[[Cursor, BoxStatements], T]) -> T:
        """Runs it on the replica, and once more if the table has changed."""
        try:
            with self._cursor(self._reading(box)) as cursor:
                return question(cursor, self._statements(box))
        except StoreUnavailable as error:
            if not tells_of_a_change(error.__cause__):
                raise
        self._forget(box)
        with self._cursor(self._reading(box)) as cursor:
            return question(cursor, self._statements(box))

    def close(self) -> None:
        """Closes all connections."""
        for engine in (self.engine, self._looks, self._replica):
            engine.dispose()

    def _of_one_size(self, box: Box) -> Box:
        """Returns the box, unless its table is in use with another number of buckets, or its items are stored elsewhere."""
        table = self.table(box)
        table.refuse_another_size()
        table.refuse_another_storage()
        return box

    def _statements(self, box: Box) -> BoxStatements:
        known = self._boxes.get(box.name)
        if known is None:
            known = statements_for(
                self.engine.dialect.name,
                self.table(box),
                idle_timeout=self._idle_timeout,
                light=light(self._max_batch_bytes),
                log=self._log(box),
            )
            self._boxes[box.name] = known
        return known

    def _log(self, box: Box) -> LogTable | None:
        if box.storage is Storage.TABLE:
            return None
        with translated(self._looks), self._looks.connect() as connection:
            return reflect_log(connection, self.table(box))

    def _reading(self, box: Box) -> Engine:
        """Where a box is looked at: a replica's snapshots do not say which transactions still run."""
        return self._looks if box.storage is Storage.LOG else self._replica

    @contextmanager
    def _cursor(self, engine: Engine) -> Iterator[Cursor]:
        """A connection on which each statement is a transaction of its own."""
        with translated(engine), engine.connect() as connection:
            if engine.dialect.name == "postgresql":
                # Spares BEGIN and ROLLBACK; MySQL's driver would spend as much on the setting itself.
                connection.execution_options(isolation_level="AUTOCOMMIT")
            try:
                with closing(cursor_of(connection)) as cursor:
                    yield cursor
            except engine.dialect.loaded_dbapi.Error as error:
                if connection_lost(engine, error):
                    connection.invalidate()  # the pool would reset it, which fails with a traceback in the log
                raise


def _any_pending(tables: Sequence[BoxTable], begins: Sequence[Mapping[int, int]]) -> str:
    """A query for the places of the tables that have a pending row. It reads only the beginning of an index of each.

    Args:
        begins: of each table, the ids after which to read, by bucket; empty: from the start.
    """
    return " UNION ALL ".join(
        f"(SELECT {place} AS place FROM {_behind(table, begin) if begin else table.name} "
        f"{'' if begin else f'WHERE status = {Status.PENDING:d} {table.pending_first}'} LIMIT 1)"
        for place, (table, begin) in enumerate(zip(tables, begins, strict=True))
    )


def _behind(table: BoxTable, begin: Mapping[int, int]) -> str:
    """The first pending row of each bucket behind an id."""
    held = ", ".join(f"({bucket}, {after})" for bucket, after in begin.items())
    return (
        f"(VALUES {held}) AS held(bucket, after) CROSS JOIN LATERAL (SELECT 1 FROM {table.name} AS t "
        f"WHERE t.status = {Status.PENDING:d} AND (t.bucket, t.id) > (held.bucket, held.after) AND t.bucket <= held.bucket "
        "ORDER BY t.bucket, t.id LIMIT 1) AS first"
    )
