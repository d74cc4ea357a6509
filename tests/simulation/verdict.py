"""One seed, one verdict: the promises that its history breaks."""

from __future__ import annotations

import traceback
from collections.abc import Collection

from tests.simulation.checker import violations
from tests.simulation.history import History


def broken_promises(seed: int, *, only: Collection[str] | None = None) -> list[str]:
    """Runs the history of the seed, with faults of its choice or ``only`` these; empty where every promise holds."""
    return judge(History(seed, only=only))


def judge(history: History) -> list[str]:
    """Runs the history and checks it; what the simulation itself trips over counts as broken, too."""
    try:
        record = history.run()
    except AssertionError as error:
        return [str(error)]
    except Exception:
        return [traceback.format_exc()]
    return violations(record)
