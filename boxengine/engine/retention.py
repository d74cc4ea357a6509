"""Retention: finished rows are deleted once they are old enough, gently, from the oldest on. Pending rows never are."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from boxengine.domain.box import Box, Storage
from boxengine.domain.holding_back import held_back
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.rounds import SOON, Rounds
from boxengine.errors import BoxError, QueueUnavailable, SchemaMismatch
from boxengine.ports import Clock, Duty, HistoryStore, LeaseName, Leases, Observer, Partitions, events

INTERVAL = timedelta(minutes=10)
TURN_LIMIT = timedelta(minutes=30)
"""A worker's turn begins no further batch or partition after this time: health would take a pass over millions of rows for a
hanging one."""
LEASE_TTL = timedelta(seconds=60)
LOOKS = 5
"""So many parts of a table a pass looks at for old rows behind younger ones; the next pass goes on from there."""
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Retention:
    """Cleans up boxes, one worker at a time each."""

    def __init__(
        self,
        boxes: Sequence[Box],
        *,
        store: HistoryStore,
        leases: Leases,
        outages: Outages,
        observer: Observer,
        clock: Clock,
        token: str,
        looks: int | None = LOOKS,
        partitions: Partitions | None = None,
    ) -> None:
        """Args:
        looks: for old rows behind younger ones, in each pass; None: through the whole table.
        partitions: of boxes with ``storage: log``; None: they have none.
        """
        self._looks = looks
        self._partitions = partitions
        self._swept: dict[str, ItemId | None] = {}
        """By box, the id up to which it has been looked for old rows behind younger ones in this round; None: not at all."""
        self._rounds = Rounds(boxes, clock=clock)
        self._store = store
        self._leases = leases
        self._outages = outages
        self._observer = observer
        self._clock = clock
        self._token = token
        self._stopping = threading.Event()
        self._turn_ends = math.inf
        """Monotonic time; infinite outside of turns."""

    def turn(self) -> timedelta:
        """One pass over all boxes, or as much of it as the time allows; returns the pause until the next turn."""
        self._turn_ends = self._clock.monotonic() + TURN_LIMIT.total_seconds()
        try:
            # A box with much to delete must not keep the others waiting: the next turn begins after it.
            for box in self._rounds.turn(until=self._turn_ends):
                try:
                    self.clean_up(box)
                    self._outages.worked(f"retention of {box.name}")
                except Exception as error:  # one box's trouble must not stop the others
                    self._outages.failed(f"retention of {box.name}", error)
                if self._stopping.is_set():
                    break
        finally:
            self._turn_ends = math.inf
        return SOON if self._rounds.cut_short else INTERVAL

    def stop(self) -> None:
        """The pass under way ends after the statement under way."""
        self._stopping.set()

    def clean_up(self, box: Box) -> int | None:
        """Deletes what is old enough of one box; returns the number of rows, None where another worker is at it.

        Outside of a turn it takes as long as it takes.
        """
        lease = LeaseName(Duty.RETENTION, box.name)
        if not self._leases.acquire(lease, self._token, ttl=LEASE_TTL):
            return None
        try:
            retention, now = box.retention, self._store.now()
            delivered, others = now - retention.delivered, now - retention.others
            self._tell_of_a_lag(box, now)
            deleted = self._turn_over(box, delivered, lease=lease)
            deleted += self._delete(box, [Status.DELIVERED], delivered, lease=lease)
            deleted += self._delete(box, [Status.FAILED, Status.DISCARDED], others, lease=lease)
            ends: dict[int, datetime] = {Status.DELIVERED: delivered, Status.FAILED: others, Status.DISCARDED: others}
            return deleted + self._sweep(box, ends, lease=lease)
        finally:
            self._leases.release(lease, self._token)

    def _tell_of_a_lag(self, box: Box, now: datetime) -> None:
        """Before anything is deleted: under ``retain_at_most`` that may be what a subscription has not passed."""
        if box.subscription is not None:
            age = held_back(box, self._store.unread_since(box), now)
            if age is not None:
                self._observer.see(events.RetentionHeld(box, age=age))

    def _turn_over(self, box: Box, end: datetime, *, lease: LeaseName) -> int:
        """How many rows went with partitions of a log. Where partitions fail, rows are deleted all the same."""
        if self._partitions is None or box.storage is not Storage.LOG:
            return 0
        what, began = f"partitions of {box.name}", self._clock.monotonic()
        try:
            done = self._partitions.turn_over(box, created_before=end, go_on=partial(self._may_go_on, lease))
        except QueueUnavailable:
            raise  # of the lease, not of partitions
        except BoxError as error:
            self._outages.failed(what, error)
            return 0
        if done is not None and done.trouble is not None:
            self._outages.failed(what, SchemaMismatch(done.trouble))
        else:
            self._outages.worked(what)
        return self._told(box, 0 if done is None else done.deleted, began)

    def _delete(self, box: Box, statuses: Sequence[Status], end: datetime, *, lease: LeaseName) -> int:
        """Goes through the time before the end in windows, each in batches of one statement and transaction."""
        start = self._store.oldest_finished(box, statuses)
        deleted, since = 0, LONG_AGO  # the first row need not be the oldest: the first window is open to the past
        while start is not None and start < end and self._may_go_on(lease):
            until = min(end, start + box.retention.window)
            rows = self._delete_batch(box, statuses, since, until)
            deleted += rows
            if rows == box.retention.batch_size:
                self._stopping.wait(box.retention.pause.total_seconds())
            elif until < end:
                since, oldest = until, self._store.oldest_finished(box, statuses)
                # Where nothing is left of the windows that follow, they are passed over.
                start = None if oldest is None else max(until, oldest)
            else:
                break
        return deleted

    def _delete_batch(self, box: Box, statuses: Sequence[Status], since: datetime, until: datetime) -> int:
        began = self._clock.monotonic()
        rows = self._store.delete_finished(
            box, statuses, created_from=since, created_before=until, limit=box.retention.batch_size
        )
        return self._told(box, rows, began)

    def _sweep(self, box: Box, ends: Mapping[int, datetime], *, lease: LeaseName) -> int:
        """Deletes old rows that stand behind younger ones: imported, filled in, or of a writer whose clock was wrong."""
        retention = box.retention
        deleted, looks, after = 0, 0, self._swept.get(box.name)
        while (self._looks is None or looks < self._looks) and self._may_go_on(lease):
            began = self._clock.monotonic()
            swept = self._store.sweep_finished(box, ends, after=after, limit=retention.batch_size)
            deleted += self._told(box, swept.deleted, began)
            if swept.deleted == retention.batch_size:
                # There may be more where these were.
                self._stopping.wait(retention.pause.total_seconds())
                continue
            if swept.last_id is None:
                after = None
                break
            looks, after = looks + 1, swept.last_id
        self._swept[box.name] = after
        return deleted

    def _may_go_on(self, lease: LeaseName) -> bool:
        if self._stopping.is_set() or self._clock.monotonic() >= self._turn_ends:
            return False
        return self._leases.acquire(lease, self._token, ttl=LEASE_TTL)

    def _told(self, box: Box, rows: int, began: float) -> int:
        """The number of rows, of which the observer has been told if there are any."""
        if rows:
            self._observer.see(events.Deleted(box, rows=rows, seconds=self._clock.monotonic() - began))
        return rows
