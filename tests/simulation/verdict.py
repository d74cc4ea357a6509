"""One seed, one verdict: the promises that its history breaks."""

from __future__ import annotations

import traceback
from collections.abc import Collection

from tests.simulation.checker import violations
from tests.simulation.history import History, Stuck
from tests.simulation.promises import Promise, Violation
from tests.simulation.scheduler import Endless


def broken_promises(seed: int, *, only: Collection[str] | None = None) -> list[Violation]:
    """Runs the history of the seed, with faults of its choice or ``only`` these; empty where every promise holds."""
    return judge(History(seed, only=only))


def judge(history: History) -> list[Violation]:
    """Runs the history and checks it; what the simulation itself trips over counts as broken, too."""
    stuck = []
    try:
        history.run()
    except (Stuck, Endless) as error:
        stuck.append(Violation(Promise.ENDS, str(error)))
    except Exception:
        return [Violation(Promise.SOUND, traceback.format_exc())]
    # A history that does not end often tells why: the checker reads what there is of it.
    return stuck + violations(history.record)
