"""Every metric that boxengine exposes: its name, kind, labels and meaning.

The names in sbmt-outbox and what changed are tabulated in ``docs/metrics.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from boxengine.adapters.telemetry.ledger import Key, Reading

SUM = "sum"
"""Last part of the key under which a histogram's sum is kept; its buckets' keys end in their number."""


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()
    """A histogram's upper bounds in seconds, without the infinite one."""
    lifetime: float = math.inf
    """Seconds for which a gauge is shown. Only one of many workers measures such a gauge. When it stops measuring, its last
    value must disappear soon."""
    of_each: bool = False
    """Whether each process has a value of its own. What a worker of several processes shows is their sum."""


BOX = ("type", "name", "owner")
PARTITION = (*BOX, "partition")
SOURCE = (*BOX, "topic", "partition")
MEASURED = 60.0
"""Four times the interval at which backlogs and lags are looked at."""
TRIED = 1800.0
"""Three times the longest pause before something that failed is tried again, that of retention. What nobody tries any more, such
as a transport without items, is not known to be out."""
COUNTED = 180.0
"""Three times the interval at which stranded items are counted."""

# The reference's bounds with finer ones below them: its first, one second, is above everything here.
_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 45, 60, 90, 120, 180, 240, 300, 600, 1200)
_RUNTIME = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    15,
    30,
    45,
    60,
    90,
    120,
    180,
    300,
    600,
)

_JOB = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)


def _counter(name: str, labels: tuple[str, ...], text: str) -> Family:
    return Family(name, Kind.COUNTER, labels, text)


def _gauge(
    name: str, labels: tuple[str, ...], text: str, *, lifetime: float = math.inf, of_each: bool = False
) -> Family:
    return Family(name, Kind.GAUGE, labels, text, lifetime=lifetime, of_each=of_each)


def _histogram(name: str, labels: tuple[str, ...], text: str, bounds: tuple[float, ...]) -> Family:
    return Family(name, Kind.HISTOGRAM, labels, text, bounds)


CREATED = _counter("outbox_created", PARTITION, "Items inserted; those of a transaction rolled back later included.")
SENT = _counter("outbox_sent", PARTITION, "Items delivered.")
ERROR = _counter("outbox_error", PARTITION, "Items failed for good, their retries used up.")
RETRY = _counter("outbox_retry", PARTITION, "Failed attempts after which the item will be tried again.")
DISCARDED = _counter(
    "outbox_discarded",
    (*PARTITION, "reason"),
    "Items discarded: overtaken (a later one of the key was delivered), strategy, or by_hand (without a partition).",
)
ORDER_VIOLATIONS = _counter(
    "outbox_order_violations", PARTITION, "Items delivered after a later one of their key, against the box's promise."
)
FETCH_ERROR = _counter("outbox_fetch_error", BOX, "Batches that could not be read, locked or recorded.")
LAST_STORED_ID = _gauge("outbox_last_stored_event_id", PARTITION, "Id of the last item inserted.")
LAST_SENT_ID = _gauge("outbox_last_sent_event_id", PARTITION, "Id of the item delivered last.")
PROCESS_LATENCY = _histogram(
    "outbox_process_latency_seconds",
    PARTITION,
    "From an item's creation to the recorded end of its first attempt.",
    _LATENCY,
)
RETRY_LATENCY = _histogram(
    "outbox_retry_latency_seconds",
    PARTITION,
    "From an item's creation to the recorded end of a further attempt.",
    _LATENCY,
)
DELETED = _counter("outbox_deleted", BOX, "Rows deleted by retention.")
DELETE_LATENCY = _histogram("outbox_delete_latency_seconds", BOX, "Time of one deleting transaction.", _RUNTIME)
OLDEST_PENDING = _gauge(
    "outbox_oldest_pending_age_seconds",
    BOX,
    "How long the oldest pending item has waited; 0: nothing waits.",
    lifetime=MEASURED,
)
UNREAD = _gauge(
    "outbox_log_unread_age_seconds",
    BOX,
    "Age of the oldest item in the log that a subscription has not passed; 0: it has passed all.",
    lifetime=MEASURED,
)
TRANSPORT_ITEMS = _counter(
    "outbox_transport_items", (*BOX, "transport", "result"), "Items a transport was called with."
)
TRANSPORT_RUNTIME = _histogram(
    "outbox_transport_runtime_seconds", (*BOX, "transport"), "Time of one call of a transport.", _RUNTIME
)
CIRCUIT_OPEN = _gauge(
    "box_worker_circuit_open",
    (*BOX, "transport"),
    "1 while a transport is not called because its receiver could not be reached.",
    lifetime=MEASURED,
)

