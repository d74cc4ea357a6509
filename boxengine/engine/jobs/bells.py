"""Wakes the claimers of this process when a job was committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boxengine.ports import Signal

Ring = Callable[[], object]


class Bells:
    """Which claimers to wake, by box. Each loaded configuration has one set, shared by its creators and its worker.

    A ring that is lost, or comes too early, costs one look. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rings: dict[str, list[Ring]] = {}

    def add(self, box_name: str, ring: Ring) -> None:
        """Calls ``ring`` from now on. It must not block."""
        with self._lock:
            self._rings[box_name] = [*self._rings.get(box_name, ()), ring]

    def remove(self, box_name: str, ring: Ring) -> None:
        """Calls ``ring`` no longer. A second call does nothing."""
        with self._lock:
            self._rings[box_name] = [each for each in self._rings.get(box_name, ()) if each != ring]

    def has(self, box_name: str) -> bool:
        """Whether a worker in this process claims jobs of this box."""
        return bool(self._rings.get(box_name))

    def ring(self, signals: Iterable[Signal]) -> None:
        """Jobs of these boxes were committed. Signals of other boxes are ignored."""
        for name in {signal.box_name for signal in signals}:
            for ring in self._rings.get(name, ()):
                ring()
