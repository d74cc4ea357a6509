"""Outcomes that the table refuses, narrowed down to their rows, so that the others are recorded.

A constraint, a trigger, a text that cannot be stored: one such row would undo its whole batch, whose items have been sent.
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Engine

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.connecting.errors import blames_the_row, sentence
from boxengine.adapters.sql.dialects.base import BoxStatements
from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement, Unrecorded

_SAVEPOINT = "boxengine_part"
_MOST_PARTS = 400
"""Most statements spent on finding the refused rows of a batch: a table that refuses everything is not tried row by row."""
_NOT_WRITTEN = "the database left the row as it was (a trigger, a rule or row security)"


class Narrowing:
    """Works within one transaction, whose rows are locked."""

    def __init__(self, cursor: Cursor, statements: BoxStatements, engine: Engine) -> None:
        self._cursor = cursor
        self._statements = statements
        self._engine = engine
        self._parts = 0

    def refused(self, settlement: Settlement, problem: Exception | None) -> dict[int, str]:
        """Records what can be recorded. Returns, by id, why the others cannot."""
        reason = _NOT_WRITTEN if problem is None else sentence(problem)
        refused: dict[int, str] = {}
        waiting = [(settlement, reason)] if settlement else []
        while waiting:
            part, reason = waiting.pop()
            if self._parts >= _MOST_PARTS:
                refused.update(dict.fromkeys(part.ids, reason))
                continue
            found = self._try(part)
            if found is not None and len(part) == 1:
                refused[part.ids[0]] = found
            elif found is not None:
                ids = part.ids
                middle = len(ids) // 2
                waiting += [(part.only(set(ids[middle:])), found), (part.only(set(ids[:middle])), found)]
        return refused

    def record(self, settlement: Settlement, problem: Exception | None) -> Unrecorded:
        """Records what can be recorded, and makes the other rows failed if they accept that."""
        failed: dict[int, FailedAttempt] = {}
        left: dict[int, str] = {}
        attempts = {attempt.id: attempt for attempt in settlement.failed}
        for item_id, reason in self.refused(settlement, problem).items():
            attempt = self._fail(item_id, reason, attempts.get(item_id))
            if attempt is None:
                left[item_id] = reason
            else:
                failed[item_id] = attempt
        return Unrecorded(failed=failed, left=left)

    def _fail(self, item_id: int, reason: str, attempt: FailedAttempt | None) -> FailedAttempt | None:
        """Under ``strict_order: bucket`` an item never becomes failed: its bucket waits."""
        if self._statements.strict_order is StrictOrder.BUCKET or self._parts >= _MOST_PARTS:
            return None
        what = "sent, but its delivery" if attempt is None else "failed, but the attempt"
        log = f"{what} could not be recorded: {reason}".encode("ascii", "replace").decode()
        count = self._statements.errors_count(self._cursor, item_id) if attempt is None else attempt.errors_count
        instead = FailedAttempt(item_id, Status.FAILED, count, log)
        for each in (instead, replace(instead, error_log="")):
            if self._try(Settlement(failed=[each])) is None:
                return instead
        return None

    def _try(self, part: Settlement) -> str | None:
        """Records this part or nothing of it. Returns why not."""
        self._parts += 1
        self._cursor.execute(f"SAVEPOINT {_SAVEPOINT}")
        try:
            written = self._statements.record(self._cursor, part)
            problem = None if written == len(part) else _NOT_WRITTEN
        except (self._engine.dialect.loaded_dbapi.Error, UnicodeError) as error:
            if not blames_the_row(self._engine, error):
                raise
            problem = sentence(error)
        self._cursor.execute(f"{'RELEASE' if problem is None else 'ROLLBACK TO'} SAVEPOINT {_SAVEPOINT}")
        return problem
