"""What a look at the servers finds: facts that are as they should be, and findings that want something done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from boxengine.domain.box import Box

LONG_TRANSACTION = timedelta(minutes=10)
"""One that is older keeps the database from clearing away what deliveries leave behind."""
DIFFERENT_CLOCK = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing that was looked at."""

    area: str
    """database, redis, kafka or boxengine."""
    text: str
    advice: str | None = None
    """What to do about it; None: nothing, all is well."""
    box: str | None = None
    alarming: bool = False
    """Whether people should see it before they ask."""

    @property
    def is_finding(self) -> bool:
        return self.advice is not None


class Checkup(Protocol):
    """Looks at one kind of server. Raises ``Unavailable`` where it does not answer."""

    def remarks(self, boxes: Sequence[Box]) -> list[Remark]:
        """Everything."""


def clock_remark(area: str, whose: str, before: datetime, told: datetime, after: datetime) -> Remark:
    """How far a server's clock is from this machine's, which was read before and after it."""
    ahead = told - before - (after - before) / 2
    if abs(ahead) <= DIFFERENT_CLOCK + (after - before) / 2:
        return Remark(area=area, text=f"{whose} agrees with this machine's.")
    side = "ahead of" if ahead > timedelta(0) else "behind"
    return Remark(
        area=area,
        text=f"{whose} is {abs(ahead).total_seconds():.0f} s {side} this machine's.",
        advice="Let both follow a time server: ages and due times are wrong by so much.",
    )
