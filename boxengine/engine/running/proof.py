"""Makes sure that an outage of the coordinator does not end with a turn that has asked the coordinator for nothing."""

from __future__ import annotations

from types import TracebackType

from boxengine.errors import QueueUnavailable
from boxengine.ports import JobQueue


class Proof:
    """Entered around each turn of a loop, because a turn that returns ends the loop's outage. Threads share it.

    After a turn in which the coordinator was away or took no jobs, the next ones ask it at their end whether it is back.
    """

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue
        self._refused = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _at: TracebackType | None) -> None:
        """Raises:
        QueueUnavailable: it is still away.
        """
        if isinstance(error, QueueUnavailable):
            self._refused = True
        elif self._refused and error is None:
            self._queue.ping()
            self._refused = False
