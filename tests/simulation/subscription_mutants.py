"""Deliberate bugs of subscriptions: what each reader of a log has for itself, and what all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from boxengine.adapters.memory.log import table as memory_log
from boxengine.adapters.memory.log.shared import Logged, SharedLog
from boxengine.adapters.memory.log.table import MemoryLog
from boxengine.adapters.memory.rows import Rows
from boxengine.domain.box import Box
from boxengine.domain.log_moves import sent_back
from boxengine.domain.log_progress import Position
from boxengine.engine.polling.schedule import Schedule
from tests.simulation.mutation import Mutant, Surgery, breaks
from tests.simulation.promises import Promise
from tests.simulation.scenario import MOVING, REWOUND, STOPPED


def _after_beginning(patch: Surgery, change: Callable[[Any, Any], None]) -> None:
    """Lets ``change`` do something to each reader beside the first reader of its log."""
    made = MemoryLog.__init__

    def begins(self: Any, box: Box, log: SharedLog, view: Rows) -> None:
        made(self, box, log, view)
        change(self, log.readers[0])

    patch.setattr(MemoryLog, "__init__", begins)


@breaks(Promise.ACKNOWLEDGED, only=())
def one_position_for_all(patch: Surgery) -> None:
    """What one subscription has passed, the others have passed as well."""
    _after_beginning(patch, lambda reader, first: setattr(reader, "_positions", first._positions))


@breaks(Promise.ACKNOWLEDGED, only=("item refused",))
def one_side_table_for_all(patch: Surgery) -> None:
    """Items that one subscription failed to deliver go out to the receivers of another."""
    _after_beginning(patch, lambda reader, first: setattr(reader, "side", first.side))


@breaks(Promise.FINAL, only=(STOPPED,))
def retention_waits_for_nobody(patch: Surgery) -> None:
    """What one subscription has delivered is deleted, though another has yet to pass it."""

    def is_passed(self: Any, rows: Sequence[Logged]) -> bool:
        return any(all(reader.has_passed(each) for each in rows) for reader in self.readers)

    patch.setattr(SharedLog, "_is_passed_by_all", is_passed)


@breaks(Promise.FINAL, only=(STOPPED,))
def partition_judged_by_one_row(patch: Surgery) -> None:
    """A partition goes as soon as every subscription has passed one of its rows."""
    is_passed = SharedLog._is_passed_by_all
    patch.setattr(SharedLog, "_is_passed_by_all", lambda self, rows: any(is_passed(self, [each]) for each in rows))


@breaks(Promise.ONCE, only=(REWOUND,), first=13_091)
def everybody_is_sent_back(patch: Surgery) -> None:
    """A person sends one subscription back, and all of them deliver once more."""
    back = MemoryLog.send_back

    def all_back(self: Any, item: int) -> list[int]:
        return [each for reader in self._log.readers for each in back(reader, item)]

    patch.setattr(MemoryLog, "send_back", all_back)


@breaks(Promise.ONCE, only=(REWOUND, "item refused"))
def sent_back_beside_its_side_rows(patch: Surgery) -> None:
    """What stands aside goes out from there, and from the log once more."""
    back = MemoryLog._send_back

    def beside(self: Any, position: Position, item: int) -> list[int]:
        aside = list(self.side)
        again = back(self, position, item)
        for row in aside:
            self.side.put(row)
        return again

    patch.setattr(MemoryLog, "_send_back", beside)


@breaks(Promise.ATTEMPTS, only=(REWOUND, "item refused", "commit fails", "commit acknowledged late"), first=359)
def sent_back_with_its_failures(patch: Surgery) -> None:
    """Found by the simulation: failures that only Redis remembers count for an item that begins anew."""
    back = MemoryLog.send_back

    def unnamed(self: Any, item: int) -> list[int]:
        back(self, item)
        return []

    patch.setattr(MemoryLog, "send_back", unnamed)


@breaks(Promise.ACKNOWLEDGED, only=(REWOUND, STOPPED))
def sent_back_past_what_waits(patch: Surgery) -> None:
    """A subscription that is sent to an item ahead of it begins there, and what waited before that counts as passed."""

    def past(position: Position, to: int, *, now: str, began: int, waiting: int | None) -> Position:
        return sent_back(position, to, now=now, began=began, waiting=None)

    patch.setattr(memory_log, "sent_back", past)


@breaks(Promise.ENDS, only=(MOVING,))
def one_subscription_brought_over(patch: Surgery) -> None:
    """On another server the first claim brings its own subscription over, and the rows are taken for the others' as well."""
    go_on = SharedLog.go_on

    def alone(self: Any) -> int | None:
        readers: Sequence[Any] = self.readers
        self.readers = readers[:1]
        try:
            return go_on(self)
        finally:
            self.readers = readers

    patch.setattr(SharedLog, "go_on", alone)


@breaks(Promise.PROMPT, only=())
def one_subscription_is_told(patch: Surgery) -> None:
    """The hint of a writer wakes the first subscription alone."""
    readers = Schedule.readers
    patch.setattr(Schedule, "readers", lambda self, name: readers(self, name)[:1])


SUBSCRIPTION_MUTANTS: tuple[Mutant, ...] = (
    one_position_for_all,
    one_side_table_for_all,
    retention_waits_for_nobody,
    partition_judged_by_one_row,
    everybody_is_sent_back,
    sent_back_beside_its_side_rows,
    sent_back_with_its_failures,
    sent_back_past_what_waits,
    one_subscription_brought_over,
    one_subscription_is_told,
)
