"""An observer that keeps what the engine tells it, and lets a test wait for that instead of sleeping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Condition

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.outcome import FailedAttempt, Settlement
from boxengine.engine.observation import NullObserver

PATIENCE = 60.0
"""Seconds until a test gives up on what it waits for."""


class Watcher(NullObserver):
    """What became of which items, in the order in which it was committed."""

    def __init__(self) -> None:
        self._changed = Condition()
        self.delivered: list[int] = []
        self.discarded: list[int] = []
        self.failures: list[FailedAttempt] = []
        self.boxes: list[str] = []
        """Names of the boxes of all settled batches."""
        self.outages: list[tuple[str, str]] = []
        self.recovered_from: list[str] = []
        self.states: list[tuple[str, str]] = []
        """Box and state of each hold that ended."""
        self.polls: list[tuple[str, int, int]] = []
        """Box, rows found and jobs pushed of each poll."""
        self.throttles: list[tuple[str, str]] = []
        self.rows_deleted = 0
        self.fetch_failures: list[str] = []
        self.foreign_elements: list[bytes] = []

    def wait_for(self, what: Callable[[], bool], *, patience: float = PATIENCE) -> None:
        """Returns once ``what`` holds; it is asked whenever the engine has told something."""
        with self._changed:
            assert self._changed.wait_for(what, patience), (
                f"not within {patience:.0f} s: {len(self.delivered)} delivered, {len(self.failures)} failures "
                f"({self.failures[-1:]}), outages {self.outages[-3:]}, recovered from {self.recovered_from[-3:]}"
            )

    def listen(self, patience: float) -> None:
        """Returns when the engine tells of settled items, or when the time is over, whichever comes first."""
        before = len(self.boxes)
        with self._changed:
            self._changed.wait_for(lambda: len(self.boxes) > before, patience)

    def wait_for_settled(self, count: int) -> None:
        """Returns once so many items have got a final or passing outcome."""
        self.wait_for(lambda: len(self.delivered) + len(self.discarded) + len(self.failures) >= count)

    def settled(self, box: Box, items: Sequence[Item], settlement: Settlement, *, seconds: float) -> None:
        with self._changed:
            self.boxes.append(box.name)
            self.delivered += settlement.delivered
            self.discarded += [discard.id for discard in settlement.discarded]
            self.failures += settlement.failed
            self._changed.notify_all()

    def polled(self, box: Box, partition: int, *, found: int, pushed: int, seconds: float) -> None:
        with self._changed:
            self.polls.append((box.name, found, pushed))
            self._changed.notify_all()

    def foreign(self, box: Box, elements: Sequence[bytes]) -> None:
        with self._changed:
            self.foreign_elements += elements
            self._changed.notify_all()

    def throttled(self, box: Box, partition: int, *, throttler: str, status: str, seconds: float) -> None:
        with self._changed:
            self.throttles.append((throttler, status))
            self._changed.notify_all()

    def job_done(self, box: Box, buckets: Iterable[int], *, state: str, seconds: float) -> None:
        with self._changed:
            self.states.append((box.name, state))
            self._changed.notify_all()

    def fetch_failed(self, box: Box, reason: str) -> None:
        with self._changed:
            self.fetch_failures.append(reason)
            self._changed.notify_all()

    def deleted(self, box: Box, *, rows: int, seconds: float) -> None:
        with self._changed:
            self.rows_deleted += rows
            self._changed.notify_all()

    def outage(self, what: str, reason: str) -> None:
        with self._changed:
            self.outages.append((what, reason))
            self._changed.notify_all()

    def recovered(self, what: str, *, seconds: float) -> None:
        with self._changed:
            self.recovered_from.append(what)
            self._changed.notify_all()
