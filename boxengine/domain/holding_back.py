"""How far a subscription holds retention back."""

from __future__ import annotations

from datetime import datetime, timedelta

from boxengine.domain.box import Box

TOLERATED = timedelta(hours=1)
"""Even where items are deleted on delivery, nobody is told of a reader that lags less."""


def held_back(box: Box, unread_since: datetime | None, now: datetime) -> timedelta | None:
    """The age of the oldest item that retention keeps for this subscription alone; None: it keeps none.

    Args:
        unread_since: when the oldest item was created that the subscription has not passed.
    """
    if box.subscription is None or unread_since is None:
        return None
    age = now - unread_since
    return age if age > max(box.retention.delivered, TOLERATED) else None
