"""The store in memory: committed rows, without a database.

One ``MemoryStore`` is one process's connection; ``twin()`` gives another process's view of the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Self
from uuid import NAMESPACE_OID, uuid5

from boxengine.adapters.memory.bounding import MemoryBounds
from boxengine.adapters.memory.claims import MemoryClaims
from boxengine.adapters.memory.database import Database, OpenClaim, Step, no_fault
from boxengine.adapters.memory.rows import Begin, Row, behind, by_id
from boxengine.domain.bounds import PACE, Pace
from boxengine.domain.box import Box, BoxType, Storage
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.errors import StoreUnavailable
from boxengine.ports import Clock, Outlook, PendingRow, Swept

LOOKED_AT = 100
"""Rows of a look for old ones behind younger ones, and for the oldest of those that have failed."""


class MemoryStore:
    """``Store`` and ``HistoryStore`` over rows in memory; thread-safe.

    Args:
        clock: the store's clock, shared by all twins as a database's is.
        max_batch_bytes: of the payloads of one claim, as in ``processor.max_batch_bytes``.
        name: the id of a box's first row, of its second, and so on; later rows have larger ids.
        fault: called with each step before it happens; what it raises (``StoreUnavailable``, for one) ends the step.
        pace: how often the bounds of the boxes move.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        fault: Callable[[Step], None] = no_fault,
        max_batch_bytes: int | None = None,
        name: Callable[[int], ItemId] = int,
        pace: Pace = PACE,
    ) -> None:
        self._database = Database(clock, name)
        if max_batch_bytes is not None:
            self._database.max_batch_bytes = max_batch_bytes
        self._fault = fault
        self._bounds = MemoryBounds(self._database, pace)

    def twin(self, *, fault: Callable[[Step], None] = no_fault) -> Self:
        """Another handle on the same rows and locks, with faults and bounds of its own."""
        pace = self._bounds.pace
        other = type(self)(self._database.clock, fault=fault, name=self._database.name, pace=pace)
        other._database = self._database  # noqa: SLF001 - of this very class
        other._bounds = MemoryBounds(self._database, pace)  # noqa: SLF001
        return other

    # ── what an application and a test do ────────────────────────────────────────────────────────────

    def insert(
        self,
        box: Box,
        *,
        event_key: object,
        payload: bytes = b"",
        bucket: int | None = None,
        event_name: str | None = None,
        options: Mapping[str, Any] | None = None,
        available_at: datetime | None = None,
        dedup_key: str | None = None,
        **columns: Any,
    ) -> ItemId:
        """Commits a row and returns its id; that of the first row where ``dedup_key``, or the ``uuid`` in an inbox, is taken.

        ``columns`` are any others of ``Row``, taken as they are. The bucket follows from the event key where not
        given, the uuid from the box and the id, so that a run repeats exactly.
        """
        with self._database.lock:
            known = self._known(box, dedup_key=dedup_key, uuid=columns.get("uuid"))
            if known is not None:
                return known
            row = self._new(
                box,
                event_key=event_key,
                payload=payload,
                bucket=bucket,
                event_name=event_name,
                options=options,
                **columns,
            )
            self._database.rows(box).put(replace(row, available_at=available_at, dedup_key=dedup_key))
            self._database.uncommitted.discard((box.name, row.id))
        return row.id

    def _known(self, box: Box, *, dedup_key: str | None, uuid: object) -> ItemId | None:
        """The id of the row that has the same identity, as ``KnownRows`` finds it."""
        identities = {"dedup_key": dedup_key, "uuid": uuid if box.type is BoxType.INBOX else None}
        for name, value in identities.items():
            if value is None:
                continue
            for row in self._database.rows(box):
                own = getattr(row, name)
                if own is not None and str(own) == str(value):
                    return row.id
        return None

    def _new(
        self,
        box: Box,
        *,
        event_key: object,
        payload: bytes = b"",
        bucket: int | None = None,
        event_name: str | None = None,
        options: Mapping[str, Any] | None = None,
        **columns: Any,
    ) -> Row:
        now = self._database.clock.now()
        row_id = columns.pop("id", None) or self._database.rows(box.source).next_id()
        row = Row(
            id=row_id,
            uuid=uuid5(NAMESPACE_OID, f"{box.source.name}/{row_id}"),
            event_name=event_name,
            event_key=str(event_key),
            bucket=box.partition_strategy(event_key, box.bucket_size) if bucket is None else bucket,
            status=Status.PENDING,
            options=options,
            payload=payload,
            errors_count=0,
            error_log=None,
            processed_at=None,
            created_at=now,
            updated_at=now,
            available_at=None,
            dedup_key=None,
        )
        return replace(row, **columns)

    def update(self, box: Box, row_id: ItemId, **columns: Any) -> None:
        """Changes a committed row as somebody outside the engine would.

        Raises:
            StoreUnavailable: an open claim has locked the row; a database would give up waiting for it.
            KeyError: there is no such row.
        """
        with self._database.lock:
            if (box.name, row_id) in self._database.locked_rows:
                raise StoreUnavailable(f"row {row_id} of {box.name} is locked by an open claim")
            row = self._database.rows(box).get(row_id)
            if row is None:
                raise KeyError(row_id)
            self._database.rows(box).put(replace(row, **columns))

    def put(self, box: Box, row: Row) -> None:
        """Adds a committed row as it is, or takes it for the one of the same id."""
        with self._database.lock:
            self._database.rows(box).put(row)

    def remove(self, box: Box, row_id: ItemId) -> None:
        """Takes a row away as if its transaction had never committed; harmless where there is none."""
        with self._database.lock:
            self._database.rows(box).remove(row_id)

    def spoil(self, box: Box, row_id: ItemId, reason: str = "the row cannot be read") -> None:
        """From here on nobody can read the row."""
        with self._database.lock:
            self._database.spoilt[box.name, row_id] = reason

    def refuse(self, box: Box, row_id: ItemId, *, even_failed: bool = False) -> None:
        """From here on the row takes no outcome, as a constraint or a trigger of a table has it.

        Args:
            even_failed: it cannot be made failed either.
        """
        with self._database.lock:
            self._database.refusals[box.name, row_id] = even_failed

    def rows(self, box: Box) -> list[Row]:
        """All committed rows in id order."""
        with self._database.lock:
            return list(self._database.rows(box))

    def reserve_id(self, box: Box) -> ItemId:
        """An id as a sequence gives it to a writer that commits later, or never; to be passed to ``insert``."""
        with self._database.lock:
            row_id = self._database.rows(box).next_id()
            self._database.uncommitted.add((box.name, row_id))
            return row_id

    def cut_idle(self, longest: timedelta) -> list[OpenClaim]:
        """Cuts claims whose last statement was longer ago, as ``idle_in_transaction_session_timeout`` does; which."""
        if not self._database.open_claims:
            return []
        with self._database.lock:
            limit = self._database.clock.monotonic() - longest.total_seconds()
            idle = [claim for claim in self._database.open_claims.values() if claim.last_used < limit]
            for claim in idle:
                claim.cut()
        return idle

    def _deletable(self, box: Box) -> Iterable[Row]:
        """What retention may take, in id order, once it is finished and old."""
        return self._database.rows(box)

    def _remove(self, box: Box, rows: Sequence[Row]) -> None:
        for row in rows:
            self._database.rows(box).remove(row.id)

    @property
    def effects(self) -> list[Any]:
        """What committed claims added to their sessions, in order of commit."""
        with self._database.lock:
            return list(self._database.effects)

    # ── Store ────────────────────────────────────────────────────────────────────────────────────────

    def poll(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        """See ``Store.poll``; each bucket gets ``limit // len(buckets)`` rows, at least one."""
        return self._polled(box, buckets, limit, lambda _row: True)

    def poll_regular(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        """See ``Store.poll_regular``; each bucket gets as many as in ``poll``."""
        return self._polled(box, buckets, limit, lambda row: row.errors_count == 0)

    def _polled(self, box: Box, buckets: Sequence[int], limit: int, wanted: Callable[[Row], bool]) -> list[PendingRow]:
        self._fault("poll")
        share = max(1, limit // max(1, len(buckets)))
        found: list[Row] = []
        with self._database.lock:
            rows, now = self._database.rows(box), self._database.clock.now()
            for bucket, begin in self._begin(box, buckets).items():
                due = behind(begin, rows.due(box, bucket, now))
                found += islice(filter(wanted, due), share)
        return [PendingRow(row.id, row.bucket, row.errors_count) for row in sorted(found, key=by_id)]

    def outlook(self, box: Box, buckets: Sequence[int]) -> Outlook:
        """See ``Store.outlook``."""
        self._fault("poll")
        with self._database.lock:
            rows, now = self._database.rows(box), self._database.clock.now()
            begins = self._begin(box, buckets)
            due = [bucket for bucket, begin in begins.items() if any(behind(begin, rows.due(box, bucket, now)))]
            return Outlook(due, rows.next_delayed(now))

    def pending(self, boxes: Sequence[Box]) -> frozenset[str]:
        """See ``Store.pending``."""
        self._fault("poll")
        with self._database.lock:
            return frozenset(
                box.name for box in boxes if any(row.status == Status.PENDING for row in self._database.rows(box))
            )

    def locks_decide(self, box: Box) -> bool:  # noqa: ARG002 - see ``Store``
        """See ``Store.locks_decide``."""
        return True

    def claims(self, box: Box) -> MemoryClaims:
        """See ``Store.claims``."""
        return MemoryClaims(self._database, box, fault=self._fault, bounds=self._bounds)

    def plain_claims(self, box: Box) -> MemoryClaims:
        """See ``Store.plain_claims``; nothing here is written before the commit, so these are claims like any other."""
        return self.claims(box)

    def ping(self) -> None:
        """See ``Store.ping``."""
        self._fault("ping")

    # ── Bounding ─────────────────────────────────────────────────────────────────────────────────────

    def advance(self, box: Box) -> Collection[int]:
        """See ``Bounding.advance``."""
        if not self._bounds.of(box).due:
            return ()
        self._fault("poll")
        return self._bounds.advance(box)

    def bounded(self, box: Box) -> bool:
        """See ``Bounding.bounded``. Only numbers have bounds."""
        return box.storage is Storage.TABLE and isinstance(self._database.name(1), int)

    def read_from_start(self, box_name: str) -> None:
        """See ``Bounding.read_from_start``."""
        self._bounds.forget(box_name)

    def _begin(self, box: Box, buckets: Sequence[int]) -> Mapping[int, Begin]:
        return self._bounds.begin(box, dict.fromkeys(buckets))

    # ── HistoryStore ─────────────────────────────────────────────────────────────────────────────────

    def counts(self, box: Box) -> Mapping[int, int]:
        """See ``HistoryStore.counts``."""
        self._fault("history")
        return Counter(row.status for row in self.rows(box))

    def oldest_pending(self, box: Box) -> datetime | None:
        """See ``HistoryStore.oldest_pending``."""
        self._fault("history")
        pending = [row for row in self.rows(box) if row.status == Status.PENDING]
        since = [max(row.created_at, row.available_at or row.created_at) for row in pending]
        return min((each for each in since if each <= self._database.clock.now()), default=None)

    def unread_since(self, box: Box) -> datetime | None:  # noqa: ARG002 - the port's
        """See ``HistoryStore.unread_since``; these boxes have no log."""
        return None

    def stranded_items(self, box: Box) -> int:
        """See ``HistoryStore.stranded_items``."""
        self._fault("history")
        pending = [row for row in self.rows(box) if row.status == Status.PENDING]
        return min(sum(not 0 <= row.bucket < box.bucket_size for row in pending), 10_000)

    def now(self) -> datetime:
        """See ``HistoryStore.now``."""
        self._fault("history")
        return self._database.clock.now()

    def oldest_finished(self, box: Box, statuses: Sequence[int]) -> datetime | None:
        """See ``HistoryStore.oldest_finished``."""
        self._fault("history")
        with self._database.lock:
            rows = (row for row in self._deletable(box) if row.status in statuses)
            first = islice(rows, 1 if set(statuses) == {Status.DELIVERED} else LOOKED_AT)
            return min((row.kept_since for row in first), default=None)

    def delete_finished(
        self, box: Box, statuses: Sequence[int], *, created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        """See ``HistoryStore.delete_finished``; pending rows stay whatever ``statuses`` says (SEMANTICS 8)."""
        self._fault("history")
        finished = set(statuses) - {Status.PENDING}
        with self._database.lock:
            rows = self._deletable(box)
            span = (row for row in rows if row.status in finished and created_from <= row.kept_since < created_before)
            doomed = list(islice(span, limit))
            self._remove(box, doomed)
        return len(doomed)

    def sweep_finished(self, box: Box, before: Mapping[int, datetime], *, after: ItemId | None, limit: int) -> Swept:
        """See ``HistoryStore.sweep_finished``; looks at ``LOOKED_AT`` rows."""
        self._fault("history")
        with self._database.lock:
            looked = list(islice(behind(Begin(after), self._deletable(box)), LOOKED_AT))
            finished = (row for row in looked if row.status != Status.PENDING and row.status in before)
            doomed = list(islice((row for row in finished if row.kept_since < before[row.status]), limit))
            self._remove(box, doomed)
        return Swept(len(doomed), looked[-1].id if looked else None)
