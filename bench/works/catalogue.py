"""All works by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.report import Line
from bench.servers import Stand
from bench.works import (
    coroutines,
    counts,
    create,
    drain,
    idle,
    inbox,
    indexes,
    jobs,
    kafka,
    latency,
    log,
    polling,
    processes,
    subscriptions,
    wakeups,
)

Work = Callable[[Stand], list[Line]]

WORKS: Mapping[str, Work] = {
    "drain-16": drain.few_buckets,
    "drain-256": drain.many_buckets,
    "kafka-mock": kafka.mock_cluster,
    "kafka": kafka.real_broker,
    "one-by-one": drain.one_by_one,
    "coroutines": coroutines.twenty_milliseconds,
    "inbox": inbox.inbox,
    "processes": processes.two_processes,
    "create": create.one_by_one,
    "create-batch": create.in_batches,
    "latency": latency.latency,
    "latency-beside-delayed": latency.beside_delayed,
    "wakeup-tax": wakeups.taxes,
    "wakeup-tax-of-processes": wakeups.taxes_in_processes,
    "wakeup-tax-on-a-loop": wakeups.taxes_on_a_loop,
    "wakeup-latency": wakeups.latencies,
    "idle": idle.idle,
    "idle-many": idle.idle_many,
    "counts": counts.counts,
    "polling": polling.delivered_rows,
    "backlog": polling.backlog,
    "bloat": polling.bloat,
    "indexes": indexes.indexes,
    "deletion": drain.deletion,
    "log-16": log.few_buckets,
    "log-256": log.many_buckets,
    "log-one-by-one": log.one_by_one,
    "log-old-transaction": log.old_transaction,
    "subscriptions": subscriptions.one_stopped,
    "jobs": jobs.throughput,
    "jobs-latency": jobs.latency,
    "jobs-heartbeat": jobs.heartbeats,
    "jobs-delayed": jobs.delayed,
    "jobs-mixed": jobs.mixed,
    "hot-key": drain.hot_key,
    "memory": processes.memory,
    "start": processes.start,
}
