"""Keeps track of what fails now. Each outage is reported once and retried with growing pauses; other boxes go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from boxengine.domain.box import Box
from boxengine.engine.attempt import text_of
from boxengine.errors import SchemaMismatch, StoreConflict, StoreTooSlow, Unavailable
from boxengine.ports import Clock, ErrorTracker, Observer, events

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
_OF_ONE_TABLE = (StoreConflict, StoreTooSlow)
"""What the database says of one table without its name."""


@dataclass(slots=True)
class _Outage:
    """Something that fails. Times are monotonic seconds."""

    since: float
    last: float
    """When it failed last."""
    pause: float = 0.0
    """The pause after that."""
    told: bool = False


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
        self._outages: dict[str, _Outage] = {}
        """By what fails."""

    def failed(self, what: str, error: BaseException, *, box: Box | None = None, needed: bool = False) -> float:
        """Records a failure and returns the seconds to wait before the next try.

        Args:
            box: the box whose rows could not be read or recorded.
            needed: whether the worker is not ready until this works.
        """
        with self._lock:
            # A single conflict of transactions is normal: the next try succeeds, so nobody is told.
            passing = isinstance(error, StoreConflict) and what not in self._outages
            now = self._clock.monotonic()
            outage = self._outages.setdefault(what, _Outage(now, now))
            told, since = outage.told, outage.since
            first = not told and not passing
            pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, 2 * outage.pause))
            outage.last, outage.pause, outage.told = now, pause, told or first
        reason = text_of(error) or type(error).__name__
        if first:
            self._observer.see(events.OutageBegan(what, reason, apart=isinstance(error, _OF_ONE_TABLE)))
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
        outage = self._outages.get(what)
        if outage is not None and outage.told:
            self._observer.see(events.OutageLasts(what, seconds=self._clock.monotonic() - outage.since))

    def worked(self, what: str, *, began: float | None = None) -> None:
        """Records that it works, and ends the outage if there was one.

        Args:
            began: the monotonic time at which the work began. Work that began before the last failure does not end the
                outage: the server may have answered another thread a moment before it died.
        """
        self._end(what, began=began)

    def idle(self, what: str) -> None:
        """Records that it has nothing left to do. That ends an outage, too, and nobody is told that it works."""
        self._end(what, works=False)

    def _end(self, what: str, *, began: float | None = None, works: bool = True) -> None:
        if what not in self._outages:
            return
        with self._lock:
            outage = self._outages.get(what)
            if outage is None or (began is not None and began < outage.last):
                return
            del self._outages[what]
        if outage.told:
            seconds = self._clock.monotonic() - outage.since
            self._observer.see(events.OutageEnded(what, seconds=seconds, works=works))
        self._missing(what, None)
