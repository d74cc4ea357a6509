"""The error tracker is users' code: whatever it does, the work that it is told about must go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from boxengine.engine.answers import failed, refusal
from boxengine.engine.attempt import ends_the_worker, reason_of
from boxengine.ports import ErrorTracker


class GuardedTracker:
    """Tells a tracker; where that raises, or returns a coroutine, tells ``fallback`` instead, and says so once."""

    def __init__(self, tracker: Callable[..., object], *, fallback: ErrorTracker) -> None:
        self._track = tracker
        self._fallback = fallback
        self._complained = threading.Event()

    def __call__(self, error: BaseException | str, /, **context: Any) -> None:
        try:
            answer = self._track(error, **context)
        except BaseException as problem:
            if ends_the_worker(problem):
                raise
            self._fall_back(error, context, f"raised {reason_of(problem)}")
        else:
            if answer is not False and failed(answer):
                self._fall_back(error, context, reason_of(refusal(answer)))

    def _fall_back(self, error: BaseException | str, context: dict[str, Any], reason: str) -> None:
        if not self._complained.is_set():
            self._complained.set()
            self._fallback(f"the error tracker {reason}: what it does not take goes to the log")
        self._fallback(error, **context)
