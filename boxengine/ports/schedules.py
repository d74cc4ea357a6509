"""What processes share about schedules: up to which moment the runs have been created."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from boxengine.domain.jobs import JobBox
from boxengine.ports.jobs import NewJob


@dataclass(frozen=True, slots=True)
class Known:
    """The schedules of a box, at one moment of the store's clock."""

    now: datetime
    handled_until: Mapping[str, datetime]
    """The schedules by name; one that no worker has seen yet is missing."""


class Schedules(Protocol):
    """Every method may raise ``StoreUnavailable``; then nothing has changed, or all of it."""

    def fire(
        self, box: JobBox, name: str, rule: str, runs: Callable[[datetime, datetime], Sequence[NewJob]]
    ) -> datetime | None:
        """Creates what is due, and remembers the store's now as handled, all or nothing; returns that now.

        ``runs`` is called with the moment until which the schedule was handled, and with now; perhaps twice. While its jobs are
        created nobody else fires the schedule. One that is new, or has another rule than before, is handled until now, and
        so is one that was handled until later than now because a clock was set back. None: somebody else has met the new
        schedule at the same moment.
        """

    def known(self, box: JobBox) -> Known:
        """What was handled until when."""
