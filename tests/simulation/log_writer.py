"""An application that writes to a log box: transactions of several items, which commit late, in any order, or never."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from boxengine.adapters.memory.log.store import MemoryTransaction
from tests.simulation.receivers import DEADLY, POISON
from tests.simulation.scenario import KILLING, BoxPlan

if TYPE_CHECKING:
    from tests.simulation.history import History


class LogWriter:
    """One of two, which write the same keys; nobody serialises them."""

    def __init__(self, history: History, plan: BoxPlan, *, keys: Sequence[int]) -> None:
        self._history = history
        self._plan = plan
        self._keys = keys
        self._marked: list[tuple[set[tuple[str, int]], int]] = []
        """Of the transaction under way, items that are on record as special once they are committed."""

    def run(self) -> None:
        random, left = self._history.random, max(1, self._plan.items // min(2, self._plan.keys))
        while left > 0:
            self._sleep(0.0 if random.random() < 0.6 else random.uniform(0.0, self._history.scenario.chaos / 4))
            items = min(left, random.choice([1, 1, 2, 4]))
            self._transaction(items)
            left -= items
        self._history.written_all()

    def _transaction(self, items: int) -> None:
        random, box = self._history.random, self._plan.box
        transaction = self._history.servers.store.begin()
        self._marked.clear()
        if random.random() < 0.3:
            transaction.number()  # it has its number long before it writes an item
            self._sleep(random.choice([0.0, 0.05]))
        written = []
        for _ in range(items):
            written.append(self._write(transaction))
            self._sleep(random.choice([0.0, 0.0, 0.01, 0.05]))
        if random.random() < 0.1:
            transaction.rollback()
            return
        for special, row_id in self._marked:
            special.add((box.name, row_id))
        if not transaction.commit():
            for special, row_id in self._marked:
                special.discard((box.name, row_id))
            return
        for row_id in written:
            self._history.tell(box, row_id)

    def _write(self, transaction: MemoryTransaction) -> int:
        history, box, random = self._history, self._plan.box, self._history.random
        record, payload = history.record, b"payload"
        special: set[tuple[str, int]] | None = None
        if box.max_retries is not None and random.random() < 0.03:
            payload, special = POISON, record.poisoned
        elif history.may_kill(box) and history.faults.strikes(KILLING, "an item of a log"):
            payload, special = DEADLY, record.killing
        row_id: int = transaction.insert(
            box, event_key=random.choice(self._keys), event_name=random.choice("ab"), payload=payload
        )
        if special is not None:
            self._marked.append((special, row_id))
        record.written[box.name, row_id] = record.step
        return row_id

    def _sleep(self, seconds: float) -> None:
        self._history.scheduler.sleep(seconds)
