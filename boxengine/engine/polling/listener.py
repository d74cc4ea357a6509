"""Passes wake-ups from committing writers to the poller."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta

from boxengine.domain.box import Box
from boxengine.engine.polling.checks import never_quiet
from boxengine.engine.polling.schedule import Schedule
from boxengine.ports import Signal, Wakeups

WAIT = timedelta(seconds=1)


class Listener:
    """Receives signals. Only one thread may take its turns."""

    def __init__(
        self,
        wakeups: Wakeups,
        schedule: Schedule,
        *,
        queue_announced: Callable[[], object],
        ring: Callable[[Iterable[Signal]], object] = lambda _signals: None,
        want: Callable[[str, Collection[int]], Collection[int]] = lambda _box_name, buckets: buckets,
        read_from_start: Callable[[str], object] = lambda _box_name: None,
        quiet: Callable[[Box], bool] = never_quiet,
    ) -> None:
        """Args:
        queue_announced: queues the buckets announced in the schedule, as ``Poller.queue_announced`` does.
        ring: wakes the claimers of long jobs; ignores signals of other boxes.
        want: has this process's threads read buckets that they hold once more, and returns the others, as ``Processor.want``
            does.
        read_from_start: told of boxes with old rows that are pending again, as ``Bounding.read_from_start`` is.
        quiet: which boxes a survey will notice new rows of.
        """
        self._wakeups = wakeups
        self._schedule = schedule
        self._queue_announced = queue_announced
        self._ring = ring
        self._want = want
        self._read_from_start = read_from_start
        self._quiet = quiet
        self._beginnings = wakeups.beginnings

    def turn(self) -> timedelta:
        """Waits up to a second for signals. Queues buckets that surely have due rows; for the others, asks for looks."""
        heard: dict[str, set[Signal]] = {}
        signals = self._wakeups.wait(WAIT)
        if self._wakeups.beginnings != self._beginnings:
            # Nothing was heard of what was committed before, and the checks of boxes are rare while wake-ups work.
            self._beginnings = self._wakeups.beginnings
            self._schedule.check_all(unless=self._quiet)
        self._ring(signals)
        for signal in signals:
            for reader in self._schedule.readers(signal.box_name):
                heard.setdefault(reader, set()).add(signal)
        for box_name, told in heard.items():
            if any(signal.again for signal in told):
                self._read_from_start(box_name)
            if any(signal.bucket is None for signal in told):
                self._schedule.wake(box_name)
                continue
            due = {signal.bucket for signal in told if signal.bucket is not None and signal.due}
            perhaps = {signal.bucket for signal in told if signal.bucket is not None and not signal.due}
            if due:
                self._schedule.announce(box_name, self._want(box_name, due), quietly=True)
            if perhaps:
                self._schedule.wake(box_name, perhaps)
        # Not left to a poller thread, which would have to wake up first: that would delay an item by 0.15 ms.
        self._queue_announced()
        return timedelta(0)
