"""One audit of one box: its table and, on request, its topics."""

from __future__ import annotations

from collections.abc import Iterator

from boxengine.engine.audit.findings import Finding, Summary
from boxengine.engine.audit.table import Progress, TableAudit
from boxengine.engine.audit.topic import TopicAudit


def _unwatched(_step: str, _done: int, _total: int | None) -> None:
    """Ignores the progress."""


class Audit:
    """Runs once. ``summary`` holds the results so far."""

    def __init__(self, table: TableAudit, topic: TopicAudit | None = None, *, progress: Progress = _unwatched) -> None:
        """Args:
        progress: called at each step with what is being checked, how much is done, and the total if it is known.
        """
        self._table = table
        self._topic = topic
        self._progress = progress
        self.summary = Summary()

    def findings(self) -> Iterator[Finding]:
        """Runs only as far as the iterator is consumed; to stop the audit, stop iterating.

        Raises:
            Unavailable: the database or the broker does not answer.
            SchemaMismatch: the table cannot be read.
            BoxError: the topic does not exist, or the temporary files cannot be written.
        """
        for finding in self._all():
            self.summary.findings[finding.kind] += 1
            yield finding

    def _all(self) -> Iterator[Finding]:
        yield from self._table.findings(self.summary, self._progress)
        if self._topic is not None:
            yield from self._topic.findings(self.summary, self._progress)
