"""The application of a run: creates jobs in bursts, whatever happens to the database meanwhile."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlalchemy import Connection

from boxengine.domain.job_attributes import NewJobAttributes
from tests.chaos.feed import Feed

LENGTHS = ((0.60, 0.01, 0.1), (0.30, 0.1, 1.0), (0.09, 1.0, 5.0), (0.01, 5.0, 30.0))
"""Shares of the jobs, and the shortest and the longest of each, in seconds: 0.65 s on average."""
KEYS = 40
KEYED = 0.3
"""Share of the jobs with a ``lock_key``."""
REFUSED = 0.04
"""Share of those that ask for a second attempt."""
CHUNK = 1.0
"""Seconds between two checkpoints of a long job."""


class JobFeed(Feed):
    """Bursts of jobs."""

    burst = (10, 60)
    longest = LENGTHS[-1][2]
    """Seconds that a job takes at most."""

    def create(self, connection: Connection, box: str, count: int) -> Sequence[int]:
        return self.boxes.create_jobs(connection, box, [self._job() for _ in range(count)])

    def _job(self) -> NewJobAttributes:
        seconds = min(self._seconds(), self.longest)
        job: NewJobAttributes = {
            "task": "work",
            "args": {
                "seconds": round(seconds, 3),
                "chunks": 1 + int(seconds / CHUNK),
                "refusals": int(self.randomness.random() < REFUSED),
            },
        }
        if self.randomness.random() < KEYED:
            job["lock_key"] = f"key {self.randomness.randrange(KEYS)}"
        return job

    def _seconds(self) -> float:
        _, shortest, longest = self.randomness.choices(LENGTHS, [share for share, _, _ in LENGTHS])[0]
        return shortest * math.exp(self.randomness.uniform(0, math.log(longest / shortest)))
