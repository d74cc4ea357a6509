"""One audit of one box: its table, and its topics where they are to be looked at."""

from __future__ import annotations

from collections.abc import Iterator

from boxengine.engine.audit.findings import Finding, Summary
from boxengine.engine.audit.table import Progress, TableAudit
from boxengine.engine.audit.topic import TopicAudit


def _unwatched(_step: str, _done: int, _total: int | None) -> None:
    """Nobody looks on."""


class Audit:
    """Runs once. What it found so far stands in ``summary``."""

    def __init__(self, table: TableAudit, topic: TopicAudit | None = None, *, progress: Progress = _unwatched) -> None:
        """Args:
        progress: told of each step: what is looked at, how much of it so far, and how much there is, where that is known.
        """
        self._table = table
        self._topic = topic
        self._progress = progress
        self.summary = Summary()

    def findings(self) -> Iterator[Finding]:
        """Looks on while it is asked for more; who stops asking stops the audit.

        Raises:
            Unavailable: the database or the broker does not answer.
            SchemaMismatch: the table cannot be looked at.
            BoxError: there is no such topic, or the temporary files cannot be written.
        """
        for finding in self._all():
            self.summary.findings[finding.kind] += 1
            yield finding

    def _all(self) -> Iterator[Finding]:
        yield from self._table.findings(self.summary, self._progress)
        if self._topic is not None:
            yield from self._topic.findings(self.summary, self._progress)
