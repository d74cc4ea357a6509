"""How often the loops of job boxes look, and how much of a lease a handler may use."""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_LEASE = 3.0
"""Seconds. A shorter one would be over between two looks of the watchdog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTiming:
    """All in seconds."""

    heartbeat: float = 10.0
    """Between two signs of life; of a job with a short lease a third of that."""
    reaper: float = 10.0
    """Between two looks for silent workers, at most: the reaper comes when the next lease ends."""
    reaper_shortest: float = 0.5
    poll: float = 1.0
    """Between two looks for new jobs while threads are idle."""
    watch: float = 0.25
    """Between two looks of the watchdog, and of the keeper at what is due."""
    stop_again: float = 5.0
    """Between two attempts to stop a handler that is over its time limit. It may be cleaning up after the first."""
    progress: float = 2.0
    """Between two writes of a job's progress."""
    idle: float = 60.0
    """A thread that nobody has woken for so long looks for itself. Well below the time after which it would count as hung."""
    ahead: float = 0.05
    """As many jobs are claimed ahead as all threads begin within this time; none if a single job takes longer."""
    unbegun: float = 1.0
    """A job that was claimed ahead and has waited this long is given back."""

    def beat_every(self, lease: float) -> float:
        """One heartbeat may fail: the next still comes before ``usable`` is over, for two thirds are less than three quarters."""
        return min(self.heartbeat, lease / 3)

    def usable(self, lease: float) -> float:
        """How long a handler may go on after the last heartbeat was sent.

        The rest is for several turns of the watchdog, which stops it, and for clocks that differ in speed.
        """
        return lease - min(5.0, lease / 4)


JOB_TIMING = JobTiming()
