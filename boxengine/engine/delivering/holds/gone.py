"""Reports rows that a job names but that no longer exist, as the reference does."""

from __future__ import annotations

from collections.abc import Collection

from boxengine.domain.job import ANY_ID
from boxengine.errors import Unavailable
from boxengine.ports import Hold, ItemFilter, ItemsStore, Observer, events


class GoneRows:
    """Looks only at jobs in which nothing was due. That is rare, because the poller queues buckets that have work."""

    def __init__(self, items: ItemsStore, *, observer: Observer) -> None:
        self._items = items
        self._observer = observer

    def look(self, hold: Hold, buckets: Collection[int]) -> None:
        """Reports each row that the hold's jobs for these buckets name and that no longer exists.

        A row that exists and is not pending is ignored: somebody else has settled it.
        """
        if hold.box.retention.deletes_on_delivery:
            return  # delivered rows are deleted, so a missing row is normal
        named = {id_ for job in hold.jobs if job.bucket in buckets and job.ids != ANY_ID for id_ in job.ids}
        if not named:
            return
        which = ItemFilter(ids=tuple(sorted(named)))
        try:
            there = self._items.ids(hold.box, which, after=None, limit=len(named))
        except Unavailable:
            return  # the report is a convenience, not a promise
        for id_ in sorted(named.difference(there)):
            self._observer.see(events.FetchFailed(hold.box, f"item {id_}, named by a job, is gone"))
