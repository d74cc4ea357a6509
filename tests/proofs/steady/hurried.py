"""``python -m tests.proofs.steady.hurried SECONDS TRANSACTIONS COMMAND ...``: boxengine for whose retention an hour has so many
seconds.

Partitions are meant for an hour at least, and retention looks every ten minutes: a run of minutes would see neither. Here all of
that goes faster by one factor; which partitions are made, emptied and dropped, and when, is decided as always.
"""

from __future__ import annotations

import sys

from boxengine.adapters.sql.log import partitions
from boxengine.cli.main import run
from boxengine.engine import retention
from boxengine.settings import rules

HOUR = 3600.0


def hurry(seconds: float, transactions: int) -> None:
    """From now on in this process.

    Args:
        seconds: that an hour has.
        transactions: for which a partition is made as long as nobody has counted those of an hour.
    """
    pace = HOUR / seconds
    rules.SHORTEST_PARTITION /= pace
    retention.INTERVAL /= pace
    partitions.KNOWN_AFTER /= pace
    partitions.LEAST_STEP = round(partitions.LEAST_STEP / pace)
    partitions.FIRST_STEP = transactions


if __name__ == "__main__":
    hurry(float(sys.argv.pop(1)), int(sys.argv.pop(1)))
    run()