JOBS = _counter("box_worker_job", (*PARTITION, "state"), "Jobs ended: processed, timeout, skipped or failed.")
JOB_TIMEOUTS = _counter("box_worker_job_timeout", PARTITION, "Jobs handed back because the cutoff timeout was over.")
JOB_ITEMS = _counter("box_worker_job_items", PARTITION, "Items claimed by processors.")
JOB_RUNTIME = _histogram(
    "box_worker_job_execution_runtime_seconds", PARTITION, "Time of a job from taken to done.", _RUNTIME
)
ITEM_RUNTIME = _histogram(
    "box_worker_item_execution_runtime_seconds",
    PARTITION,
    "Time per item: that of its batch, divided by the items.",
    _RUNTIME,
)
FOREIGN_JOBS = _counter(
    "box_worker_foreign_jobs", BOX, "Elements of the queue, and keys, that are not jobs of the box; dropped."
)
POLLS = _counter("box_worker_batches_per_poll", PARTITION, "Batches read by pollers; one for each poll.")
POLLED_ITEMS = _counter(
    "box_worker_polled_items", PARTITION, "Rows that polls found due; a bucket named by a wake-up is one."
)
PUSHED_JOBS = _counter("box_worker_pushed_jobs", PARTITION, "Jobs that polls put into the queue.")
POLL_RUNTIME = _histogram("box_worker_poll_runtime_seconds", PARTITION, "Time of one poll.", _RUNTIME)
QUEUE_SIZE = _gauge("box_worker_redis_job_queue_size", BOX, "Jobs waiting in the queue.", lifetime=MEASURED)
QUEUE_LAG = _gauge(
    "box_worker_redis_job_queue_time_lag_seconds", BOX, "Age of the oldest job in the queue.", lifetime=MEASURED
)
STRANDED = _gauge(
    "box_worker_stranded_items",
    BOX,
    "Pending items in buckets that the box does not have, where no worker looks; 10000: that many or more.",
    lifetime=COUNTED,
)
THROTTLINGS = _counter(
    "box_worker_poll_throttling", (*PARTITION, "throttler", "status"), "Decisions of the poll tactic's throttlers."
)
THROTTLING_RUNTIME = _histogram(
    "box_worker_poll_throttling_runtime_seconds",
    (*PARTITION, "throttler"),
    "Time a throttler held a poll back.",
    _RUNTIME,
)
WAIT_RUNTIME = _histogram("box_worker_job_wait_seconds", BOX, "Time a processor thread waited for jobs.", _RUNTIME)
OUTAGES = _counter("box_worker_outages", ("what",), "Times a server, a box or a loop stopped working.")
OUTAGE = _gauge(
    "box_worker_outage_seconds",
    ("what",),
    "How long a server, a box or a loop had not worked when it was last tried; 0: it works again, or is idle.",
    lifetime=TRIED,
)

CONSUMED = _counter("box_consumer_messages", SOURCE, "Messages stored for good, duplicates and dead letters included.")
DUPLICATES = _counter("box_consumer_duplicates", SOURCE, "Messages whose item was there already.")
CONTRADICTIONS = _counter(
    "box_consumer_contradictions", SOURCE, "Duplicates whose payload is not that of the item that was there already."
)
DEAD_LETTERS = _counter("box_consumer_dead_letters", SOURCE, "Messages that could not become items of their box.")
BATCHES = _counter("box_consumer_batches", BOX, "Batches of messages stored, each in one transaction.")
BATCH_RUNTIME = _histogram(
    "box_consumer_batch_runtime_seconds", BOX, "Time of a batch, from its receipt to its commit.", _RUNTIME
)
CONSUMER_LAG = _gauge(
    "box_consumer_lag_messages", SOURCE, "Messages in the topic that are not stored yet.", lifetime=MEASURED
)

