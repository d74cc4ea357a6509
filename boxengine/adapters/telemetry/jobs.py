"""The events of long jobs, as metrics."""

from __future__ import annotations

from bisect import bisect_left

from boxengine.adapters.telemetry import families
from boxengine.adapters.telemetry.families import SUM, Family
from boxengine.adapters.telemetry.ledger import Key, Ledger
from boxengine.domain.jobs import JobBox
from boxengine.ports import Clock
from boxengine.ports.jobs import JobEnded, JobEvent, JobLoad, JobsLeft, JobsReaped, JobsWaiting


class JobNumbers:
    """``JobObserver`` that counts in a ledger."""

    def __init__(self, ledger: Ledger, *, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._ended: dict[tuple[str, str], tuple[Key, Key, Key]] = {}
        """The keys of ended jobs by box and end. To make them takes longer than to count."""

    def see(self, event: JobEvent) -> None:
        match event:
            case JobEnded(box=box, end=end, seconds=seconds):
                ended, cycle, total = self._ended.get((box.name, end)) or self._keys_of(box, end)
                bucket = str(bisect_left(families.JOB_CYCLE.bounds, seconds))
                self._ledger.add({ended: 1.0, (*cycle, bucket): 1.0, total: seconds})
            case JobsReaped(box=box):
                self._ledger.add(
                    {
                        _key(families.JOBS_REAPED, box, "requeued"): float(event.requeued),
                        _key(families.JOBS_REAPED, box, "lost"): float(event.lost),
                    }
                )
            case JobsLeft():  # whoever takes them over counts them
                pass
            case JobLoad(box=box):
                values = {
                    _key(families.JOBS_IN_PROGRESS, box): float(event.running),
                    _key(families.JOB_PROCESSORS, box): float(event.threads),
                    _key(families.JOB_WORKERS, box): 1.0,
                }
                self._ledger.put(values, stamp=self._clock.monotonic())
            case JobsWaiting(box=box, backlog=backlog):
                states = {"ready": backlog.ready, "delayed": backlog.delayed, "blocked": backlog.blocked}
                values = {_key(families.JOBS_WAITING, box, state): float(number) for state, number in states.items()}
                values[_key(families.OLDEST_READY, box)] = backlog.waits.total_seconds()
                self._ledger.put(values, stamp=self._clock.monotonic())

    def _keys_of(self, box: JobBox, end: str) -> tuple[Key, Key, Key]:
        cycle = _key(families.JOB_CYCLE, box)
        keys = self._ended[box.name, end] = (_key(families.JOBS_ENDED, box, end), cycle, (*cycle, SUM))
        return keys


def _key(family: Family, box: JobBox, *rest: str) -> Key:
    return (family.name, "job", box.label, box.owner or "", *rest)
