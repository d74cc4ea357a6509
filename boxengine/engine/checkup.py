"""Rules of a checkup that are the same for every kind of server."""

from __future__ import annotations

from datetime import datetime, timedelta

from boxengine.ports.people.checkup import Remark

LONG_TRANSACTION = timedelta(minutes=10)
"""One that is older keeps the database from clearing away what deliveries leave behind."""
DIFFERENT_CLOCK = timedelta(seconds=2)


def clock_remark(area: str, whose: str, before: datetime, told: datetime, after: datetime) -> Remark:
    """How far a server's clock is from this machine's, which was read before and after it."""
    ahead = told - before - (after - before) / 2
    if abs(ahead) <= DIFFERENT_CLOCK + (after - before) / 2:
        return Remark(area=area, text=f"{whose} agrees with this machine's.")
    side = "ahead of" if ahead > timedelta(0) else "behind"
    return Remark(
        area=area,
        text=f"{whose} is {abs(ahead).total_seconds():.0f} s {side} this machine's.",
        advice="Synchronise both with a time server: ages and due times are wrong by this much.",
    )
