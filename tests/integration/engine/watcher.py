"""An observer that keeps what the engine tells it, and lets a test wait for that instead of sleeping."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition

from boxengine.domain.outcome import FailedAttempt
from boxengine.ports.events import (
    Deleted,
    Event,
    FetchFailed,
    ForeignJobs,
    HoldEnded,
    NamesTwice,
    OutageBegan,
    OutageEnded,
    Polled,
    Settled,
    Throttled,
)

PATIENCE = 60.0
"""Seconds until a test gives up on what it waits for."""


class Watcher:
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
        self.mixed_up: list[NamesTwice] = []

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

    def see(self, event: Event) -> None:
        with self._changed:
            self._note(event)
            self._changed.notify_all()

    def _note(self, event: Event) -> None:  # noqa: C901 - one branch for each event that is noted
        match event:
            case Settled(box=box, settlement=settlement):
                self.boxes.append(box.name)
                self.delivered += settlement.delivered
                self.discarded += [discard.id for discard in settlement.discarded]
                self.failures += settlement.failed
            case Polled(box=box):
                self.polls.append((box.name, event.found, event.pushed))
            case ForeignJobs(elements=elements):
                self.foreign_elements += elements
            case NamesTwice():
                self.mixed_up.append(event)
            case Throttled():
                self.throttles.append((event.throttler, event.status))
            case HoldEnded(box=box):
                self.states.append((box.name, event.ending))
            case FetchFailed():
                self.fetch_failures.append(event.reason)
            case Deleted():
                self.rows_deleted += event.rows
            case OutageBegan():
                self.outages.append((event.what, event.reason))
            case OutageEnded():
                self.recovered_from.append(event.what)
            case _:
                pass
