"""``python -m tests.chaos.skewed FILE start``: boxengine whose wall clock is off by the seconds that stand in a file.

For machines without libfaketime, which does the same to the whole process and not only to boxengine's own clock.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from boxengine.adapters.system import SystemClock
from boxengine.cli.main import run


def skew(file: Path) -> None:
    """From now on every clock of boxengine is off by what the file says at the time."""
    true_time = SystemClock.now

    def now(clock: Any) -> datetime:
        return true_time(clock) + timedelta(seconds=float(file.read_text() or 0))

    SystemClock.now = now  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    skew(Path(sys.argv.pop(1)))
    run()
