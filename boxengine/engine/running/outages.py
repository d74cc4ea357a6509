"""Keeps track of what fails now. Each outage is reported once and retried with growing pauses; other boxes go on."""

from __future__ import annotations

import threading
from collections.abc import Callable

from boxengine.domain.box import Box
from boxengine.engine.attempt import text_of
from boxengine.errors import SchemaMismatch, StoreConflict, Unavailable
from boxengine.ports import Clock, ErrorTracker, Observer, events

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Outages:
    """What fails, and since when. Shared by threads."""

    def __init__(
        self,
        *,
        observer: Observer,
        error_tracker: ErrorTracker,
        clock: Clock,
        missing: Callable[[str, str | None], None] = lambda _what, _reason: None,
    ) -> None:
        """Args:
        missing: told of something needed that fails, with the reason at every try, and with None once it works.
        """
        self._missing = missing
        self._observer = observer
        self._track = error_tracker
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._told: set[str] = set()
        self._last: dict[str, float] = {}
        self._pauses: dict[str, float] = {}

    def failed(self, what: str, error: BaseException, *, box: Box | None = None, needed: bool = False) -> float:
        """Records a failure and returns the seconds to wait before the next try.

        Args:
            box: the box whose rows could not be read or recorded.
            needed: whether the worker is not ready until this works.
        """
        with self._lock:
            # A single conflict of transactions is normal: the next try succeeds, so nobody is told.
            passing = isinstance(error, StoreConflict) and what not in self._since
            told = what in self._told
            first = not told and not passing
            if first:
                self._told.add(what)
            self._last[what] = now = self._clock.monotonic()
            since = self._since.setdefault(what, now)
            pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, 2 * self._pauses.get(what, 0.0)))
            self._pauses[what] = pause
        reason = text_of(error) or type(error).__name__
        if first:
            self._observer.see(events.OutageBegan(what, reason))
            if not isinstance(error, Unavailable | SchemaMismatch):
                # Only bugs need a traceback. For a server that is down or a missing table the event above says enough.
                self._track(error, what=what)
        elif told:
            self._observer.see(events.OutageLasts(what, seconds=now - since, reason=reason))
        if box is not None:
            self._observer.see(events.FetchFailed(box, reason))
        if needed:
            self._missing(what, reason)
        return pause

    def lasts(self, what: str) -> None:
        """Tells again of an outage that nobody tries to end, such as a message that can be stored nowhere."""
        with self._lock:
            since = self._since.get(what) if what in self._told else None
        if since is not None:
            self._observer.see(events.OutageLasts(what, seconds=self._clock.monotonic() - since))

    def worked(self, what: str, *, began: float | None = None) -> None:
        """Records that it works, and ends the outage if there was one.

        Args:
            began: the monotonic time at which the work began. Work that began before the last failure does not end the
                outage: the server may have answered another thread a moment before it died.
        """
        if what not in self._since:
            return
        with self._lock:
            if began is not None and began < self._last.get(what, began):
                return
            since = self._since.pop(what, None)
            self._last.pop(what, None)
            self._pauses.pop(what, None)
            told = what in self._told
            self._told.discard(what)
        if since is not None:
            if told:
                self._observer.see(events.OutageEnded(what, seconds=self._clock.monotonic() - since))
            self._missing(what, None)
