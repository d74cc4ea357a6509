"""What a batch means beyond its drain: retries to wake for, receivers that went away or came back, rows that are gone."""

from __future__ import annotations

from boxengine.domain.box import Box
from boxengine.engine.delivering.gone import GoneRows
from boxengine.engine.delivering.sent import MIDDLEWARE
from boxengine.engine.delivering.work import Report
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from boxengine.ports import Hold


class FollowUp:
    """Passes on what batches report. Shared by all threads."""

    def __init__(self, *, schedule: Schedule, outages: Outages, gone: GoneRows | None = None) -> None:
        """Args:
        gone: asked about jobs none of whose rows was due; None: rows that are gone are not counted.
        """
        self._schedule = schedule
        self._outages = outages
        self._gone = gone

    def first_batch(self, hold: Hold, report: Report) -> None:
        """The batch that shows which of the rows named by the hold's jobs are there."""
        idle = report.exhausted - report.positions.keys()
        self._schedule.found(hold.box, due=report.positions.keys(), nothing=idle)
        if idle and self._gone is not None:
            self._gone.look(hold, idle)

    def batch(self, box: Box, report: Report) -> None:
        """Any batch."""
        for name in report.reached:
            self._outages.worked(_called(box, name))
        if report.reached and MIDDLEWARE not in report.unreachable:
            # What has reached a transport has come through the middlewares.
            self._outages.worked(_called(box, MIDDLEWARE))
        for name, error in report.unreachable.items():
            self._outages.failed(_called(box, name), error, needed=True)
        for bucket, pause in report.next_due.items():
            self._schedule.wake(box.name, [bucket], within=pause.total_seconds(), prompt=False)


def _called(box: Box, name: str) -> str:
    return f"the middlewares of {box.name}" if name == MIDDLEWARE else f"transport {name} of {box.name}"
