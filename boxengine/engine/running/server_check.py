"""Asks one server whether it answers, without waiting for it longer than a probe may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from boxengine.ports import Clock

SILENT_FOR = 10.0
"""Seconds after which the silence of a server is told. A loop that waits for an answer cannot tell of an outage."""
Silent = Callable[[str], None]
"""Called with a sentence when a server has been silent for long, and when it answers again."""


class ServerCheck:
    """Checks one server in a separate thread, so that a server that hangs blocks nobody.

    The thread ends with its check, and no second check starts while one is under way.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], None],
        *,
        clock: Clock,
        timeout: timedelta,
        lifetime: timedelta,
        silent: Silent,
    ) -> None:
        self._timeout = timeout.total_seconds()
        self._name = name
        self._run = run
        self._clock = clock
        self._lifetime = lifetime.total_seconds()
        self._silent = silent
        self._silent_since: float | None = None
        """Since when, if that has been told."""
        self._changed = threading.Condition()
        self._asked_at: float | None = None
        self._answered_at: float | None = None
        self._problem: str | None = None

    def begin(self) -> None:
        """Starts a check, unless the last answer is fresh or a check is under way."""
        now = self._clock.monotonic()
        with self._changed:
            fresh = self._answered_at is not None and now - self._answered_at < self._lifetime
            if fresh or self._asked_at is not None:
                return
            self._asked_at = now
        thread = threading.Thread(target=self._ask, name=f"boxengine-check-{self._name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left at the moment
            self._answered(f"{self._name}: not asked: {error}")

    def complaint(self) -> str | None:
        """What is wrong. Waits for a check that is under way, at most until its timeout."""
        with self._changed:
            asked_at = self._asked_at
            if asked_at is not None:
                left = max(0.0, asked_at + self._timeout - self._clock.monotonic())
                if not self._changed.wait_for(lambda: self._asked_at is None, timeout=left):
                    return self._no_answer(asked_at)
            return self._problem

    def _no_answer(self, asked_at: float) -> str:
        seconds = self._clock.monotonic() - asked_at
        complaint = f"{self._name}: no answer for {seconds:.1f} s"
        if seconds >= SILENT_FOR and self._silent_since is None:
            self._silent_since = asked_at
            self._silent(complaint)
        return complaint

    def _ask(self) -> None:
        problem: str | None = None
        try:
            self._run()
        except Exception as error:
            first_line = str(error).partition("\n")[0]
            problem = f"{self._name}: {first_line or type(error).__name__}"
        self._answered(problem)

    def _answered(self, problem: str | None) -> None:
        with self._changed:
            now = self._clock.monotonic()
            if self._silent_since is not None:
                self._silent(problem or f"{self._name}: answers again after {now - self._silent_since:.1f} s")
                self._silent_since = None
            self._problem = problem
            self._asked_at = None
            self._answered_at = now
            self._changed.notify_all()
