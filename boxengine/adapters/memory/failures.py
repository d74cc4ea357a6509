"""Items' failures in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from threading import Lock

from boxengine.domain.box import Box, BoxType
from boxengine.domain.item_id import ItemId
from boxengine.ports import Clock, RememberedFailure

_ERROR_MSG_LENGTH = 200


class MemoryFailures:
    """``FailureMemory`` of one process: the twin of ``RedisFailures``."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._failures: dict[tuple[BoxType, str, ItemId], tuple[RememberedFailure, float]] = {}

    def remember(self, box: Box, failures: Mapping[ItemId, RememberedFailure], *, ttl: timedelta) -> None:
        """Stores them by item id; of an error message the first 200 characters."""
        until = self._clock.monotonic() + ttl.total_seconds()
        with self._lock:
            for item_id, failure in failures.items():
                cut = replace(failure, error_msg=failure.error_msg[:_ERROR_MSG_LENGTH])
                self._failures[box.type, box.name, item_id] = (cut, until)

    def recall(self, box: Box, ids: Sequence[ItemId]) -> Mapping[ItemId, RememberedFailure]:
        """The remembered failures, by item id."""
        now = self._clock.monotonic()
        recalled = {}
        with self._lock:
            for item_id in ids:
                failure, until = self._failures.get((box.type, box.name, item_id), (None, 0.0))
                if failure is not None and until > now:
                    recalled[item_id] = failure
        return recalled

    def forget(self, box: Box, ids: Sequence[ItemId]) -> None:
        """Drops them."""
        with self._lock:
            for item_id in ids:
                self._failures.pop((box.type, box.name, item_id), None)

    def flush(self) -> None:
        """Forgets everything, as FLUSHALL does."""
        with self._lock:
            self._failures.clear()
