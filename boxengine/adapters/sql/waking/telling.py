"""What a transaction tells the workers of the rows it has written."""

from __future__ import annotations

from collections.abc import Sequence

from boxengine.domain.box import Box
from boxengine.ports import Attributes, Signal
from boxengine.ports.coordination.wakeups import MOST_NAMED


def signals_of(box: Box, rows: Sequence[Attributes]) -> list[Signal]:
    """The buckets of these rows, each once; the box alone where they are very many."""
    if len(rows) == 1:
        return [signal_of(box, rows[0])]
    signals = list({signal_of(box, row): None for row in rows})
    return signals if len(signals) <= MOST_NAMED else [Signal(box.name, None)]


def signal_of(box: Box, row: Attributes) -> Signal:
    """The bucket of one row, and whether the row may go out at once."""
    return Signal(box.name, row["bucket"], due=row.get("available_at") is None)
