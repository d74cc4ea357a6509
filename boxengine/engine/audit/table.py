"""The audit of a table, judged by its rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from boxengine.domain.box import Box
from boxengine.domain.item import REPLAY_OF, Status, rfc3339
from boxengine.engine.audit.by_key import KeyChecks
from boxengine.engine.audit.findings import Finding, Kind, Summary
from boxengine.ports import ItemFilter, ItemRow, ItemsStore, Store
from boxengine.ports.people.audit import AuditStore, Twins

BUCKETS_AT_ONCE = 16
DUE_ROWS = 1000
"""How many due rows of each bucket are checked, lowest ids first: a row that was passed over has a low id."""
IDS_AT_ONCE = 1000
_NEVER = datetime.max.replace(tzinfo=UTC)
Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how much is done, and the total if it is known."""


class TableAudit:
    """The checks that need only the database."""

    def __init__(
        self,
        box: Box,
        *,
        store: Store,
        items: ItemsStore,
        rows: AuditStore,
        since: datetime | None = None,
        stuck_after: timedelta = timedelta(minutes=10),
        own_buckets: bool = False,
        limit: int = 100,
    ) -> None:
        """Args:
        since: only rows created since this moment, which has a time zone, are checked.
        stuck_after: how long an item must have been due to count as stuck.
        own_buckets: whether the application chooses buckets by something other than the event key.
        limit: the most duplicates to report.
        """
        self._box = box
        self._store = store
        self._items = items
        self._rows = rows
        self._since = since
        self._stuck_after = stuck_after
        self._own_buckets = own_buckets
        self._limit = limit

    def findings(self, summary: Summary, progress: Progress) -> Iterator[Finding]:
        """Runs only as far as the iterator is consumed, and keeps ``summary`` up to date.

        Raises:
            StoreUnavailable: the database does not answer.
            SchemaMismatch: the table cannot be read.
            BoxError: the rows cannot be sorted, because temporary files cannot be written.
        """
        progress("items that are due", 0, None)
        yield from self._stuck()
        yield from self._by_key(summary, progress)
        progress("items that are there twice", 0, None)
        for twins in self._rows.twins(self._box, since=self._since, limit=self._limit):
            yield _twice(twins)

    # ── left behind ──────────────────────────────────────────────────────────────────────────────────

    def _stuck(self) -> Iterator[Finding]:
        buckets = self._box.buckets
        for start in range(0, len(buckets), BUCKETS_AT_ONCE):
            part = list(buckets[start : start + BUCKETS_AT_ONCE])
            due = self._store.poll(self._box, part, DUE_ROWS * len(part))
            yield from self._passed_over([row.id for row in due])

    def _passed_over(self, ids: Sequence[int]) -> Iterator[Finding]:
        """Items that have long been due while later ones of their bucket were delivered."""
        now = self._rows.now()
        waiting = [
            (row, since)
            for row in self._look_up(ids)
            if now - (since := self._due_since(row)) > self._stuck_after and not _replayed(row)
        ]
        if not waiting:
            return
        last = self._rows.last_delivered(self._box, sorted({row.bucket for row, _ in waiting}))
        for row, since in waiting:
            passed = last.get(row.bucket)
            if passed is not None and passed.id > row.id and passed.at.replace(tzinfo=UTC) > since:
                detail = (
                    f"has been due since {rfc3339(since)}; its bucket {row.bucket} has been delivered up to item "
                    f"{passed.id}, the last at {rfc3339(passed.at)}"
                )
                yield Finding(Kind.STUCK, row.id, row.event_key, detail)

    def _look_up(self, ids: Sequence[int]) -> Iterator[ItemRow]:
        for start in range(0, len(ids), IDS_AT_ONCE):
            part = tuple(ids[start : start + IDS_AT_ONCE])
            which = ItemFilter(ids=part, created_from=self._since)
            rows = self._items.page(self._box, which, after=None, limit=len(part))
            yield from (row for row in rows if row.status == Status.PENDING)

    def _due_since(self, row: ItemRow) -> datetime:
        # An unreadable moment is text: delivery fails such a row, so it is not judged by that moment here.
        moments = [each for each in (row.created_at, row.available_at) if isinstance(each, datetime)]
        if isinstance(row.processed_at, datetime):
            pause = timedelta(0) if self._box.backoff is None else self._box.backoff.pause(row.errors_count, row.id)
            moments.append(row.processed_at + pause)
        return max(moments, default=_NEVER)

    # ── key by key ───────────────────────────────────────────────────────────────────────────────────

    def _by_key(self, summary: Summary, progress: Progress) -> Iterator[Finding]:
        checks = KeyChecks(
            self._box,
            numbered=self._rows.numbered(self._box),
            own_buckets=self._own_buckets,
            complete_from=kept_from(self._box, self._rows.now()).replace(tzinfo=None),
        )
        # The first page may take a while: without an index by key, all rows are read and sorted first.
        progress("rows", 0, None)
        for page in self._rows.by_key(self._box, since=self._since):
            summary.rows += len(page)
            progress("rows", summary.rows, None)
            yield from checks.look(page)


def kept_from(box: Box, now: datetime) -> datetime:
    """Since when all created rows still exist, unless a person deleted some."""
    return now - min(box.retention.delivered, box.retention.others)


def _replayed(row: ItemRow) -> bool:
    """Whether a replay has made the row itself due again; since when is not known."""
    headers = row.options.get("headers") if isinstance(row.options, Mapping) else None
    return isinstance(headers, Mapping) and headers.get(REPLAY_OF) == row.uuid


def _twice(twins: Twins) -> Finding:
    detail = f"{twins.column} {twins.value} is there {twins.times} times, the last is item {twins.last_id}"
    return Finding(Kind.DUPLICATE, twins.first_id, twins.event_key, detail)
