"""Boxes whose store, code or receiver fails just now: told once, tried again with growing pauses, while the others go on."""

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
    """Since when what has been failing. Shared by threads."""

    def __init__(
        self,
        *,
        observer: Observer,
        error_tracker: ErrorTracker,
        clock: Clock,
        missing: Callable[[str, str | None], None] = lambda _what, _reason: None,
    ) -> None:
        """Args:
        missing: told of what is needed and fails, with the reason, at every try, and with None once it works.
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
        """Takes note of a failure; returns the seconds to wait before the next try.

        Args:
            box: whose rows could not be read or recorded because of it.
            needed: whether the worker is not ready without it.
        """
        with self._lock:
            # One conflict of transactions is nothing that anybody need hear of; the next try settles it.
            passing = isinstance(error, StoreConflict) and what not in self._since
            first = what not in self._told and not passing
            if first:
                self._told.add(what)
            self._last[what] = self._clock.monotonic()
            self._since.setdefault(what, self._last[what])
            pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, 2 * self._pauses.get(what, 0.0)))
            self._pauses[what] = pause
        reason = text_of(error) or type(error).__name__
        if first:
            self._observer.see(events.OutageBegan(what, reason))
            if not isinstance(error, Unavailable | SchemaMismatch):
                # A server that is down and a table that is missing are nobody's bug: the line above says it all.
                self._track(error, what=what)
        if box is not None:
            self._observer.see(events.FetchFailed(box, reason))
        if needed:
            self._missing(what, reason)
        return pause

    def worked(self, what: str, *, began: float | None = None) -> None:
        """Takes note that it works (again).

        Args:
            began: when the work began, monotonic. Work that began before the last failure does not end the outage:
                another thread's may have been finished by a server that died a moment later.
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
