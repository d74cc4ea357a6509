"""A claim: the due rows of some buckets, under the buckets' locks, until their outcomes are committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import repeat
from operator import add, itemgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from boxengine.adapters.sql.connecting.errors import sentence, translated
from boxengine.adapters.sql.delivering.transaction import ClaimTransaction
from boxengine.adapters.sql.delivering.weighing import Weighing
from boxengine.adapters.sql.dialects.base import ROW_FIELDS, Row, Taken
from boxengine.adapters.sql.dialects.payloads import payload_of
from boxengine.adapters.sql.sessions.handlers_session import HandlersSession
from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.outcome import Settlement, Unrecorded

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_ID = itemgetter(0)
_BUCKET = itemgetter(Item._fields.index("bucket"))
"""Reads the bucket of a row or of an item, which begins with the same fields."""


class SqlPlainClaim:
    """``PlainClaim``: one transaction on one connection. Made by ``SqlStore.plain_claims`` only."""

    def __init__(self, transaction: ClaimTransaction, box: Box, wanted: Mapping[int, int], limit: int) -> None:
        """Claims the wanted buckets that nobody else holds."""
        self._transaction = transaction
        self._engine = transaction.connection.engine
        taken = self._take(wanted, limit)
        granted, now, rows, unreadable = taken.granted, taken.now, taken.rows, taken.unreadable
        exhausted = _exhausted(granted, rows, taken.share) if taken.exhausted is None else taken.exhausted
        rows.sort(key=_ID if unreadable else None)
        if len(rows) > limit:
            exhausted = exhausted.difference(map(_BUCKET, rows[limit:]))
            del rows[limit:]
        if None in map(payload_of, rows):
            weighing = Weighing(transaction.statements, transaction.cursor, most=transaction.max_bytes)
            rows = weighing.fill(rows, unreadable)
            unreadable = {**unreadable, **weighing.unreadable}
            exhausted -= weighing.left
        self.now = now
        self.items: Sequence[Item] = _items(rows, box, now)
        self.refused = frozenset(wanted).difference(granted)
        self.locked = transaction.locked
        self.exhausted = exhausted
        self.unreadable: Mapping[int, str] = unreadable

    def waiting_keys(self, items: Sequence[Item], upto: Mapping[int, int]) -> Collection[str]:
        with translated(self._engine):
            return self._transaction.statements.waiting_keys(self._transaction.cursor, items, upto)

    def commit(self, settlement: Settlement) -> Unrecorded | None:
        with translated(self._engine):
            return self._transaction.finish(settlement, self._bucket_of)

    def _take(self, wanted: Mapping[int, int], limit: int) -> Taken:
        return self._transaction.claim_plain(wanted, limit)

    def _bucket_of(self) -> dict[int, int]:
        return {item.id: item.bucket for item in self.items}


class SqlClaim(SqlPlainClaim):
    """``Claim``: handlers may write in the transaction, too. Made by ``SqlStore.claims`` only."""

    def __init__(self, transaction: ClaimTransaction, box: Box, wanted: Mapping[int, int], limit: int) -> None:
        super().__init__(transaction, box, wanted, limit)
        self._statements = transaction.statements
        self._cursor = transaction.cursor
        self._handlers = HandlersSession(transaction.connection, sentence=sentence, checks=transaction.checks)

    @property
    def session(self) -> Session:
        if not self._handlers.in_use:
            self._transaction.lend()
            # SQLAlchemy must know of the open transaction: a session on an idle connection would really commit.
            self._transaction.connection.begin()
        return self._handlers.get()

    def savepoint(self) -> AbstractContextManager[None]:
        return self._handlers.savepoint()

    def later_delivered(self, items: Sequence[Item]) -> Mapping[int, int]:
        with translated(self._engine):
            return self._statements.later_delivered(self._cursor, items) if items else {}

    def commit(self, settlement: Settlement) -> Unrecorded | None:
        if not self._handlers.in_use:
            return super().commit(settlement)
        with translated(self._engine):
            self._handlers.finish()
            return self._transaction.finish_after_handlers(settlement, self._bucket_of)

    def _take(self, wanted: Mapping[int, int], limit: int) -> Taken:
        return self._transaction.claim(wanted, limit)


Kind_co = TypeVar("Kind_co", bound=SqlPlainClaim, covariant=True)


class SqlClaims(Generic[Kind_co]):
    """``Claims`` of one box."""

    def __init__(self, opened: Callable[[Mapping[int, int], int], AbstractContextManager[Kind_co]]) -> None:
        self._opened = opened

    def open(self, buckets: Mapping[int, int | None], limit: int) -> AbstractContextManager[Kind_co]:
        return self._opened({bucket: after or 0 for bucket, after in buckets.items()}, limit)


def _items(rows: Sequence[Row], box: Box, now: datetime) -> list[Item]:
    new = tuple.__new__  # what Item._make calls in the end, without its overhead
    if rows and len(rows[0]) > ROW_FIELDS:
        return [new(Item, (*row[:ROW_FIELDS], box, now, *row[ROW_FIELDS:])) for row in rows]
    return list(map(new, repeat(Item), map(add, rows, repeat((box, now, None)))))


def _exhausted(granted: Sequence[int], rows: Sequence[Row], share: int) -> frozenset[int]:
    """The granted buckets that returned fewer rows than asked for."""
    counts = Counter(map(_BUCKET, rows))
    return frozenset(bucket for bucket in granted if counts[bucket] < share)
