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

    def __init__(self, history: History, readers: Sequence[BoxPlan], *, keys: Sequence[int]) -> None:
        """Args:
        readers: the box itself, or the subscriptions of its log.
        """
        self._history = history
        self._readers = [plan.box for plan in readers]
        self._plan = readers[0]
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
        random = self._history.random
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
        marks = [(special, {(box.name, row_id) for box in self._readers}) for special, row_id in self._marked]
        for special, names in marks:
            special.update(names)
        if not transaction.commit():
            for special, names in marks:
                special.difference_update(names)
            return
        for row_id in written:
            self._history.tell(self._plan.box, row_id)

    def _write(self, transaction: MemoryTransaction) -> int:
        history, random = self._history, self._history.random
        record, payload = history.record, b"payload"
        special: set[tuple[str, int]] | None = None
        if all(box.max_retries is not None for box in self._readers) and random.random() < 0.03:
            payload, special = POISON, record.poisoned
        elif all(map(history.may_kill, self._readers)) and history.faults.strikes(KILLING, "an item of a log"):
            payload, special = DEADLY, record.killing
        row_id: int = transaction.insert(
            self._plan.box, event_key=random.choice(self._keys), event_name=random.choice("ab"), payload=payload
        )
        if special is not None:
            self._marked.append((special, row_id))
        record.written |= {(box.name, row_id): record.step for box in self._readers}
        return row_id

    def _sleep(self, seconds: float) -> None:
        self._history.scheduler.sleep(seconds)
