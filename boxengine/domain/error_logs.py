"""Where the reason stands in an ``error_log``, which boxengine or sbmt-outbox has written."""

from __future__ import annotations

_DASHES = "-----"


def line_of_reason(error_log: str) -> str:
    """The first line, which begins with the time; of sbmt-outbox the line below its dashes and its time."""
    first, *others = error_log.split("\n", 3)
    return others[1].strip() if first == _DASHES and len(others) > 1 else first
