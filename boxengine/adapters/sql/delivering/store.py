"""The store over SQLAlchemy's pool and the driver's own cursors.

SQLAlchemy keeps the connections, knows the dialects and gives users their ``Session``; the statements of the hot
path are hand-written and run on the driver's cursor, which spares their compilation and result objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy import Engine

from boxengine.adapters.sql.connecting.cursors import Cursor, cursor_of
from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.connecting.writes import check as check_writes
from boxengine.adapters.sql.delivering.claim import SqlClaim, SqlClaims, SqlPlainClaim
from boxengine.adapters.sql.delivering.history import SqlHistory
from boxengine.adapters.sql.delivering.pending import PendingLook, any_pending
from boxengine.adapters.sql.delivering.transaction import ClaimTransaction
from boxengine.adapters.sql.dialects.base import BoxStatements
from boxengine.adapters.sql.dialects.comments import DeliveryComment, Traceparent, commented
from boxengine.adapters.sql.dialects.payloads import MAX_BATCH_BYTES
from boxengine.adapters.sql.log.foreign import ForeignPositions
from boxengine.adapters.sql.log.going_on import GoingOn
from boxengine.adapters.sql.shape.changes import tells_of_a_change
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.bounds import PACE, Pace
from boxengine.domain.box import Box, Storage
from boxengine.errors import SchemaMismatch, StoreConflict, StoreUnavailable
from boxengine.ports import Count, Outlook, PendingRow

_Poll = Callable[[Cursor, Mapping[int, int], int], list[PendingRow]]
T = TypeVar("T")
_Kind = TypeVar("_Kind", bound=SqlPlainClaim)


class SqlStore(SqlHistory):
    """``Store``, ``Bounding`` and ``HistoryStore`` over one database. Polls read from its replica, if there is one.

    Where tables are looked up and questions asked: ``Asking``. ``HistoryStore``: ``SqlHistory``.
    """

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
        looks = looks or engine
        super().__init__(
            engine,
            looks=looks,
            replica=replica or looks,
            idle_timeout=idle_timeout,
            max_batch_bytes=max_batch_bytes,
            pace=pace,
            only_looks=only_looks,
        )
        self._writes = writes
        self._max_batch_bytes = max_batch_bytes
        self._comments = comments
        self._going_on = GoingOn(engine)
        self._pending_look = PendingLook(self._ask_for_pending)
        self._checked: set[str] = set()
        """Boxes of whose handlers a commit has refused a write. From then on the writes for each item are checked."""

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
            self._known.of_one_size(box),
            lambda cursor, statements: query(statements)(cursor, self._begin(box, dict.fromkeys(buckets, 0)), share),
        )
        rows.sort()
        return rows

    def outlook(self, box: Box, buckets: Sequence[int]) -> Outlook:
        began = time.monotonic()
        found = self._ask(
            self._known.of_one_size(box),
            lambda cursor, statements: statements.outlook(cursor, self._begin(box, dict.fromkeys(buckets, 0))),
        )
        self._bounds.of(box).looked(time.monotonic() - began)
        due = list(dict.fromkeys(bucket for bucket, _ in found if bucket is not None))
        next_in = [timedelta(seconds=seconds) for bucket, seconds in found if bucket is None]
        return Outlook(due, next_in[0] if next_in else None)

    def pending(self, boxes: Sequence[Box]) -> frozenset[str]:
        return self._twice(partial(self._pending, boxes), *boxes)

    def _pending(self, boxes: Sequence[Box]) -> frozenset[str]:
        names: list[str] = []
        tables: list[BoxTable] = []
        for box in boxes:
            try:
                tables.append(self.table(box))
            except (SchemaMismatch, StoreConflict):
                names.append(box.name)  # whoever looks at it by itself learns what is wrong
        nothing = Count(0)
        in_logs = (table.box.name for table in tables if self.pending_in_log(table.box, most=1) != nothing)
        return frozenset(names).union(self._pending_look.names(tables), in_logs)

    def _ask_for_pending(self, tables: Sequence[BoxTable]) -> list[str]:
        """Names of the boxes with a pending row, found by one statement."""
        begins = [self._bounds.of(table.box).in_use() for table in tables]
        with self._cursor(self._replica) as cursor:
            cursor.execute(any_pending(tables, begins, lateral=self.engine.dialect.name == "postgresql"))
            return [tables[place].box.name for (place,) in cursor.fetchall()]

    def claims(self, box: Box) -> SqlClaims[SqlClaim]:
        return SqlClaims(partial(self._open, SqlClaim, box))

    def plain_claims(self, box: Box) -> SqlClaims[SqlPlainClaim]:
        return SqlClaims(partial(self._open, SqlPlainClaim, box))

    def locks_decide(self, box: Box) -> bool:
        table = self._known.known(box)
        return box.storage is Storage.LOG or (table is not None and not table.may_have_other_workers)

    @contextmanager
    def _open(self, kind: type[_Kind], box: Box, buckets: Mapping[int, int], limit: int) -> Iterator[_Kind]:
        bounds = self._bounds.of(box)
        losses = self._losses
        try:
            with ExitStack() as stack:
                try:
                    claim = self._enter(stack, kind, box, buckets, limit)
                except StoreUnavailable:
                    # Perhaps the connection alone was lost, as to a firewall that forgets idle ones: the pool cannot see that.
                    # Positions are of ids that another server may give once more, so only who has none may begin anew.
                    if losses == self._losses or any(buckets.values()):
                        raise
                    claim = self._enter(stack, kind, box, buckets, limit)
                yield claim
                bounds.claimed(len(claim.items))
        except StoreConflict:
            raise
        except StoreUnavailable:
            # Also in the middle of a batch: another server may answer next, which knows less.
            bounds.forget()
            self._going_on.unsure()
            raise

    def _enter(self, stack: ExitStack, kind: type[_Kind], box: Box, buckets: Mapping[int, int], limit: int) -> _Kind:
        losses = self._losses
        self._going_on.look(self._known.of_one_size(box))
        try:
            return stack.enter_context(self._claim(kind, box, buckets, limit, losses=losses))
        except ForeignPositions:
            self._going_on.go_on(box)
        except StoreUnavailable as error:
            if not tells_of_a_change(error.__cause__):
                raise
            self._forget(box)
        return stack.enter_context(self._claim(kind, box, buckets, limit, losses=self._losses))

    def _other_may_answer(self, engine: Engine) -> None:
        super()._other_may_answer(engine)
        self._going_on.unsure()

    @contextmanager
    def _claim(
        self, kind: type[_Kind], box: Box, buckets: Mapping[int, int], limit: int, *, losses: int
    ) -> Iterator[_Kind]:
        statements = self._known.statements(self._known.of_one_size(box)).for_claim()
        with (
            translated(self.engine),
            self.engine.connect() as connection,
            closing(cursor_of(connection)) as cursor,
        ):
            if losses != self._losses:  # the pool gives away new connections without a word
                raise StoreUnavailable("the database: connections were lost, and another server may answer")
            comment = None if self._comments is None else DeliveryComment(box, self._comments)
            runner = cursor if comment is None else commented(connection, cursor, comment)
            transaction = ClaimTransaction(
                connection,
                runner,
                statements,
                renew=partial(self._renewed, box),
                max_bytes=self._max_batch_bytes,
                checks=box.name in self._checked,
                refused=partial(self._checked.add, box.name),
            )
            try:
                claim = kind(transaction, box, self._begin(box, buckets), limit)
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

    # ── Bounding ─────────────────────────────────────────────────────────────────────────────────────

    def advance(self, box: Box) -> Collection[int]:
        return self._bounds.advance(self.table(box)) if self._bounds.of(box).due else ()

    def bounded(self, box: Box) -> bool:
        return box.storage is Storage.TABLE

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _renewed(self, box: Box) -> BoxStatements:
        self._forget(box)
        return self._known.statements(box)
