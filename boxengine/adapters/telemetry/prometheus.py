"""Counts what the engine tells, and shows it to Prometheus.

The engine reports whole batches; the numbers of a batch are worked out first and then added to the ledger
at once, and of each item nothing is looked at but its bucket and its moments: it costs about half a microsecond.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from boxengine.adapters.telemetry import families
from boxengine.adapters.telemetry.families import SUM, Family
from boxengine.adapters.telemetry.ledger import Key, Ledger, Reading
from boxengine.domain.box import Box
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import DiscardCause, Settlement
from boxengine.engine.observation import NullObserver
from boxengine.ports import Clock, Consumed, OpenCircuit, TopicPartition

Amounts = dict[Key, float]
Groups = Mapping[int, Sequence[Item]]
"""Items by partition."""
_BUCKET = itemgetter(Item._fields.index("bucket"))
_CREATED_AT = itemgetter(Item._fields.index("raw_created_at"))
_PROCESSED_AT = itemgetter(Item._fields.index("processed_at"))


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
        """Names without numbers, by which the registry refuses a second collector of the same names."""
        return families.expose({}, now=0.0)


class PrometheusObserver(NullObserver):
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
            clock: stamps gauges, so that of several processes the latest is believed.
            partitions: what a bucket is divided by for the label ``partition`` (``poller.concurrency``).
            ledger: where the numbers are kept; None: in memory.
            registry: where they are shown; None: nowhere (a process whose parent reads the ledger).
        """
        self._clock = clock
        self._partitions = partitions
        self._ledger = ledger or Ledger()
        self._keys: dict[tuple[str | int, ...], Key] = {}
        if registry is not None:
            registry.register(NumbersCollector(self._ledger, clock=clock))

    def created(self, box: Box, *, ids: Sequence[int], buckets: Sequence[int], seconds: float) -> None:  # noqa: ARG002 - the port's shape
        last = {bucket % self._partitions: id_ for id_, bucket in zip(ids, buckets, strict=True)}
        counts = self._by_partition(Counter(buckets))
        self._add({self._key(families.CREATED, box, partition): count for partition, count in counts.items()})
        self._put({self._key(families.LAST_STORED_ID, box, partition): id_ for partition, id_ in last.items()})

    def polled(self, box: Box, partition: int, *, found: int, pushed: int, seconds: float) -> None:
        amounts: Amounts = {
            self._key(families.POLLS, box, partition): 1,
            self._key(families.POLLED_ITEMS, box, partition): found,
            self._key(families.PUSHED_JOBS, box, partition): pushed,
        }
        self._observe(amounts, families.POLL_RUNTIME, seconds, 1, box, partition)
        self._add(amounts)

    def throttled(self, box: Box, partition: int, *, throttler: str, status: str, seconds: float) -> None:
        amounts: Amounts = {self._key(families.THROTTLINGS, box, partition, throttler, status): 1}
        self._observe(amounts, families.THROTTLING_RUNTIME, seconds, 1, box, partition, throttler)
        self._add(amounts)

    def queue_measured(self, box: Box, *, length: int, lag: float) -> None:
        self._put({self._key(families.QUEUE_SIZE, box): length, self._key(families.QUEUE_LAG, box): lag})

    def foreign(self, box: Box, elements: Sequence[bytes]) -> None:
        self._add({self._key(families.FOREIGN_JOBS, box): len(elements)})

    def taken(self, box: Box, *, jobs: int, seconds: float) -> None:  # noqa: ARG002 - the port's shape
        amounts: Amounts = {}
        self._observe(amounts, families.WAIT_RUNTIME, seconds, 1, box)
        self._add(amounts)

    def transported(self, box: Box, transport: str, *, items: int, failed: int, seconds: float, calls: int = 1) -> None:
        amounts: Amounts = {}
        if items > failed:
            amounts[self._key(families.TRANSPORT_ITEMS, box, transport, "delivered")] = items - failed
        if failed:
            amounts[self._key(families.TRANSPORT_ITEMS, box, transport, "failed")] = failed
        # The time of each of many calls is not kept: all count as if they had taken the same.
        self._observe(amounts, families.TRANSPORT_RUNTIME, seconds / calls, calls, box, transport)
        self._add(amounts)

    def circuit_changed(self, box: Box, transport: str, circuit: OpenCircuit | None) -> None:
        self._put({self._key(families.CIRCUIT_OPEN, box, transport): 0 if circuit is None else 1})

    def circuit_open(self, box: Box, circuit: OpenCircuit) -> None:
        # Another process of this worker may have closed its own meanwhile.
        self._put({self._key(families.CIRCUIT_OPEN, box, circuit.transport): 1})

    def settled(self, box: Box, items: Sequence[Item], settlement: Settlement, *, seconds: float) -> None:
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

    def discarded_by_hand(self, box: Box, ids: Collection[int]) -> None:
        self._add({self._key(families.DISCARDED, box, "", DiscardCause.BY_HAND): len(ids)})

    def order_violated(self, box: Box, *, items: Sequence[Item]) -> None:
        groups = self._group(items)
        self._add({self._key(families.ORDER_VIOLATIONS, box, number): len(group) for number, group in groups.items()})

    def job_done(self, box: Box, buckets: Iterable[int], *, state: str, seconds: float) -> None:
        amounts: Amounts = {}
        for partition, count in self._by_partition(Counter(buckets)).items():
            amounts[self._key(families.JOBS, box, partition, state)] = count
            if state == "timeout":
                amounts[self._key(families.JOB_TIMEOUTS, box, partition)] = count
            self._observe(amounts, families.JOB_RUNTIME, seconds, count, box, partition)
        self._add(amounts)

    def fetch_failed(self, box: Box, reason: str) -> None:  # noqa: ARG002 - a reason is no label: there is no end of them
        self._add({self._key(families.FETCH_ERROR, box): 1})

    def deleted(self, box: Box, *, rows: int, seconds: float) -> None:
        amounts: Amounts = {self._key(families.DELETED, box): rows}
        self._observe(amounts, families.DELETE_LATENCY, seconds, 1, box)
        self._add(amounts)

    def oldest_pending(self, box: Box, *, seconds: float) -> None:
        self._put({self._key(families.OLDEST_PENDING, box): seconds})

    def stranded(self, box: Box, *, items: int) -> None:
        self._put({self._key(families.STRANDED, box): items})

    def consumed(self, box: Box, counts: Mapping[TopicPartition, Consumed], *, seconds: float) -> None:
        amounts: Amounts = {self._key(families.BATCHES, box): 1}
        for (topic, partition), count in counts.items():
            amounts[self._key(families.CONSUMED, box, topic, partition)] = count.messages
            amounts[self._key(families.DUPLICATES, box, topic, partition)] = count.duplicates
            amounts[self._key(families.CONTRADICTIONS, box, topic, partition)] = count.contradictions
            amounts[self._key(families.DEAD_LETTERS, box, topic, partition)] = count.dead_letters
        self._observe(amounts, families.BATCH_RUNTIME, seconds, 1, box)
        self._add(amounts)

    def lagging(self, box: Box, lags: Mapping[TopicPartition, int]) -> None:
        self._put({self._key(families.CONSUMER_LAG, box, topic, number): lag for (topic, number), lag in lags.items()})

    def outage(self, what: str, reason: str) -> None:  # noqa: ARG002 - a reason is no label: there is no end of them
        self._add({(families.OUTAGES.name, what): 1})

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
        youngest, oldest = (bisect_left(family.bounds, age.total_seconds()) for age in (min(ages), max(ages)))
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
