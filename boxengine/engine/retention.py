"""Retention: finished rows are deleted once they are old enough, gently, from the oldest on. Pending rows never are."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta

from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.engine.outages import Outages
from boxengine.ports import Clock, HistoryStore, Leases, Observer

INTERVAL = timedelta(minutes=10)
LEASE_TTL = timedelta(seconds=60)


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
    ) -> None:
        self._boxes = boxes
        self._store = store
        self._leases = leases
        self._outages = outages
        self._observer = observer
        self._clock = clock
        self._token = token
        self._stopping = threading.Event()

    def turn(self) -> timedelta:
        """One pass over all boxes; returns the pause until the next."""
        for box in self._boxes:
            try:
                self.clean_up(box)
                self._outages.worked(f"retention of {box.name}")
            except Exception as error:  # one box's trouble must not stop the others
                self._outages.failed(f"retention of {box.name}", error)
        return INTERVAL

    def stop(self) -> None:
        """The pass under way ends after the statement under way."""
        self._stopping.set()

    def clean_up(self, box: Box) -> int:
        """Deletes what is old enough of one box; returns the number of rows. 0 while another worker is at it."""
        name = f"sbmt:outbox:retention:{box.name}:lock"
        if not self._leases.acquire(name, self._token, ttl=LEASE_TTL):
            return 0
        try:
            retention = box.retention
            return self._delete(box, [Status.DELIVERED], retention.delivered, lease=name) + self._delete(
                box, [Status.FAILED, Status.DISCARDED], retention.others, lease=name
            )
        finally:
            self._leases.release(name, self._token)

    def _delete(self, box: Box, statuses: Sequence[Status], period: timedelta, *, lease: str) -> int:
        """Goes through the time before the period in windows, each in batches of one statement and transaction."""
        end = self._clock.now() - period
        start = self._store.oldest_finished(box, statuses)
        deleted = 0
        while start is not None and start < end and not self._stopping.is_set():
            until = min(end, start + box.retention.window)
            deleted += self._delete_window(box, statuses, start, until, lease=lease)
            start = until
        return deleted

    def _delete_window(
        self, box: Box, statuses: Sequence[Status], start: datetime, until: datetime, *, lease: str
    ) -> int:
        deleted = 0
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            rows = self._store.delete_finished(
                box, statuses, created_from=start, created_before=until, limit=box.retention.batch_size
            )
            deleted += rows
            if rows:
                self._observer.deleted(box, rows=rows, seconds=self._clock.monotonic() - began)
            if rows < box.retention.batch_size:
                break
            if not self._leases.acquire(lease, self._token, ttl=LEASE_TTL):
                break
            self._stopping.wait(box.retention.pause.total_seconds())
        return deleted
