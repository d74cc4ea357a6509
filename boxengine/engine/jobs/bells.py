"""Wakes the claimers of this process when a job was committed, and the keepers when somebody has asked a job to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boxengine.ports import Signal

Ring = Callable[[], object]


class Bells:
    """Whom to wake, by box. Each loaded configuration has one set, shared by its creators and its worker.

    A ring that is lost, or comes too early, costs one look. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rings: dict[str, list[Ring]] = {}
        self._requests: dict[str, list[Ring]] = {}

    def add(self, box_name: str, ring: Ring) -> None:
        """Calls ``ring`` for each new job from now on. It must not block."""
        self._add(self._rings, box_name, ring)

    def add_for_requests(self, box_name: str, ring: Ring) -> None:
        """Calls ``ring`` whenever somebody has asked a job to stop."""
        self._add(self._requests, box_name, ring)

    def remove(self, box_name: str, ring: Ring) -> None:
        """Calls ``ring`` no longer. A second call does nothing."""
        with self._lock:
            for rings in (self._rings, self._requests):
                rings[box_name] = [each for each in rings.get(box_name, ()) if each != ring]

    def has(self, box_name: str) -> bool:
        """Whether a worker in this process claims jobs of this box."""
        return bool(self._rings.get(box_name))

    def ring(self, signals: Iterable[Signal]) -> None:
        """Jobs of these boxes were committed, or somebody has asked some to stop. Signals of other boxes are ignored."""
        for name, requested in {(signal.box_name, signal.again) for signal in signals}:
            for ring in (self._requests if requested else self._rings).get(name, ()):
                ring()

    def _add(self, rings: dict[str, list[Ring]], box_name: str, ring: Ring) -> None:
        with self._lock:
            rings[box_name] = [*rings.get(box_name, ()), ring]
