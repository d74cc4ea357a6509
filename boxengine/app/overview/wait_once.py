"""How long a look waits for a server that does not answer: once, and not once for each box."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from boxengine.errors import NotPermitted, StoreConflict, StoreTooSlow, TableMissing, Unavailable
from boxengine.ports import Clock

T = TypeVar("T")
IN_VAIN = 1.0
"""Seconds. A question that fails sooner, such as one that is refused at once, costs too little to give up the next one."""
_OF_ONE_TABLE = (NotPermitted, StoreConflict, StoreTooSlow, TableMissing)
"""What the database says of one table; it may answer about others."""


class WaitOnce:
    """Asks one server the questions of one look. After the first one for which it waited in vain, it asks no more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._outage: Unavailable | None = None

    def ask(self, question: Callable[[], T]) -> T:
        """Raises:
        Unavailable: the server does not answer, or let an earlier question wait.
        """
        if self._outage is not None:
            raise self._outage.with_traceback(None)
        began = self._clock.monotonic()
        try:
            return question()
        except _OF_ONE_TABLE:
            raise
        except Unavailable as error:
            if self._clock.monotonic() - began > IN_VAIN:
                self._outage = error
            raise
