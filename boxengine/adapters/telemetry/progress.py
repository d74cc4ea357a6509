"""Progress of the loops of other processes, by way of their ledgers.

The parent of several worker processes answers the probes for all of them. It cannot ask a child that hangs or is
stopped. So each child writes down until when each of its loops counts as alive, and the parent reads that. Both use the
machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from boxengine.adapters.telemetry.ledger import Key, Ledger, ProcessLedgers, Reading

_LOOP = "loop"
_MISSING = "missing"


def publisher(ledger: Ledger) -> Callable[[str, float, float], None]:
    """For a child's ``Health(publish=...)``."""

    def publish(loop: str, last: float, deadline: float) -> None:
        ledger.put({(_LOOP, loop): deadline}, stamp=last)

    return publish


def missing_publisher(ledger: Ledger) -> Callable[[str, float, float], None]:
    """For a child's ``Health(publish_missing=...)``."""

    def publish(what: str, since: float, until: float) -> None:
        ledger.put({(_MISSING, what): until}, stamp=since)

    return publish


class ChildProcesses:
    """For the parent's ``Health(others=...)``."""

    def __init__(self, ledgers: ProcessLedgers, *, expected: Callable[[], Iterable[str]]) -> None:
        """Args:
        expected: the names of the processes that should run, also of those that have died or could not be started.
        """
        self._ledgers = ledgers
        self._expected = expected

    def complaints(self, now: float) -> Iterator[str]:
        """Each loop of each process that is behind at ``now``."""
        for process, numbers in self._living().items():
            for key, (deadline, last) in numbers.items():
                if key[0] == _LOOP and now > deadline:
                    yield f"{process}: {key[1]}: no progress for {now - last:.0f} s"

    def not_started(self) -> Iterator[str]:
        """Each expected process that runs no loop yet, or does not run at all."""
        living = self._living()
        for process in self._expected():
            if not any(key[0] == _LOOP for key in living.get(process, ())):
                yield f"{process}: not started"

    def missing(self, now: float) -> Iterator[str]:
        """What each process needs but cannot reach; its own log gives the reason."""
        for process, numbers in self._living().items():
            for key, (until, since) in numbers.items():
                if key[0] == _MISSING and since <= now < until:
                    yield f"{process}: {key[1]} is out of reach"

    def _living(self) -> dict[str, dict[Key, Reading]]:
        return self._ledgers.living(_LOOP, _MISSING)
