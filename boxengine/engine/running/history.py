"""A worker's part of what the console shows of the past: kept in memory, handed on every ten seconds."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from threading import Lock

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.outcome import Settlement
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock
from boxengine.ports.events import Event, Settled, Transported
from boxengine.ports.people.attempts import Attempt, Attempts
from boxengine.ports.people.history import LATENCIES, Calls, Happened, History

INTERVAL = timedelta(seconds=10)
MOST_ATTEMPTS = 500
"""The most failed attempts of a box that are handed on at once, the latest ones: if thousands fail, some suffice to show why."""
LONGEST_REASON = 300


class HistoryRecorder:
    """Counts deliveries, failed attempts and transports' calls, and keeps why attempts failed.

    From each batch it samples how long the first and the last item took.
    """

    def __init__(self, history: History, attempts: Attempts, *, clock: Clock) -> None:
        self._history = history
        self._attempts = attempts
        self._clock = clock
        self._lock = Lock()
        self._happened: dict[str, Happened] = {}
        self._failed: dict[str, deque[Attempt]] = {}

    def see(self, event: Event) -> None:
        match event:
            case Settled(box=box, items=items, settlement=settlement):
                self._settled(box, items, settlement)
            case Transported(box=box, transport=transport):
                self._transported(box, transport, Calls(event.calls, event.items, event.failed, event.seconds))
            case _:
                pass  # the console shows nothing else of the past

    def turn(self) -> timedelta:
        """Hands on what was counted; returns the pause until the next turn."""
        self.flush()
        return INTERVAL

    def flush(self) -> None:
        """Hands on what was counted."""
        with self._lock:
            happened, self._happened = self._happened, {}
            failed, self._failed = self._failed, {}
        # While Redis is out, charts have a gap: that is no reason to keep the numbers.
        with contextlib.suppress(QueueUnavailable):
            if happened:
                self._history.add(happened, now=self._clock.now())
            if failed:
                self._attempts.add({box: list(attempts) for box, attempts in failed.items()})

    def _settled(self, box: Box, items: Sequence[Item], settlement: Settlement) -> None:
        if not settlement.delivered and not settlement.failed:
            return
        looked_at = (items[0], items[-1]) if len(settlement.delivered) == len(items) else ()
        now = self._clock.now()
        failed = _attempts(items, settlement, now) if settlement.failed else ()
        with self._lock:
            if failed:
                self._failed.setdefault(box.name, deque(maxlen=MOST_ATTEMPTS)).extend(failed)
            happened = self._happened.setdefault(box.name, Happened())
            happened.delivered += len(settlement.delivered)
            happened.failed += len(settlement.failed)
            for item in looked_at:
                place = bisect_left(LATENCIES, (now - item.created_at).total_seconds())
                happened.waits[place] = happened.waits.get(place, 0) + 1

    def _transported(self, box: Box, transport: str, more: Calls) -> None:
        with self._lock:
            transports = self._happened.setdefault(box.name, Happened()).transports
            transports[transport] = transports.get(transport, Calls()) + more


def _attempts(items: Sequence[Item], settlement: Settlement, now: datetime) -> list[Attempt]:
    uuids = {item.id: item.uuid for item in items}
    return [
        Attempt(
            item_id=failed.id,
            uuid=str(uuids.get(failed.id, "")),
            at=now,
            number=failed.errors_count,
            # The log's own time is that of this attempt.
            reason=failed.error_log.partition("\n")[0].partition(" ")[2][:LONGEST_REASON],
        )
        for failed in settlement.failed[-MOST_ATTEMPTS:]
    ]
