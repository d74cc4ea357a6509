"""The rows of one box in memory, and which of them are due."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, assert_never
from uuid import UUID

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import REPLAY_OF, Item, Status
from boxengine.domain.item_id import ItemId

UNFINISHED = frozenset({Status.PENDING, Status.FAILED})
"""What still matters to order: a failed row parks its key under ``StrictOrder.KEY``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row with every column of SEMANTICS 2; moments have zone UTC."""

    id: ItemId
    uuid: UUID | str
    event_name: str | None
    event_key: str
    bucket: int
    status: int
    options: Mapping[str, Any] | None
    payload: bytes
    errors_count: int
    error_log: str | None
    processed_at: datetime | None
    created_at: datetime
    updated_at: datetime
    available_at: datetime | None
    dedup_key: str | None
    seq: int | None = None
    """In boxes with ``sequence``: its number within its key."""

    @property
    def kept_since(self) -> datetime:
        """See ``HistoryStore.oldest_finished``."""
        if self.status == Status.DELIVERED or self.processed_at is None:
            return self.created_at
        return max(self.created_at, self.processed_at)

    @property
    def is_copy(self) -> bool:
        """Whether a replay has made it, of a delivered row."""
        headers = (self.options or {}).get("headers")
        original = headers.get(REPLAY_OF) if isinstance(headers, Mapping) else None
        return original is not None and original != str(self.uuid)

    def as_item(self, box: Box, *, dispatched_at: datetime) -> Item:
        """The row as the engine sees it."""
        return Item(
            id=self.id,
            uuid=str(self.uuid),
            event_name=self.event_name,
            event_key=self.event_key,
            bucket=self.bucket,
            status=self.status,
            raw_options=self.options,
            payload=self.payload,
            errors_count=self.errors_count,
            raw_created_at=self.created_at,
            processed_at=self.processed_at,
            box=box,
            dispatched_at=dispatched_at,
            seq=self.seq,
        )


class Rows:
    """Committed rows of one box by id. Not thread-safe: its owner holds a lock."""

    def __init__(self, name: Callable[[int], ItemId] = int) -> None:
        """``name``: the id of the box's first row, of its second, and so on; later rows have larger ids."""
        self._name = name
        self._rows: dict[ItemId, Row] = {}
        # Finished rows pile up; without this every look at a bucket would walk over them.
        self._unfinished: dict[int, set[ItemId]] = {}
        self._named = 0

    def next_id(self) -> ItemId:
        """The id that a sequence would give; never given twice, like that of a row that was rolled back."""
        self._named += 1
        return self._name(self._named)

    @property
    def drawn(self) -> int:
        """The last number that a row's id was made of."""
        return self._named

    def get(self, row_id: ItemId) -> Row | None:
        return self._rows.get(row_id)

    def __iter__(self) -> Iterator[Row]:
        """All rows in id order."""
        return iter([self._rows[row_id] for row_id in sorted(self._rows)])

    def put(self, row: Row) -> None:
        """Adds the row, or takes it for the one of the same id."""
        self.remove(row.id)
        self._rows[row.id] = row
        if isinstance(row.id, int):
            self._named = max(self._named, row.id)
        if row.status in UNFINISHED:
            self._unfinished.setdefault(row.bucket, set()).add(row.id)

    def remove(self, row_id: ItemId) -> None:
        row = self._rows.pop(row_id, None)
        if row is not None:
            self._unfinished.get(row.bucket, set()).discard(row_id)

    def unfinished(self, bucket: int) -> list[Row]:
        """Pending and failed rows of a bucket in id order."""
        return [self._rows[row_id] for row_id in sorted(self._unfinished.get(bucket, ()))]

    def due(self, box: Box, bucket: int, now: datetime) -> Iterator[Row]:
        """The due rows of a bucket in id order, as ``Store.poll`` defines them (SEMANTICS 6 and 7)."""
        parked: set[str] = set()
        for row in self.unfinished(bucket):
            if row.status == Status.PENDING and is_past_its_pause(box, row, now):
                if row.event_key not in parked:
                    yield row
                continue
            match box.strict_order:
                case StrictOrder.NONE:
                    pass
                case StrictOrder.BUCKET:
                    if row.status == Status.PENDING:
                        return
                case StrictOrder.KEY:
                    parked.add(row.event_key)
                case _:
                    assert_never(box.strict_order)

    def next_delayed(self, now: datetime) -> timedelta | None:
        """How long until the first row that waits for its ``available_at`` has it."""
        unfinished = (self._rows[row_id] for ids in self._unfinished.values() for row_id in ids)
        moments = (
            row.available_at for row in unfinished if row.status == Status.PENDING and row.available_at is not None
        )
        return min((moment - now for moment in moments if moment > now), default=None)


def is_past_its_pause(box: Box, row: Row, now: datetime) -> bool:
    """Whether a pending row need not wait any longer."""
    if row.available_at is not None and row.available_at > now:
        return False
    if box.backoff is None or row.processed_at is None or row.errors_count == 0:
        return True
    return row.processed_at + box.backoff.pause(row.errors_count, row.id) <= now


def by_id(row: Row) -> ItemId:
    """The sort key of rows."""
    return row.id


class Begin(NamedTuple):
    """Where a bucket is read."""

    after: ItemId | None = None
    """Rows with a greater id are read; None: all."""
    passed: bool = False
    """Whether rows that have an ``available_at`` are read in any case, because a bound may have passed them."""


def behind(begin: Begin, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows that are read."""
    after, passed = begin
    return (row for row in rows if after is None or row.id > after or (passed and row.available_at is not None))
