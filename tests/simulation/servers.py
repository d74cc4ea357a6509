"""What all workers of a history share: database, Redis, and the true time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.failures import MemoryFailures
from boxengine.adapters.memory.leases import MemoryLeases
from boxengine.adapters.memory.log.store import MemoryLogStore
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.memory.rows import Row, Rows
from boxengine.domain.bounds import PACE, Pace
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from tests.simulation.record import Change, ClaimRecord, Record
from tests.simulation.scheduler import Scheduler, SimulatedCondition


class SharedServers:
    """The memory adapters, waiting in virtual time."""

    def __init__(
        self,
        clock: ManualClock,
        scheduler: Scheduler,
        record: Record,
        *,
        name: Callable[[int], ItemId] = int,
        pace: Pace = PACE,
        longest_queue: int,
    ) -> None:
        """Args:
        name: the id of a box's first row, of its second, and so on.
        longest_queue: one with more jobs is long.
        """
        self.clock = clock
        self.store = MemoryLogStore(clock, name=name, pace=pace)
        self.queue = MemoryJobQueue(clock=clock, longest=longest_queue)
        self.queue._changed = cast("Any", SimulatedCondition(scheduler))
        self.leases = MemoryLeases(clock=clock)
        self.pauses = MemoryPauses()
        self.memory = MemoryFailures(clock=clock)
        self.in_hand: dict[tuple[str, str], tuple[int, str]] = {}
        """What workers noted of items that they send alone."""
        self._scheduler = scheduler
        self._record = record

    def keep_journal(self, box: Box) -> JournaledRows:
        """From now on every committed change of the box's rows is on record."""
        rows = JournaledRows(box, self._record, self._who, self.store._database.name)
        self.store._database.boxes[box.name] = rows
        if box.storage is Storage.LOG:
            self.store._database.log(box)  # from the beginning on it has its position
        return rows

    def flush_redis(self) -> None:
        """FLUSHALL."""
        self.queue.flush()
        self.leases.flush()
        self.pauses.flush()
        self.memory.flush()
        self.in_hand.clear()

    def _who(self) -> tuple[str, ClaimRecord | None]:
        strand = self._scheduler.current
        return (strand.context["role"], strand.context.get("claim")) if strand else ("operator", None)


class JournaledRows(Rows):
    """Rows of one box with every change on record, and how many are pending."""

    def __init__(
        self,
        box: Box,
        record: Record,
        who: Callable[[], tuple[str, ClaimRecord | None]],
        name: Callable[[int], ItemId],
    ) -> None:
        super().__init__(name)
        self.pending = 0
        self._box = box
        self._record = record
        self._who = who
        self._putting = False

    def put(self, row: Row) -> None:
        before = self.get(row.id)
        self._putting = True
        super().put(row)
        self._putting = False
        self._changed(before, row)

    def remove(self, row_id: ItemId) -> None:
        before = self.get(row_id)
        super().remove(row_id)
        if before is not None and not self._putting:
            self._changed(before, None)

    def _changed(self, before: Row | None, after: Row | None) -> None:
        record = self._record
        self.pending += _pending(after) - _pending(before)
        by, claim = self._who()
        record.changes.append(Change(record.step, record.now, self._box.name, by, claim, before, after))
        if record.tracing:
            row = after or before
            number = row.id if row else 0
            record.note(by, f"row {number}: {_text(before)} -> {_text(after)}")


def _pending(row: Row | None) -> bool:
    return row is not None and row.status == Status.PENDING


def _text(row: Row | None) -> str:
    return "none" if row is None else f"{Status(row.status).name.lower()}/{row.errors_count}"
