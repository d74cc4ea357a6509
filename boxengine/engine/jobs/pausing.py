"""Stops a box's claims while the box is paused. Jobs that are running go on."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from boxengine.domain.jobs import JobBox
from boxengine.ports import Clock
from boxengine.ports.coordination.job_pauses import JobPauses

HEARD = timedelta(seconds=2)
"""Between two questions whether the box is paused."""


class Turns(Protocol):
    """The claimer's side of the gate."""

    def turn(self) -> timedelta:
        """Claims."""

    def give_back(self) -> None:
        """Gives back the jobs that were claimed and not begun."""


class PauseGate:
    """Lets one box's claimer take its turns unless the box is paused."""

    def __init__(
        self,
        box: JobBox,
        claimer: Turns,
        *,
        pauses: JobPauses,
        clock: Clock,
        auto_disabled: bool = False,
    ) -> None:
        """Args:
        auto_disabled: the box counts as paused until somebody resumes it.
        """
        self._box = box
        self._claimer = claimer
        self._pauses = pauses
        self._clock = clock
        self._otherwise = not auto_disabled
        self._running = False
        self._fresh_until = float("-inf")

    def is_open(self) -> bool:
        """Whether jobs may begin, as far as this process knows."""
        return self._running

    def turn(self) -> timedelta:
        """Takes the claimer's turn, or rests while the box is paused.

        Raises:
            StoreUnavailable: nobody knows whether the box is paused. Nothing could be claimed either.
        """
        if self._clock.monotonic() >= self._fresh_until:
            decided = self._pauses.running(self._box)
            self._running = self._otherwise if decided is None else decided
            self._fresh_until = self._clock.monotonic() + HEARD.total_seconds()
        if self._running:
            return self._claimer.turn()
        self._claimer.give_back()
        return HEARD
