"""What happened lately, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from threading import Lock

from boxengine.ports.people.history import Happened, Slot, Span


class MemoryHistory:
    """``History`` of one process: the twin of ``RedisHistory``."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._slots: dict[tuple[str, Span, int], tuple[Happened, float | None]] = {}

    def add(self, happened: Mapping[str, Happened], *, now: datetime) -> None:
        with self._lock:
            for box, more in happened.items():
                for span in Span:
                    known, oldest = self._of(box, span, _number(span, now))
                    self._slots[box, span, _number(span, now)] = known + more, oldest

    def measured(self, oldest_waits: Mapping[str, float], *, now: datetime) -> None:
        with self._lock:
            for box, seconds in oldest_waits.items():
                for span in Span:
                    known, _ = self._of(box, span, _number(span, now))
                    self._slots[box, span, _number(span, now)] = known, seconds

    def read(self, box: str, span: Span, *, now: datetime) -> list[Slot]:
        last, step = _number(span, now), span.step.total_seconds()
        with self._lock:
            return [
                Slot(datetime.fromtimestamp(number * step, UTC), *self._of(box, span, number))
                for number in range(last - span.slots + 1, last + 1)
            ]

    def lately(self, boxes: Sequence[str], *, now: datetime) -> Mapping[str, Happened]:
        found = {}
        for box in boxes:
            before, current = [slot.happened for slot in self.read(box, Span.HOUR, now=now)[-2:]]
            found[box] = before + current
        return found

    def flush(self) -> None:
        """Forgets everything, as FLUSHALL does."""
        with self._lock:
            self._slots.clear()

    def _of(self, box: str, span: Span, number: int) -> tuple[Happened, float | None]:
        return self._slots.get((box, span, number), (Happened(), None))


def _number(span: Span, moment: datetime) -> int:
    return int(moment.timestamp() // span.step.total_seconds())
