"""The end of a worker: whatever holds connections lets go of them, and none of them can keep the others from it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from boxengine.ports import Clock, ErrorTracker

CLOSING_TIME = timedelta(seconds=3)
"""For all that is closed at once. Whatever matters has been confirmed before: nothing is lost with what does not close."""


@dataclass(frozen=True, slots=True)
class Closing:
    """One thing that is closed at the end."""

    what: str
    close: Callable[[], object]
    late: str | None = None
    """For what can be left undone: what to tell where it takes too long, instead of naming it as stuck."""


def close_all(together: Sequence[Closing], *, within: timedelta, clock: Clock, track: ErrorTracker) -> list[str]:
    """Closes these side by side; returns those that had not come to an end in time and should have.

    One that raises, be it ``SystemExit``, is told to ``track``, and so is one that is late but may be.
    """
    given_up = threading.Event()

    def run(each: Closing) -> None:
        try:
            each.close()
        except BaseException as error:  # a user's own close() may raise anything, and only concerns itself
            # Connections are closed under whoever is late, who then fails for no other reason.
            if not given_up.is_set():
                track(error, what=f"{each.what} could not be closed")

    threads = [
        (each, threading.Thread(target=run, args=[each], name=f"boxengine-close {each.what}", daemon=True))
        for each in together
    ]
    for _, thread in threads:
        thread.start()
    until = clock.monotonic() + within.total_seconds()
    for _, thread in threads:
        thread.join(max(0.0, until - clock.monotonic()))
    given_up.set()
    late = [each for each, thread in threads if thread.is_alive()]
    for each in late:
        if each.late is not None:
            track(each.late, what=each.what)
    return [each.what for each in late if each.late is None]