JOB_CYCLE = _histogram(
    "queue_job_processor_cycle_duration_seconds", BOX, "Time of a long job from its start to its recorded end.", _JOB
)
JOBS_ENDED = _counter(
    "queue_jobs_ended", (*BOX, "end"), "Attempts at long jobs: succeeded, requeued, failed, canceled or lost."
)
JOBS_REAPED = _counter(
    "queue_jobs_reaped", (*BOX, "state"), "Long jobs taken away from workers that fell silent: requeued or lost."
)
JOBS_WAITING = _gauge(
    "queue_jobs_waiting",
    (*BOX, "state"),
    "Long jobs that have not begun: ready, delayed, or blocked by other jobs; 10000: that many or more.",
    lifetime=MEASURED,
)
OLDEST_READY = _gauge(
    "queue_oldest_ready_age_seconds",
    BOX,
    "How long the long job that has waited longest could have begun; 0: none could.",
    lifetime=MEASURED,
)
JOBS_IN_PROGRESS = _gauge(
    "queue_tasks_in_progress", BOX, "Long jobs that a worker runs.", lifetime=MEASURED, of_each=True
)
JOB_PROCESSORS = _gauge(
    "queue_running_job_processors", BOX, "Threads of a worker for long jobs.", lifetime=MEASURED, of_each=True
)
JOB_WORKERS = _gauge(
    "queue_running_workers", BOX, "Worker processes that serve the box.", lifetime=MEASURED, of_each=True
)

ALL = tuple(value for value in tuple(globals().values()) if isinstance(value, Family))
ADDED = frozenset(family.name for family in ALL if family.of_each)
"""Names of those gauges whose values are added up over the processes of a worker."""
PASSING = frozenset({OUTAGE.name})
"""Names of those gauges whose values mean nothing once their process is gone: nobody would ever say that the outage ended."""


def expose(readings: Mapping[Key, Reading], *, now: float) -> Iterator[Metric]:
    """The readings of a ledger in Prometheus' own terms; every family appears, even one without numbers.

    Args:
        now: on the clock that the readings' stamps are of.
    """
    by_family: dict[str, list[tuple[Key, Reading]]] = {}
    for (name, *labels), reading in readings.items():
        by_family.setdefault(name, []).append((tuple(labels), reading))
    for family in ALL:
        numbers = [
            (labels, reading.value)
            for labels, reading in sorted(by_family.get(family.name, ()))
            if family.lifetime == math.inf or now - reading.stamp <= family.lifetime
        ]
        yield _metric(family, numbers)


def _metric(family: Family, numbers: list[tuple[Key, float]]) -> Metric:
    if family.kind is Kind.HISTOGRAM:
        return _histogram_metric(family, numbers)
    metric = Metric(family.name, family.help, family.kind.value)
    suffix = "_total" if family.kind is Kind.COUNTER else ""
    for labels, value in numbers:
        metric.add_sample(family.name + suffix, dict(zip(family.labels, labels, strict=True)), value)
    return metric


def _histogram_metric(family: Family, numbers: list[tuple[Key, float]]) -> Metric:
    bounds = (*family.bounds, float("inf"))
    counts: dict[Key, list[float]] = {}
    sums: dict[Key, float] = {}
    for (*labels, part), value in numbers:
        key = tuple(labels)
        row = counts.setdefault(key, [0.0] * len(bounds))
        if part == SUM:
            sums[key] = value
        else:
            row[int(part)] = value
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for key, row in counts.items():
        total, buckets = 0.0, []
        for bound, count in zip(bounds, row, strict=True):
            total += count
            buckets.append((_bound_label(bound), total))
        metric.add_metric(key, buckets, sums.get(key, 0.0))
    return metric


def _bound_label(bound: float) -> str:
    return "+Inf" if bound == float("inf") else str(float(bound))
