"""One claim's transaction on its connection: locks, outcomes, and the connection's way back to the pool."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.connecting.errors import blames_the_row, sentence
from boxengine.adapters.sql.delivering.narrowing import Narrowing
from boxengine.adapters.sql.dialects.base import BoxStatements, Taken, without
from boxengine.adapters.sql.shape.changes import tells_of_a_change
from boxengine.domain.outcome import FailedAttempt, Settlement, Unrecorded

_BEFORE_OUTCOMES = "boxengine_outcomes"


class ClaimTransaction:
    """Holds the locks of a claim's buckets until it ends."""

    def __init__(
        self,
        connection: Connection,
        cursor: Cursor,
        statements: BoxStatements,
        *,
        renew: Callable[[], BoxStatements],
        max_bytes: int,
        checks: bool = False,
        refused: Callable[[], object] = lambda: None,
    ) -> None:
        """Args:
        renew: gives the statements of the table as it is now.
        checks: whether deferred constraints are checked item by item, because a commit has been refused.
        refused: told where a commit was refused that handlers have written in: no statement tells whose fault it is.
        """
        self._renew = renew
        self.checks = checks
        self._refused = refused
        self.connection = connection
        self.cursor = cursor
        self.statements = statements
        self._held: list[int] = []
        self.max_bytes = max_bytes
        """The most payload bytes in one claim."""
        self.gone = 0
        """Rows that the claim has already deleted."""
        self.locked = frozenset[int]()
        """Buckets that the claim left out, because somebody else has locked one of their rows."""
        self._lent = False

    def claim(self, wanted: Mapping[int, int], limit: int) -> Taken:
        """Takes the free locks among those wanted, and reads the due rows of their buckets."""
        return self._taken(self.statements.claim, wanted, limit)

    def claim_plain(self, wanted: Mapping[int, int], limit: int) -> Taken:
        """The same for a plain claim."""
        return self._taken(self.statements.claim_plain, wanted, limit)

    def lend(self) -> None:
        """Hands the connection to handlers, which may do anything to it."""
        self.statements.anchor(self.cursor)
        self._lent = True

    def commit(self) -> None:
        """Commits and frees the locks."""
        self.statements.seal(self.cursor)
        if self.connection.in_transaction():
            self.connection.commit()
        else:
            self.cursor.connection.commit()
        self._let_go()

    def finish(self, settlement: Settlement, buckets_of: Callable[[], Mapping[int, int]]) -> Unrecorded | None:
        """Writes all outcomes, commits and frees the locks.

        Args:
            buckets_of: gives the buckets of the claimed items, by id; asked only where they are needed.
        """
        problem: Exception | None = None
        try:
            if self.gone and self.gone == len(settlement.delivered):
                self.commit()
                return None
            if self.gone:
                self.statements.bring_back(self.cursor)
            written = self.statements.finish(self.cursor, settlement)
        except self._errors as error:
            written, problem = 0, self._excused(error)
        unrecorded = None
        if written < len(settlement):
            unrecorded = self._row_by_row(settlement, buckets_of(), problem)
        self._let_go()
        return unrecorded if unrecorded is not None and (unrecorded.failed or unrecorded.left) else None

    def finish_after_handlers(
        self, settlement: Settlement, buckets_of: Callable[[], Mapping[int, int]]
    ) -> Unrecorded | None:
        """The same, together with what the handlers wrote. If a row refuses its outcome, all of it is undone."""
        self.statements.take_back(self.cursor)
        self.cursor.execute(f"SAVEPOINT {_BEFORE_OUTCOMES}")
        problem: Exception | None = None
        try:
            written = self.statements.record(self.cursor, settlement)
            if self.checks:
                self.statements.check_at_once(self.cursor)
        except self._errors as error:
            written, problem = 0, self._excused(error)
        if written == len(settlement):
            self._commit_with_handlers()
            return None
        self.cursor.execute(f"ROLLBACK TO SAVEPOINT {_BEFORE_OUTCOMES}")
        if self.checks:
            self.statements.check_at_once(self.cursor)
        refused = Narrowing(self.cursor, self.statements, self.connection.engine).refused(settlement, problem)
        if not refused:
            self._commit_with_handlers()
            return None
        self._undo()
        unrecorded = self._row_by_row(settlement.only(refused), buckets_of(), problem)
        self._let_go()
        return Unrecorded(failed=unrecorded.failed, left=unrecorded.left, undone=True)

    def end(self) -> None:
        """Undoes what is not committed and frees the locks. A connection that cannot do both does not return to the pool."""
        if self.connection.invalidated:
            return
        try:
            self._undo()
            self._unlock()
            if self._lent and not self.statements.clean(self.cursor):
                self.connection.invalidate()
        except self.connection.dialect.loaded_dbapi.Error:
            # Whatever ended the claim reports why the connection broke. An error raised here would hide that.
            self.connection.invalidate()
        except BaseException:
            self.connection.invalidate()
            raise

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _taken(self, take: Callable[..., Taken], wanted: Mapping[int, int], limit: int) -> Taken:
        # A statement that fails halfway may have taken any of these locks.
        self._held = list(wanted)
        try:
            taken = take(self.cursor, wanted, limit)
        except self._errors as error:
            if not self.statements.hit_a_lock(error):
                raise
            self._begin_again(wanted)
            limit = self._leave_out_locked(wanted, limit)
            self._begin_again(wanted)
            taken = take(self.cursor, without(wanted, self.locked), limit)
        self._held, self.gone = taken.granted, len(taken.rows) if taken.gone else 0
        return taken

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        # A text that the connection's encoding cannot carry is not the driver's error.
        return (self.connection.dialect.loaded_dbapi.Error, UnicodeError)

    def _excused(self, error: Exception) -> Exception:
        """The error, if recording again may work: row by row, or with new statements for a changed table."""
        if tells_of_a_change(error):
            self.statements = self._renew()
        elif not blames_the_row(self.connection.engine, error):
            raise error
        return error

    def _undo(self) -> None:
        self.connection.rollback()
        # Also ends what the driver began without SQLAlchemy.
        self.connection.connection.rollback()

    def _leave_out_locked(self, wanted: Mapping[int, int], limit: int) -> int:
        """Finds the buckets among whose next rows one stays locked for a while.

        Returns:
            The rows that a claim of the others may ask for, so that it reads no further than was looked here.
        """
        statements, cursor = self.statements, self.cursor
        granted, bucket_of = statements.next_rows(cursor, wanted, limit)
        first = min(statements.locked(cursor, bucket_of), default=None)
        if first is not None:
            statements.wait_for(cursor, first)
            self.locked = frozenset(bucket_of[row_id] for row_id in statements.locked(cursor, bucket_of))
        return max(1, limit // max(1, granted)) * (granted - len(self.locked))

    def _begin_again(self, wanted: Mapping[int, int]) -> None:
        self._undo()
        self._unlock()
        self._held = list(wanted)

    def _commit_with_handlers(self) -> None:
        try:
            self.commit()
        except DBAPIError as error:
            engine, cause = self.connection.engine, error.orig
            # Only there are constraints deferred.
            if engine.dialect.name == "postgresql" and isinstance(cause, Exception) and blames_the_row(engine, cause):
                self._refused()
            raise

    def _row_by_row(self, settlement: Settlement, buckets: Mapping[int, int], problem: Exception | None) -> Unrecorded:
        """Records in a new transaction, for the items whose buckets nobody else has taken meanwhile."""
        self._undo()
        granted = set(self.statements.hold_again(self.cursor, sorted({buckets[each] for each in settlement.ids})))
        # What the commit refuses, no savepoint could undo.
        self.statements.check_at_once(self.cursor)
        ids = [each for each in settlement.ids if buckets[each] in granted]
        # The others are no longer pending: they have this outcome, or somebody else gave them another.
        pending = set(self.statements.hold_pending(self.cursor, ids)) if ids else set()
        narrowing = Narrowing(self.cursor, self.statements, self.connection.engine)
        unrecorded = self._sealed(narrowing, settlement.only(pending), buckets, problem)
        self.cursor.connection.commit()
        taken = {each: "another worker has its bucket" for each in settlement.ids if buckets[each] not in granted}
        return Unrecorded(failed=unrecorded.failed, left={**unrecorded.left, **taken})

    def _sealed(
        self, narrowing: Narrowing, settlement: Settlement, buckets: Mapping[int, int], problem: Exception | None
    ) -> Unrecorded:
        """Records what can be recorded. A row that cannot make way for those behind it keeps back its own bucket alone."""
        whole = self._sealed_part(narrowing, settlement, None, problem)
        if isinstance(whole, Unrecorded):
            return whole
        self.statements.forget()
        of_bucket: dict[int, set[int]] = {}
        for each in settlement.ids:
            of_bucket.setdefault(buckets[each], set()).add(each)
        failed: dict[int, FailedAttempt] = {}
        left: dict[int, str] = {}
        for bucket, ids in sorted(of_bucket.items()):
            found = self._sealed_part(narrowing, settlement.only(ids), [bucket], problem)
            if isinstance(found, Unrecorded):
                failed |= found.failed
                left |= found.left
            else:
                left |= dict.fromkeys(ids, found)
        return Unrecorded(failed=failed, left=left)

    def _sealed_part(
        self, narrowing: Narrowing, part: Settlement, buckets: Collection[int] | None, problem: Exception | None
    ) -> Unrecorded | str:
        """Records this part and seals its buckets; or does nothing, and returns why."""
        self.cursor.execute(f"SAVEPOINT {_BEFORE_OUTCOMES}")
        unrecorded = narrowing.record(part, problem)
        try:
            self.statements.seal(self.cursor, buckets)
        except self._errors as error:
            if not blames_the_row(self.connection.engine, error):
                raise
            self.cursor.execute(f"ROLLBACK TO SAVEPOINT {_BEFORE_OUTCOMES}")
            return sentence(error)
        self.cursor.execute(f"RELEASE SAVEPOINT {_BEFORE_OUTCOMES}")
        return unrecorded

    def _let_go(self) -> None:
        try:
            self._unlock()
        except self.connection.dialect.loaded_dbapi.Error:
            # Everything is written, and closing the connection frees the locks.
            self.connection.invalidate()

    def _unlock(self) -> None:
        if self._held:
            self.statements.unlock(self.cursor, self._held)
            self._held = []
