"""Closes what holds connections when a worker stops. One that hangs does not keep the others from closing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from boxengine.ports import Clock, ErrorTracker

CLOSING_TIME = timedelta(seconds=3)
"""For everything closed in one step. Outcomes are committed before, so nothing is lost if something does not close."""


@dataclass(frozen=True, slots=True)
class Closing:
    """Something that the worker closes when it stops."""

    what: str
    close: Callable[[], object]
    late: str | None = None
    """The message if closing takes too long, for something that may stay open. None: it is named as stuck instead."""


def close_all(together: Sequence[Closing], *, within: timedelta, clock: Clock, track: ErrorTracker) -> list[str]:
    """Closes all of these at the same time; returns the names of those that did not finish in time.

    ``track`` is told of whatever raises, ``SystemExit`` included, and of what is late and may be.
    """
    given_up = threading.Event()

    def run(each: Closing) -> None:
        try:
            each.close()
        except BaseException as error:  # a user's close() may raise anything, and must not affect the others
            # The worker closes connections that a late close() still uses, so a later error means nothing.
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
