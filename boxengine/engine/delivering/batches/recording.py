"""Writes outcomes into the database, and deals with those that it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import FailedAttempt, Settlement, Unrecorded
from boxengine.engine.attempt import error_log, located
from boxengine.engine.delivering.batches.remembered import Remembered
from boxengine.engine.delivering.batches.resting import Resting
from boxengine.engine.delivering.calls.sent import Failed
from boxengine.errors import StoreConflict, StoreUnavailable
from boxengine.ports import ErrorTracker, Observer, PlainClaim, events

MOST_NAMED = 20
"""Ids in one line of a log."""


class Recording:
    """Records the outcomes of one box. Shared by threads."""

    def __init__(
        self, box: Box, *, resting: Resting, remembered: Remembered, observer: Observer, error_tracker: ErrorTracker
    ) -> None:
        self._box = box
        self._resting = resting
        self._remembered = remembered
        self._observer = observer
        self._track = error_tracker

    def attempts(self, failures: Sequence[Failed], *, now: datetime) -> list[FailedAttempt]:
        """The failures as their rows will be written; the error tracker is told of items that have no retries left."""
        return [
            self._attempt(failure, now=now, ended=self._box.exhausted(failure.item.errors_count + 1))
            for failure in failures
        ]

    def last_attempts(self, failures: Sequence[Failed], *, now: datetime) -> list[FailedAttempt]:
        """Like ``attempts``, for items that must not be tried again, whatever retries are left."""
        return [self._attempt(failure, now=now, ended=True) for failure in failures]

    def commit(self, claim: PlainClaim, settlement: Settlement) -> Settlement:
        """Writes all outcomes and ends the claim; returns those that are recorded.

        Raises:
            StoreUnavailable: nothing is known to be recorded. The failures are remembered elsewhere.
        """
        try:
            unrecorded = claim.commit(settlement)
        except StoreUnavailable:
            self._resting.unrecorded(settlement.ids)
            self._remembered.keep(claim.items, settlement)
            raise
        if unrecorded is not None:
            settlement = self._recorded(settlement, unrecorded)
        if self._resting:
            self._resting.recorded(settlement.ids)
        return settlement

    def lost(self, item_ids: Iterable[ItemId]) -> None:
        """The transaction was lost while their handler was at work. Where that goes on, they must let others go."""
        self._resting.unrecorded(item_ids)

    def undone(self, conflicts: Sequence[tuple[ItemId, StoreConflict]]) -> None:
        """What the handlers of these items wrote is undone, because another transaction was in the way. That is no attempt."""
        self._resting.unrecorded(item_id for item_id, _ in conflicts)
        for item_id, conflict in conflicts:
            self._observer.see(events.FetchFailed(self._box, f"item {item_id}: {conflict}"))

    def _attempt(self, failure: Failed, *, now: datetime, ended: bool) -> FailedAttempt:
        item, problem, where = failure
        if ended:
            error = problem if isinstance(problem, BaseException) else located(problem, where)
            details = {"item_details": item.log_details} if self._box.extra_log_details is not None else {}
            self._track(
                error,
                box_name=self._box.name,
                bucket=item.bucket,
                item_id=item.id,
                event_key=item.event_key,
                where=where,
                **details,
            )
        status = Status.FAILED if ended else Status.PENDING
        return FailedAttempt(item.id, status, item.errors_count + 1, error_log(problem, where=where, now=now))

    def _recorded(self, settlement: Settlement, unrecorded: Unrecorded) -> Settlement:
        """What is recorded of a settlement if single rows took no outcome or another one. Reports those rows."""
        lost = settlement.ids if unrecorded.undone else [*unrecorded.failed, *unrecorded.left]
        kept = settlement.only(set(settlement.ids).difference(lost))
        self._resting.unrecorded(unrecorded.left, for_good=True)
        for item_id, reason in unrecorded.left.items():
            what = "sent, but no outcome can be recorded, so it will be sent again"
            self._track(f"{what}: {reason}", box_name=self._box.name, item_id=item_id)
        for item_id, attempt in unrecorded.failed.items():
            self._track(attempt.error_log, box_name=self._box.name, item_id=item_id)
        if unrecorded.left:
            ids = ", ".join(map(str, sorted(unrecorded.left)[:MOST_NAMED]))
            self._observer.see(events.FetchFailed(self._box, f"no outcome can be recorded for item {ids}"))
        return replace(kept, failed=[*kept.failed, *unrecorded.failed.values()])
