"""Counts the engine's events and exposes the numbers to Prometheus.

The engine reports whole batches. A batch's numbers are computed first and then added to the ledger at once. Only an
item's bucket and moments are read, which costs about half a microsecond per item.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Protocol, assert_never

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from boxengine.adapters.telemetry import families
from boxengine.adapters.telemetry.families import SUM, Family
from boxengine.adapters.telemetry.jobs import JobNumbers
from boxengine.adapters.telemetry.ledger import Key, Ledger, Reading
from boxengine.domain.box import Box
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import DiscardCause, Settlement
from boxengine.ports import Clock, events
from boxengine.ports.jobs import JobEnded, JobLoad, JobsLeft, JobsReaped, JobsWaiting

Amounts = dict[Key, float]
Groups = Mapping[int, Sequence[Item]]
"""Items by partition."""
_BUCKET = itemgetter(Item._fields.index("bucket"))
_CREATED_AT = itemgetter(Item._fields.index("raw_created_at"))
_PROCESSED_AT = itemgetter(Item._fields.index("processed_at"))
_NO_TIME = timedelta()


class Numbers(Protocol):
    """A ledger, or many read as one."""

    def read(self) -> dict[Key, Reading]:
        """All numbers as of now."""


class NumbersCollector(Collector):
    """Shows numbers in a registry; they are read at each scrape."""

    def __init__(self, numbers: Numbers, *, clock: Clock) -> None:
        """Args:
        clock: that of the observers; of this machine, where the numbers are of several processes.
        """
        self._numbers = numbers
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        return families.expose(self._numbers.read(), now=self._clock.monotonic())

    def describe(self) -> Iterator[Metric]:
        """Names without numbers; the registry uses them to refuse a second collector of the same names."""
        return families.expose({}, now=0.0)


class PrometheusObserver:
    """An ``Observer`` that keeps its numbers in a ledger."""

    def __init__(
        self,
        *,
        clock: Clock,
        partitions: int,
        ledger: Ledger | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """
        Args:
            clock: stamps gauges, so that the latest of several processes wins.
            partitions: the divisor of a bucket whose remainder is the label ``partition`` (``poller.concurrency``).
            ledger: where the numbers are kept; None: in memory.
            registry: where they are shown; None: nowhere (a process whose parent reads the ledger).
        """
        self._clock = clock
        self._partitions = partitions
        self._ledger = ledger or Ledger()
        self._jobs = JobNumbers(self._ledger, clock=clock)
        self._keys: dict[tuple[str | int, ...], Key] = {}
        if registry is not None:
            registry.register(NumbersCollector(self._ledger, clock=clock))

    def see(self, event: events.Event) -> None:  # noqa: C901, PLR0912, PLR0915 - one branch for each event
        match event:
            case events.Settled():
                self._settled(event)
            case events.Transported():
                self._transported(event)
            case events.HoldEnded():
                self._hold_ended(event)
            case events.Taken(box=box):
                amounts: Amounts = {}
                self._observe(amounts, families.WAIT_RUNTIME, event.seconds, 1, box)
                self._add(amounts)
            case events.Polled():
                self._polled(event)
            case events.Throttled():
                self._throttled(event)
            case events.QueueMeasured(box=box):
                self._put(
                    {self._key(families.QUEUE_SIZE, box): event.length, self._key(families.QUEUE_LAG, box): event.lag}
                )
            case events.Created():
                self._created(event)
            case events.ForeignJobs(box=box):
                self._add({self._key(families.FOREIGN_JOBS, box): len(event.elements)})
            case events.CircuitChanged(box=box):
                self._put({self._key(families.CIRCUIT_OPEN, box, event.transport): 0 if event.circuit is None else 1})
            case events.CircuitOpen(box=box, circuit=circuit):
                # Another process of this worker may have closed its own meanwhile.
                self._put({self._key(families.CIRCUIT_OPEN, box, circuit.transport): 1})
            case events.DiscardedByHand(box=box):
                self._add({self._key(families.DISCARDED, box, "", DiscardCause.BY_HAND): len(event.ids)})
            case events.OrderViolated():
                self._order_violated(event)
            case events.FetchFailed(box=box):  # the reason is not a label: there are endlessly many
                self._add({self._key(families.FETCH_ERROR, box): 1})
            case events.Deleted(box=box):
                amounts = {self._key(families.DELETED, box): event.rows}
                self._observe(amounts, families.DELETE_LATENCY, event.seconds, 1, box)
                self._add(amounts)
            case events.OldestPending(box=box):
                self._put({self._key(families.OLDEST_PENDING, box): event.seconds})
            case events.Unread(box=box):
                self._put({self._key(families.UNREAD, box): event.seconds})
            case events.Stranded(box=box):
                self._put({self._key(families.STRANDED, box): event.items})
            case events.MessagesStored():
                self._messages_stored(event)
            case events.Lagging():
                self._lagging(event)
            case events.OutageBegan():  # its reason is not a label, as above
                self._add({(families.OUTAGES.name, event.what): 1})
                self._put({(families.OUTAGE.name, event.what): 0.0})
            case events.OutageLasts():
                self._put({(families.OUTAGE.name, event.what): event.seconds})
            case events.OutageEnded():
                self._put({(families.OUTAGE.name, event.what): 0.0})
            case JobEnded() | JobsReaped() | JobsLeft() | JobLoad() | JobsWaiting():
                self._jobs.see(event)
            case events.RetentionHeld() | events.KeptBack() | events.CoordinatorSlow() | events.CoordinatorQuick():
                pass
            case events.NamesTwice():  # the log and the doctor say it; how often they say so means nothing
                pass
            case _:
                assert_never(event)

    def _created(self, event: events.Created) -> None:
        box = event.box
        last = {bucket % self._partitions: id_ for id_, bucket in zip(event.ids, event.buckets, strict=True)}
        counts = self._by_partition(Counter(event.buckets))
        self._add({self._key(families.CREATED, box, partition): count for partition, count in counts.items()})
        self._put({self._key(families.LAST_STORED_ID, box, partition): id_ for partition, id_ in last.items()})

    def _polled(self, event: events.Polled) -> None:
        box, partition = event.box, event.partition
        amounts: Amounts = {
            self._key(families.POLLS, box, partition): 1,
            self._key(families.POLLED_ITEMS, box, partition): event.found,
            self._key(families.PUSHED_JOBS, box, partition): event.pushed,
        }
        self._observe(amounts, families.POLL_RUNTIME, event.seconds, 1, box, partition)
        self._add(amounts)

    def _throttled(self, event: events.Throttled) -> None:
        box, partition, throttler = event.box, event.partition, event.throttler
        amounts: Amounts = {self._key(families.THROTTLINGS, box, partition, throttler, event.status): 1}
        self._observe(amounts, families.THROTTLING_RUNTIME, event.seconds, 1, box, partition, throttler)
        self._add(amounts)

    def _transported(self, event: events.Transported) -> None:
        box, transport = event.box, event.transport
        amounts: Amounts = {}
        if event.items > event.failed:
            amounts[self._key(families.TRANSPORT_ITEMS, box, transport, "delivered")] = event.items - event.failed
        if event.failed:
            amounts[self._key(families.TRANSPORT_ITEMS, box, transport, "failed")] = event.failed
        # The time of each of many calls is not kept: all count as if they had taken the same.
        self._observe(amounts, families.TRANSPORT_RUNTIME, event.seconds / event.calls, event.calls, box, transport)
        self._add(amounts)

    def _settled(self, event: events.Settled) -> None:
        box, items, settlement, seconds = event.box, event.items, event.settlement, event.seconds
        if not items:
            return
        amounts: Amounts = {}
        groups = self._group(items)
        for partition, group in groups.items():
            amounts[self._key(families.JOB_ITEMS, box, partition)] = len(group)
            self._observe(amounts, families.ITEM_RUNTIME, seconds / len(items), len(group), box, partition)
        delivered, failed, discarded = _by_outcome(items, settlement)
        if delivered:
            self._count_delivered(amounts, box, groups if delivered is items else self._group(delivered))
        if failed or discarded:
            self._count_others(amounts, box, failed, discarded, settlement)
        attempted = groups if delivered is items else self._group([*delivered, *failed])
        self._count_latencies(amounts, box, attempted, items[0].dispatched_at + timedelta(seconds=seconds))
        self._add(amounts)

    def _order_violated(self, event: events.OrderViolated) -> None:
        counts = {number: len(group) for number, group in self._group(event.items).items()}
        self._add({self._key(families.ORDER_VIOLATIONS, event.box, number): count for number, count in counts.items()})

    def _hold_ended(self, event: events.HoldEnded) -> None:
        box, amounts = event.box, Amounts()
        for partition, count in self._by_partition(Counter(event.buckets)).items():
            amounts[self._key(families.JOBS, box, partition, event.ending)] = count
            if event.ending is events.Ending.TIMEOUT:
                amounts[self._key(families.JOB_TIMEOUTS, box, partition)] = count
            self._observe(amounts, families.JOB_RUNTIME, event.seconds, count, box, partition)
        self._add(amounts)

    def _messages_stored(self, event: events.MessagesStored) -> None:
        box = event.box
        amounts: Amounts = {self._key(families.BATCHES, box): 1}
        for (topic, partition), count in event.counts.items():
            amounts[self._key(families.CONSUMED, box, topic, partition)] = count.messages
            amounts[self._key(families.DUPLICATES, box, topic, partition)] = count.duplicates
            amounts[self._key(families.CONTRADICTIONS, box, topic, partition)] = count.contradictions
            amounts[self._key(families.DEAD_LETTERS, box, topic, partition)] = count.dead_letters
        self._observe(amounts, families.BATCH_RUNTIME, event.seconds, 1, box)
        self._add(amounts)

    def _lagging(self, event: events.Lagging) -> None:
        lags = event.lags.items()
        self._put({self._key(families.CONSUMER_LAG, event.box, topic, number): lag for (topic, number), lag in lags})

    def _count_delivered(self, amounts: Amounts, box: Box, delivered: Groups) -> None:
        for partition, group in delivered.items():
            amounts[self._key(families.SENT, box, partition)] = len(group)
        self._put({self._key(families.LAST_SENT_ID, box, number): group[-1].id for number, group in delivered.items()})

    def _count_others(
        self, amounts: Amounts, box: Box, failed: Sequence[Item], discarded: Sequence[Item], settlement: Settlement
    ) -> None:
        for_good = {attempt.id for attempt in settlement.failed if attempt.status is Status.FAILED}
        by_family = (
            (families.ERROR, [item for item in failed if item.id in for_good]),
            (families.RETRY, [item for item in failed if item.id not in for_good]),
        )
        for family, items in by_family:
            for partition, group in self._group(items).items():
                amounts[self._key(family, box, partition)] = len(group)
        causes = {discard.id: discard.cause for discard in settlement.discarded}
        for partition, group in self._group(discarded).items():
            for cause, count in Counter(causes[item.id] for item in group).items():
                amounts[self._key(families.DISCARDED, box, partition, cause)] = count

    def _count_latencies(self, amounts: Amounts, box: Box, attempted: Groups, done: datetime) -> None:
        for partition, group in attempted.items():
            first, further = group, []
            if any(map(_PROCESSED_AT, group)):
                first = [item for item in group if item.processed_at is None]
                further = [item for item in group if item.processed_at is not None]
            if first:
                self._observe_ages(amounts, families.PROCESS_LATENCY, box, partition, first, done)
            if further:
                self._observe_ages(amounts, families.RETRY_LATENCY, box, partition, further, done)

    def _observe_ages(
        self, amounts: Amounts, family: Family, box: Box, partition: int, items: Sequence[Item], done: datetime
    ) -> None:
        created = list(map(_CREATED_AT, items))
        if created[0].tzinfo is None:
            # A table written by the reference has moments without a zone; they mean UTC.
            done = done.replace(tzinfo=None)
        ages = [done - moment for moment in created]
        least, most = min(ages), max(ages)
        if least < _NO_TIME:
            # An application that writes the moment itself has a clock that is ahead. A sum must not fall.
            ages = [max(age, _NO_TIME) for age in ages]
            least, most = _NO_TIME, max(most, _NO_TIME)
        youngest, oldest = (bisect_left(family.bounds, age.total_seconds()) for age in (least, most))
        # Most batches were written within one of the bounds' intervals.
        cells = (
            {youngest: len(ages)}
            if youngest == oldest
            else Counter(bisect_left(family.bounds, age.total_seconds()) for age in ages)
        )
        for cell, count in cells.items():
            amounts[self._key(family, box, partition, cell)] = count
        amounts[self._key(family, box, partition, SUM)] = sum(ages, timedelta()).total_seconds()

    def _group(self, items: Sequence[Item]) -> Groups:
        """By partition, each in the order given. A batch comes bucket by bucket."""
        groups: dict[int, list[Item]] = {}
        for bucket, run in groupby(items, key=_BUCKET):
            groups.setdefault(bucket % self._partitions, []).extend(run)
        return groups

    def _by_partition(self, buckets: Counter[int]) -> Counter[int]:
        partitions: Counter[int] = Counter()
        for bucket, count in buckets.items():
            partitions[bucket % self._partitions] += count
        return partitions

    def _key(self, family: Family, box: Box, *labels: int | str) -> Key:
        asked = (family.name, box.name, *labels)
        key = self._keys.get(asked)
        if key is None:
            own = (box.type.value, box.label, box.owner or "")
            key = self._keys[asked] = (family.name, *own, *map(str, labels))
        return key

    def _observe(
        self, amounts: Amounts, family: Family, seconds: float, times: int, box: Box, *labels: int | str
    ) -> None:
        amounts[self._key(family, box, *labels, bisect_left(family.bounds, seconds))] = times
        amounts[self._key(family, box, *labels, SUM)] = seconds * times

    def _add(self, amounts: Amounts) -> None:
        self._ledger.add(amounts)

    def _put(self, values: Amounts) -> None:
        self._ledger.put(values, stamp=self._clock.monotonic())


def _by_outcome(items: Sequence[Item], settlement: Settlement) -> tuple[Sequence[Item], Sequence[Item], Sequence[Item]]:
    """Delivered, failed and discarded items; those of no outcome are in none."""
    if len(settlement.delivered) == len(items):
        return items, (), ()
    delivered, discarded = set(settlement.delivered), {discard.id for discard in settlement.discarded}
    failed = {attempt.id for attempt in settlement.failed}
    return (
        [item for item in items if item.id in delivered],
        [item for item in items if item.id in failed],
        [item for item in items if item.id in discarded],
    )
