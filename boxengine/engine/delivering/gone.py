"""Counts the rows that a job names and that are not there any more, as the reference does."""

from __future__ import annotations

from collections.abc import Collection

from boxengine.domain.job import ANY_ID
from boxengine.errors import Unavailable
from boxengine.ports import Hold, ItemFilter, ItemsStore, Observer, events


class GoneRows:
    """Asked only about jobs of which nothing was found due, which is rare: the poller queues what has work."""

    def __init__(self, items: ItemsStore, *, observer: Observer) -> None:
        self._items = items
        self._observer = observer

    def look(self, hold: Hold, buckets: Collection[int]) -> None:
        """Tells the observer of each row that the hold's jobs for these buckets name and that is gone.

        A row that is there and not pending is passed over quietly: somebody else has settled it.
        """
        if hold.box.retention.deletes_on_delivery:
            return  # a row that was delivered is gone, and nothing is wrong
        named = {id_ for job in hold.jobs if job.bucket in buckets and job.ids != ANY_ID for id_ in job.ids}
        if not named:
            return
        which = ItemFilter(ids=tuple(sorted(named)))
        try:
            there = self._items.ids(hold.box, which, after=None, limit=len(named))
        except Unavailable:
            return  # a count is a help, not a promise
        for id_ in sorted(named.difference(there)):
            self._observer.see(events.FetchFailed(hold.box, f"item {id_}, named by a job, is gone"))
