"""One seed, one verdict: the promises that its history breaks."""

from __future__ import annotations

import traceback

from tests.simulation.checker import violations
from tests.simulation.history import History


def broken_promises(seed: int) -> list[str]:
    """Runs the history of the seed; empty where every promise holds."""
    return judge(History(seed))


def judge(history: History) -> list[str]:
    """Runs the history and checks it; what the simulation itself trips over counts as broken, too."""
    try:
        record = history.run()
    except AssertionError as error:
        return [str(error)]
    except Exception:
        return [traceback.format_exc()]
    return violations(record)
