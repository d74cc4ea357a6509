"""The statements behind ``items``: SQLAlchemy Core, the same for every database but for a hint and a cast.

A change locks its rows in id order and skips those that a worker holds, so it neither waits for a delivery nor
deadlocks with one. It tests under the lock whether a row still matches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    DateTime,
    Integer,
    LargeBinary,
    Select,
    String,
    TableClause,
    TextClause,
    any_,
    bindparam,
    cast,
    column,
    delete,
    false,
    func,
    literal,
    select,
    table,
    update,
)
from sqlalchemy.types import NullType

from boxengine.adapters.sql.shape.now import stored_now
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import Box
from boxengine.domain.item import Status, rfc3339
from boxengine.errors import BoxError
from boxengine.ports import ItemFilter

SHOWN = (
    "id",
    "uuid",
    "event_name",
    "event_key",
    "bucket",
    "status",
    "errors_count",
    "created_at",
    "processed_at",
    "available_at",
    "dedup_key",
    "options",
    "error_log",
)
"""The columns that people see, without the payload."""
_NUMBERS = {"id": BigInteger(), "bucket": Integer(), "status": Integer(), "errors_count": Integer()}
_MOMENTS = ("created_at", "processed_at", "available_at", "updated_at")
_PARSED = frozenset({*_MOMENTS, "options"})
"""What the driver parses, and may not be able to."""


class ItemRows:
    """One box's table, with the columns it really has, in one transaction."""

    def __init__(self, found: BoxTable, connection: Connection) -> None:
        _, _, name = found.box.table.rpartition(".")
        types: dict[str, Any] = _NUMBERS | {each: DateTime(timezone=each in found.zoned) for each in _MOMENTS}
        columns = [column(each, types.get(each)) for each in sorted(found.columns)]
        self.connection = connection
        self.dialect = connection.dialect.name
        self.table: TableClause = table(name, *columns, schema=found.schema or None)
        self._columns = self.table.c
        self._found = found

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────

    def count(self, which: ItemFilter) -> int:
        query = select(func.count()).select_from(self.table).where(*self.meant(which))
        return int(self.connection.execute(query).scalar_one())

    def last_id(self) -> int | None:
        last: int | None = self.connection.execute(select(func.max(self._columns.id))).scalar_one()
        return last

    def ids(self, which: ItemFilter, *, after: int, limit: int) -> list[int]:
        return list(self.connection.execute(self._next([self._columns.id], which, after, limit)).scalars())

    def page(self, which: ItemFilter, *, after: int, limit: int, as_text: bool = False) -> Sequence[Any]:
        """``as_text``: moments and options as the database writes them, for rows that the driver cannot read."""
        columns = self.shown(as_text=as_text)
        return self.connection.execute(self._next(columns, which, after, limit)).mappings().all()

    def get(self, item_id: int, *, as_text: bool = False) -> Any:
        payload = self._columns[self._found.payload].label("payload")
        query = select(*self.shown(as_text=as_text), payload).where(self._columns.id == item_id)
        return self.connection.execute(query).mappings().one_or_none()

    def among(
        self, which: ItemFilter, ids: Sequence[int], *, newest_first: bool, limit: int, as_text: bool = False
    ) -> Sequence[Any]:
        """The rows with these ids that match."""
        identity = self._columns.id
        order = identity.desc() if newest_first else identity
        query = (
            select(*self.shown(as_text=as_text))
            .where(self._one_of(ids), *self.meant(which))
            .order_by(order)
            .limit(limit)
        )
        return self.connection.execute(query).mappings().all()

    def count_among(self, which: ItemFilter, ids: Sequence[int]) -> int:
        """How many rows with these ids match."""
        query = select(func.count()).select_from(self.table).where(self._one_of(ids), *self.meant(which))
        return int(self.connection.execute(query).scalar_one())

    def meant_among(self, which: ItemFilter, ids: Sequence[int]) -> list[int]:
        """The ids, of these, whose rows match."""
        identity = self._columns.id
        if not ids:
            return []
        query = select(identity).where(self._one_of(ids), *self.meant(which)).order_by(identity)
        return list(self.connection.execute(query).scalars())

    def _one_of(self, ids: Sequence[int]) -> ColumnElement[bool]:
        """Tests for one of the ids; on PostgreSQL with one array parameter instead of thousands of single ones."""
        if self.dialect == "postgresql":
            return self._columns.id == any_(cast(literal("{" + ",".join(map(str, ids)) + "}"), ARRAY(BigInteger)))
        return self._columns.id.in_(ids)

    # ── acting: each returns the ids of the rows it changed ──────────────────────────────────────────

    def retry(self, which: ItemFilter, ids: Sequence[int]) -> list[int]:
        # Without an errors_count the row is due at once; with a processed_at it counts as tried before.
        return self._make_due(
            which, ids, processed_at=func.coalesce(self._columns.processed_at, self._now("processed_at"))
        )

    def restart(self, which: ItemFilter, ids: Sequence[int]) -> list[int]:
        return self._make_due(which, ids, processed_at=None)

    def discard(self, which: ItemFilter, ids: Sequence[int]) -> list[int]:
        held = self._lock(which, ids, self._columns.status.in_([int(Status.PENDING), int(Status.FAILED)]))
        moment = self._now("processed_at")
        values: dict[str, Any] = {"status": int(Status.DISCARDED), "processed_at": moment}
        if held and self._found.has("error_log"):
            now: datetime = self.connection.execute(select(moment)).scalar_one()
            text = f"{rfc3339(now.replace(tzinfo=now.tzinfo or UTC))} discarded by hand"
            log, limit = func.concat_ws("\n", text, self._columns.error_log), self._found.log.always_fit
            values["error_log"] = log if limit is None else func.left(log, limit)
        return self._update(held, **values)

    def delete(self, which: ItemFilter, ids: Sequence[int]) -> list[int]:
        finished = [] if Status.PENDING in which.statuses else [self._columns.status != int(Status.PENDING)]
        held = self._lock(which, ids, *finished)
        if held:
            statement = delete(self.table).where(self._columns.id.in_(held))
            if self.dialect != "postgresql":
                # Only a DELETE that names its table twice accepts an index hint.
                statement = statement.prefix_with(self._found.in_text).with_hint(_BY_ID, dialect_name=self.dialect)
            self.connection.execute(statement)
        return held

    def send_again(self, which: ItemFilter, ids: Sequence[int], *, options: TextClause) -> list[int]:
        """Makes delivered rows pending, as if never tried."""
        held = self._lock(which, ids, self._columns.status == int(Status.DELIVERED))
        self.rehouse(held)
        values: dict[str, Any] = {"status": int(Status.PENDING), "errors_count": 0, "processed_at": None}
        return self._update(held, **values, options=options)

    def rehouse(self, ids: Sequence[int]) -> None:
        """Moves those of the rows whose bucket the box no longer has to the bucket of their key: where they are, no worker looks.

        ``db rebucket`` leaves finished rows where they are.

        Raises:
            SchemaMismatch: the box is configured with another number of buckets than the one in force.
            BoxError: the partition strategy does not take the key of one.
        """
        box, bucket = self._found.box, self._columns.bucket
        outside = (bucket < 0) | (bucket >= box.bucket_size)
        query = select(self._columns.id, self._columns.event_key).where(self._one_of(ids), outside)
        lost = self.connection.execute(query).all() if ids else ()
        if lost:
            self._found.refuse_another_size()
        homes = defaultdict[int, list[int]](list)
        for row_id, key in lost:
            homes[_home(box, str(key), row_id)].append(row_id)
        for home, theirs in homes.items():
            self._update(theirs, bucket=home)

    def _make_due(self, which: ItemFilter, ids: Sequence[int], **values: Any) -> list[int]:
        finished = self._columns.status.in_([int(Status.FAILED), int(Status.DISCARDED)])
        held = self._lock(which, ids, finished | self._waiting)
        self.rehouse(held)
        return self._update(held, status=int(Status.PENDING), errors_count=0, **values)

    def _lock(self, which: ItemFilter, ids: Sequence[int], *allowed: ColumnElement[bool]) -> list[int]:
        """Locks the rows that match, meet ``allowed`` and are not locked by others; returns their ids."""
        if not ids:
            return []
        identity = self._columns.id
        query = select(identity).where(identity.in_(ids), *self.meant(which), *allowed).order_by(identity)
        if self.dialect != "postgresql":
            query = query.with_hint(self.table, _BY_ID, self.dialect)
        return list(self.connection.execute(query.with_for_update(skip_locked=True)).scalars())

    def _update(self, ids: list[int], **values: Any) -> list[int]:
        if ids:
            statement = (
                update(self.table).where(self._columns.id.in_(ids)).values(**values, updated_at=self._now("updated_at"))
            )
            if self.dialect != "postgresql":
                statement = statement.with_hint(_BY_ID, dialect_name=self.dialect)
            self.connection.execute(statement)
        return ids

    # ── the parts ────────────────────────────────────────────────────────────────────────────────────

    def _next(self, columns: Sequence[ColumnElement[Any]], which: ItemFilter, after: int, limit: int) -> Select[Any]:
        identity = self._columns.id
        return select(*columns).where(identity > after, *self.meant(which)).order_by(identity).limit(limit)

    def meant(self, which: ItemFilter, *, key: bool = True) -> list[ColumnElement[bool]]:
        """The filter's conditions; without the one on the key if an index has already applied it."""
        columns = self._columns
        conditions: list[ColumnElement[bool]] = []
        if which.statuses:
            conditions.append(columns.status.in_(sorted(int(status) for status in which.statuses)))
        if which.ids:
            conditions.append(columns.id.in_(which.ids))
        if which.created_from is not None:
            conditions.append(columns.created_at >= self._creation(which.created_from))
        if which.created_before is not None:
            conditions.append(columns.created_at < self._creation(which.created_before))
        if which.above is not None:
            conditions.append(columns.id > which.above)
        if which.up_to is not None:
            conditions.append(columns.id <= which.up_to)
        if which.tried:
            conditions.append((columns.status != int(Status.PENDING)) | self._waiting)
        return conditions + self._of_texts(which, key=key)

    def _of_texts(self, which: ItemFilter, *, key: bool) -> list[ColumnElement[bool]]:
        conditions: list[ColumnElement[bool]] = []
        if which.event_key is not None and key:
            conditions += self._has_key(which.event_key)
        if which.uuid is not None:
            conditions.append(self._has_uuid(which.uuid))
        if which.event_name is not None:
            known = self._found.has("event_name")
            conditions.append(self._columns.event_name == which.event_name if known else false())
        if which.error is not None:
            conditions.append(self._says(which.error))
        return conditions

    def _has_key(self, key: str) -> list[ColumnElement[bool]]:
        stored = self._columns.event_key
        if self.dialect == "postgresql" and self._found.numeric_keys and not _is_number(key):
            return [false()]
        # An untyped value takes the column's type, which in old tables may be a number.
        conditions = [stored == bindparam(None, key, type_=NullType())]
        if self.dialect != "postgresql":
            # Compares to the byte. The first comparison uses the index, whose collation may equate different keys.
            conditions.append(cast(stored, LargeBinary) == cast(bindparam(None, key, type_=NullType()), LargeBinary))
        return conditions

    def _has_uuid(self, text: str) -> ColumnElement[bool]:
        stored, plain = self._columns.uuid, text.replace("-", "")
        # Untyped values take the column's type, which is text in some tables made elsewhere, with dashes or without.
        same = stored.in_([bindparam(None, each, type_=NullType()) for each in (text, plain)])
        if self.dialect == "postgresql":
            return same
        # Some MySQL schemas store a uuid as bytes, which cannot be compared with text.
        return same | (func.hex(stored) == plain.upper())

    def _says(self, text: str) -> ColumnElement[bool]:
        """Whether the ``error_log`` contains the text."""
        if not self._found.has("error_log"):
            return false()
        return func.lower(self._columns.error_log).contains(text.lower(), autoescape=True)

    @property
    def _waiting(self) -> ColumnElement[bool]:
        """Matches pending rows with failed attempts."""
        return (self._columns.status == int(Status.PENDING)) & (self._columns.errors_count > 0)

    def shown(self, *, as_text: bool) -> list[ColumnElement[Any]]:
        """The columns that people see, as far as the table has them.

        Args:
            as_text: moments and options as the database writes them, for rows that the driver cannot read.
        """
        shown: list[ColumnElement[Any]] = []
        for name in SHOWN:
            if self._found.has(name):
                each = self._columns[name]
                shown.append(cast(each, String).label(name) if as_text and name in _PARSED else each)
        return shown

    def _now(self, column: str) -> ColumnElement[Any]:
        """The database's clock in the form of this column."""
        return stored_now(self.connection.dialect, zoned=column in self._found.zoned)

    def _creation(self, moment: datetime) -> datetime:
        """The moment in the form of ``created_at``."""
        return moment if "created_at" in self._found.zoned else moment.astimezone(UTC).replace(tzinfo=None)


def _home(box: Box, key: str, row_id: int) -> int:
    try:
        return box.partition_strategy(key, box.bucket_size)
    except Exception as error:  # a strategy is user code
        raise BoxError(
            f"box {box.name}: item {row_id} is in a bucket that the box no longer has, and the partition strategy does not take "
            f"its key {key!r} as the table has it ({type(error).__name__}: {error}): set its bucket to one from 0 to "
            f"{box.bucket_size - 1}"
        ) from error


def _is_number(key: str) -> bool:
    """Whether it is the text of a number that a column may hold."""
    return key.removeprefix("-").isdecimal() and len(key) < _DIGITS and str(int(key)) == key


_DIGITS = 19
"""A number with fewer fits into a ``bigint``."""
_BY_ID = "FORCE INDEX (PRIMARY)"
"""Without the hint MySQL reads every row of a small table instead of the index, and waits for rows that a worker has locked."""
