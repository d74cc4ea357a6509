"""One attempt's writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boxengine.adapters.memory.jobs.table import JobTables
from boxengine.domain.jobs import (
    ClaimedJob,
    Ending,
    JobBox,
    JobOutcome,
    Succeeded,
)


class MemoryUnit:
    """``JobUnit``. Its session is a list: what is appended to it counts once it is committed."""

    def __init__(self, store: JobTables, box: JobBox, job: ClaimedJob) -> None:
        self._store, self._box, self._job = store, box, job
        self._session: list[Any] | None = None

    @property
    def session(self) -> Any:
        if self._session is None:
            self._session = []
        return self._session

    def awaited_session(self, visit: Any) -> Any:  # noqa: ARG002 - nothing here is worth waiting for
        return self.session

    @property
    def in_use(self) -> bool:
        return self._session is not None

    def checkpoint(self, state: Any) -> bool:
        with self._store.writing():
            row = self._store.holds(self._box, self._job.held)
            if row is None:
                return False
            self._store.keep(row, state)
            self._commit()
            return True

    def end(self, ending: Ending, *, progress: Mapping[str, Any] | None = None) -> bool:
        with self._store.writing():
            recorded = self._store.record_one(self._box, JobOutcome(self._job, ending, progress))
            if recorded and isinstance(ending, Succeeded):
                self._commit()
            return recorded

    def close(self) -> None:
        self._session = None

    def lose(self) -> None:
        """Its connection is gone, and with it what was not committed."""
        if self._session is not None:
            self._session.clear()

    def _commit(self) -> None:
        self._store.effects += self._session or []
        if self._session is not None:
            self._session.clear()
