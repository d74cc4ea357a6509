from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.telemetry import families, prometheus
from boxengine.adapters.telemetry.ledger import Ledger, ProcessLedgers
from boxengine.adapters.telemetry.prometheus import NumbersCollector, PrometheusObserver
from boxengine.domain.item import Status
from boxengine.domain.outcome import Discard, DiscardCause, FailedAttempt, Settlement
from boxengine.ports import Consumed, Observer, events
from boxengine.ports.jobs import JobLoad
from tests.unit.meter import Meter
from tests.unit.telemetry.samples import BOX, CIRCUIT, JOB_BOX, item

LABELS = {"type": "outbox", "name": "shop-order_outbox_item", "owner": "shop-team"}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def observer(registry: CollectorRegistry) -> PrometheusObserver:
    return PrometheusObserver(clock=ManualClock(), partitions=4, registry=registry)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, LABELS | labels)


def test_it_is_an_observer(observer: PrometheusObserver) -> None:
    port: Observer = observer
    assert port is observer


def test_created_items_are_counted_by_partition_with_the_last_id(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.see(events.Created(BOX, ids=[5, 6, 7], buckets=[1, 5, 2], seconds=0.1))
    assert value(registry, "outbox_created_total", partition="1") == 2
    assert value(registry, "outbox_created_total", partition="2") == 1
    assert value(registry, "outbox_last_stored_event_id", partition="1") == 6


def test_each_outcome_of_a_batch_has_its_counter(observer: PrometheusObserver, registry: CollectorRegistry) -> None:
    items = [item(number, bucket=number) for number in range(1, 7)]
    settlement = Settlement(
        delivered=[1, 2],
        discarded=[Discard(3, DiscardCause.OVERTAKEN, 1, "why")],
        failed=[FailedAttempt(4, Status.FAILED, 1, "boom"), FailedAttempt(5, Status.PENDING, 1, "boom")],
    )
    observer.see(events.Settled(BOX, items, settlement, seconds=0.6))
    assert value(registry, "outbox_sent_total", partition="1") == 1
    assert value(registry, "outbox_sent_total", partition="2") == 1
    assert value(registry, "outbox_discarded_total", partition="3", reason="overtaken") == 1
    assert value(registry, "outbox_error_total", partition="0") == 1
    assert value(registry, "outbox_retry_total", partition="1") == 1
    assert value(registry, "outbox_last_sent_event_id", partition="2") == 2
    assert value(registry, "box_worker_job_items_total", partition="2") == 2
    assert value(registry, "box_worker_item_execution_runtime_seconds_count", partition="2") == 2
    assert value(registry, "box_worker_item_execution_runtime_seconds_sum", partition="2") == pytest.approx(0.2)
    assert value(registry, "outbox_process_latency_seconds_count", partition="0") == 1
    assert value(registry, "outbox_process_latency_seconds_count", partition="3") is None


def test_discards_are_counted_by_reason(observer: PrometheusObserver, registry: CollectorRegistry) -> None:
    causes = [DiscardCause.OVERTAKEN, DiscardCause.STRATEGY, DiscardCause.STRATEGY]
    discards = [Discard(number, cause, 1, "why") for number, cause in enumerate(causes, start=1)]
    observer.see(
        events.Settled(
            BOX, [item(number, bucket=1) for number in (1, 2, 3)], Settlement(discarded=discards), seconds=0.1
        )
    )
    observer.see(events.DiscardedByHand(BOX, [7, 8]))
    assert value(registry, "outbox_discarded_total", partition="1", reason="overtaken") == 1
    assert value(registry, "outbox_discarded_total", partition="1", reason="strategy") == 2
    assert value(registry, "outbox_discarded_total", partition="", reason="by_hand") == 2


def test_a_batch_without_items_or_outcomes_counts_nothing_as_sent(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.see(events.Settled(BOX, [], Settlement(), seconds=0.1))
    observer.see(events.Settled(BOX, [item(1)], Settlement(), seconds=0.1))
    assert value(registry, "outbox_sent_total", partition="0") is None
    assert value(registry, "box_worker_job_items_total", partition="0") == 1


@pytest.mark.parametrize("zone", [True, False])
def test_latency_is_the_age_at_the_recorded_end_of_the_attempt(
    observer: PrometheusObserver, registry: CollectorRegistry, zone: bool
) -> None:
    items = [item(1, age=0.5, zone=zone), item(2, age=20.0, zone=zone), item(3, age=90.0, tried=True, zone=zone)]
    observer.see(events.Settled(BOX, items, Settlement(delivered=[1, 2, 3]), seconds=0.5))
    name = "outbox_process_latency_seconds"
    assert value(registry, f"{name}_bucket", partition="0", le="0.5") == 0
    # A bound belongs to its bucket: an item exactly one second old is not more than one second old.
    assert value(registry, f"{name}_bucket", partition="0", le="1.0") == 1
    assert value(registry, f"{name}_bucket", partition="0", le="15.0") == 1
    assert value(registry, f"{name}_bucket", partition="0", le="30.0") == 2
    assert value(registry, f"{name}_bucket", partition="0", le="+Inf") == 2
    assert value(registry, f"{name}_sum", partition="0") == pytest.approx(21.5)
    assert value(registry, "outbox_retry_latency_seconds_sum", partition="0") == pytest.approx(90.5)
    assert value(registry, "outbox_retry_latency_seconds_count", partition="0") == 1


@pytest.mark.parametrize("zone", [True, False])
def test_an_item_from_an_application_whose_clock_is_ahead_counts_as_delivered_at_once(
    observer: PrometheusObserver, registry: CollectorRegistry, zone: bool
) -> None:
    items = [item(1, age=-3600.0, zone=zone), item(2, age=20.0, zone=zone)]
    observer.see(events.Settled(BOX, items, Settlement(delivered=[1, 2]), seconds=0.5))
    name = "outbox_process_latency_seconds"
    assert value(registry, f"{name}_bucket", partition="0", le="0.005") == 1
    assert value(registry, f"{name}_sum", partition="0") == pytest.approx(20.5), "a sum that falls looks like a new one"


def test_jobs_polls_throttles_queue_retention_and_transports_are_counted(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.see(events.HoldEnded(BOX, [0, 4, 1], events.Ending.PROCESSED, seconds=2.0))
    observer.see(events.HoldEnded(BOX, [1], events.Ending.TIMEOUT, seconds=90.0))
    observer.see(events.Polled(BOX, 3, found=200, pushed=40, seconds=0.01))
    observer.see(events.Throttled(BOX, 3, throttler="rate_limit", status="skip", seconds=0.0))
    observer.see(events.QueueMeasured(BOX, length=12, lag=3.5))
    observer.see(events.Taken(BOX, jobs=2, seconds=0.2))
    observer.see(events.FetchFailed(BOX, "gone"))
    observer.see(events.Deleted(BOX, rows=1000, seconds=0.3))
    observer.see(events.OldestPending(BOX, seconds=61.0))
    observer.see(events.Transported(BOX, "kafka", items=10, failed=1, seconds=0.4))
    observer.see(events.OutageBegan("redis", "refused"))
    observer.see(events.OutageEnded("redis", seconds=3.0))
    assert value(registry, "box_worker_job_total", partition="0", state="processed") == 2
    assert value(registry, "box_worker_job_total", partition="1", state="timeout") == 1
    assert value(registry, "box_worker_job_timeout_total", partition="1") == 1
    assert value(registry, "box_worker_job_execution_runtime_seconds_sum", partition="0") == 4
    assert value(registry, "box_worker_batches_per_poll_total", partition="3") == 1
    assert value(registry, "box_worker_polled_items_total", partition="3") == 200
    assert value(registry, "box_worker_pushed_jobs_total", partition="3") == 40
    throttled = {"partition": "3", "throttler": "rate_limit"}
    assert value(registry, "box_worker_poll_throttling_total", status="skip", **throttled) == 1
    assert value(registry, "box_worker_poll_throttling_runtime_seconds_count", **throttled) == 1
    assert value(registry, "box_worker_redis_job_queue_size") == 12
    assert value(registry, "box_worker_redis_job_queue_time_lag_seconds") == 3.5
    assert value(registry, "box_worker_job_wait_seconds_count") == 1
    assert value(registry, "outbox_fetch_error_total") == 1
    assert value(registry, "outbox_deleted_total") == 1000
    assert value(registry, "outbox_delete_latency_seconds_count") == 1
    assert value(registry, "outbox_oldest_pending_age_seconds") == 61
    assert value(registry, "outbox_transport_items_total", transport="kafka", result="delivered") == 9
    assert value(registry, "outbox_transport_items_total", transport="kafka", result="failed") == 1
    assert value(registry, "outbox_transport_runtime_seconds_count", transport="kafka") == 1
    assert registry.get_sample_value("box_worker_outages_total", {"what": "redis"}) == 1


def test_an_open_circuit_is_a_1_until_it_closes(observer: PrometheusObserver, registry: CollectorRegistry) -> None:
    observer.see(events.CircuitChanged(BOX, "kafka", CIRCUIT))
    assert value(registry, "box_worker_circuit_open", transport="kafka") == 1
    observer.see(events.CircuitChanged(BOX, "kafka", None))
    assert value(registry, "box_worker_circuit_open", transport="kafka") == 0


def test_of_two_processes_the_one_whose_circuit_is_still_open_is_heard(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.see(events.CircuitChanged(BOX, "kafka", CIRCUIT))
    observer.see(events.CircuitChanged(BOX, "kafka", None))  # another process's
    observer.see(events.CircuitOpen(BOX, CIRCUIT))
    assert value(registry, "box_worker_circuit_open", transport="kafka") == 1


def test_consumers_count_by_topic_and_partition(observer: PrometheusObserver, registry: CollectorRegistry) -> None:
    for _ in range(2):
        observer.see(
            events.MessagesStored(BOX, {("orders", 2): Consumed(5, 2, 1, 1), ("orders", 3): Consumed(1)}, seconds=0.2)
        )
    observer.see(events.Lagging(BOX, {("orders", 2): 7}))
    assert value(registry, "box_consumer_messages_total", topic="orders", partition="2") == 10
    assert value(registry, "box_consumer_duplicates_total", topic="orders", partition="2") == 4
    assert value(registry, "box_consumer_contradictions_total", topic="orders", partition="2") == 2
    assert value(registry, "box_consumer_dead_letters_total", topic="orders", partition="2") == 2
    assert value(registry, "box_consumer_messages_total", topic="orders", partition="3") == 2
    assert value(registry, "box_consumer_batches_total") == 2
    assert value(registry, "box_consumer_batch_runtime_seconds_count") == 2
    assert value(registry, "box_consumer_lag_messages", topic="orders", partition="2") == 7


def test_an_outage_shows_its_age_while_it_is_met_again_and_half_an_hour_beyond(registry: CollectorRegistry) -> None:
    clock = ManualClock()
    observer = PrometheusObserver(clock=clock, partitions=4, registry=registry)

    def age() -> float | None:
        return registry.get_sample_value("box_worker_outage_seconds", {"what": "redis"})

    observer.see(events.OutageBegan("redis", "refused"))
    assert age() == 0
    observer.see(events.OutageLasts("redis", seconds=61.0))
    assert age() == 61
    clock.advance(timedelta(minutes=30, seconds=1))
    assert age() is None
    observer.see(events.OutageLasts("redis", seconds=1900.0))
    observer.see(events.OutageEnded("redis", seconds=1901.0))
    assert age() == 0


def test_stranded_items_are_shown_for_three_minutes_after_somebody_counted_them(registry: CollectorRegistry) -> None:
    clock = ManualClock()
    observer = PrometheusObserver(clock=clock, partitions=4, registry=registry)
    observer.see(events.Stranded(BOX, items=3))
    clock.advance(timedelta(seconds=180))
    assert value(registry, "box_worker_stranded_items") == 3
    clock.advance(timedelta(seconds=1))
    assert value(registry, "box_worker_stranded_items") is None


def test_what_nobody_measures_any_more_is_gone_after_a_minute(registry: CollectorRegistry) -> None:
    clock = ManualClock()
    observer = PrometheusObserver(clock=clock, partitions=4, registry=registry)
    observer.see(events.OldestPending(BOX, seconds=900.0))
    observer.see(events.QueueMeasured(BOX, length=5, lag=1.0))
    observer.see(events.Lagging(BOX, {("orders", 2): 7}))
    observer.see(events.Created(BOX, ids=[5], buckets=[1], seconds=0.1))
    clock.advance(timedelta(seconds=60))
    assert value(registry, "outbox_oldest_pending_age_seconds") == 900
    clock.advance(timedelta(seconds=1))
    observer.see(events.QueueMeasured(BOX, length=4, lag=1.0))
    assert value(registry, "outbox_oldest_pending_age_seconds") is None
    assert value(registry, "box_consumer_lag_messages", topic="orders", partition="2") is None
    assert value(registry, "box_worker_redis_job_queue_size") == 4
    assert value(registry, "outbox_last_stored_event_id", partition="1") == 5
    assert value(registry, "outbox_created_total", partition="1") == 1


def test_calls_of_a_transport_are_counted_one_by_one_though_they_are_told_together(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.see(events.Transported(BOX, "http", items=4, failed=1, seconds=2.0, calls=4))
    observer.see(events.Transported(BOX, "http", items=500, failed=0, seconds=1.0))
    name = families.TRANSPORT_RUNTIME.name
    assert value(registry, f"{name}_count", transport="http") == 5
    assert value(registry, f"{name}_sum", transport="http") == 3


def test_histograms_agree_with_those_of_prometheus_client(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    from prometheus_client import Histogram

    theirs = CollectorRegistry()
    family = families.TRANSPORT_RUNTIME
    histogram = Histogram(family.name, family.help, family.labels, registry=theirs, buckets=family.bounds)
    for seconds in (0.0, 0.001, 0.0011, 0.3, 1.0, 59.9, 600.0, 601.0, 1e6):
        observer.see(events.Transported(BOX, "http", items=1, failed=0, seconds=seconds))
        histogram.labels(*LABELS.values(), "http").observe(seconds)
    expected = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in theirs.collect()
        for sample in metric.samples
        if not sample.name.endswith("_created")
    }
    ours = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name.startswith(family.name)
    }
    assert ours == pytest.approx(expected)


def test_the_text_format_parses_and_every_family_is_in_it(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.see(events.Settled(BOX, [item(1)], Settlement(delivered=[1]), seconds=0.1))
    parsed = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}
    assert set(parsed) == {family.name for family in families.ALL}
    for family in families.ALL:
        assert parsed[family.name].type == family.kind.value
        assert list(family.bounds) == sorted(family.bounds)
        assert math.inf not in family.bounds


def test_one_scrape_of_the_parent_is_exact_over_living_and_dead_processes(tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path)
    early, late = ManualClock(), ManualClock()
    late.advance(timedelta(seconds=1))
    registry = CollectorRegistry()
    registry.register(NumbersCollector(ledgers, clock=late))
    first, second = Ledger(ledgers.path("one")), Ledger(ledgers.path("two"))
    one = PrometheusObserver(clock=early, partitions=4, ledger=first)
    two = PrometheusObserver(clock=late, partitions=4, ledger=second)
    for observer in (one, two):
        observer.see(
            events.Settled(BOX, [item(1, age=2.0), item(2, age=2.0)], Settlement(delivered=[1, 2]), seconds=0.0)
        )
    two.see(events.QueueMeasured(BOX, length=5, lag=1.0))
    one.see(events.QueueMeasured(BOX, length=9, lag=2.0))

    def check() -> None:
        assert value(registry, "outbox_sent_total", partition="0") == 4
        assert value(registry, "outbox_process_latency_seconds_bucket", partition="0", le="2.5") == 4
        assert value(registry, "outbox_process_latency_seconds_bucket", partition="0", le="1.0") == 0
        assert value(registry, "outbox_process_latency_seconds_sum", partition="0") == 8
        assert value(registry, "box_worker_redis_job_queue_size") == 5

    check()
    second.close()
    ledgers.retire("two")
    check()
    first.close()


def test_the_load_of_long_jobs_is_that_of_all_living_processes_together(tmp_path: Path) -> None:
    ledgers, clock, registry = ProcessLedgers(tmp_path, added=families.ADDED), ManualClock(), CollectorRegistry()
    registry.register(NumbersCollector(ledgers, clock=clock))
    own = {name: Ledger(ledgers.path(name)) for name in ("one", "two")}
    observers = {name: PrometheusObserver(clock=clock, partitions=4, ledger=ledger) for name, ledger in own.items()}
    observers["one"].see(JobLoad(JOB_BOX, running=3, threads=4))
    clock.advance(timedelta(seconds=1))
    observers["two"].see(JobLoad(JOB_BOX, running=1, threads=4))

    def load() -> list[float | None]:
        names = "queue_tasks_in_progress", "queue_running_job_processors", "queue_running_workers"
        return [
            registry.get_sample_value(name, {"type": "job", "name": JOB_BOX.label, "owner": "analytics"})
            for name in names
        ]

    assert load() == [4, 8, 2]
    own["one"].close()
    ledgers.retire("one")
    assert load() == [1, 4, 1], "what the dead process ran runs no more"
    clock.advance(timedelta(seconds=61))
    assert load() == [None, None, None]
    own["two"].close()


def test_an_item_of_a_batch_costs_few_instructions_to_count(observer: PrometheusObserver) -> None:
    def instructions(count: int) -> int:
        items = [item(number, bucket=number // 100, age=number / 100) for number in range(count)]
        with Meter(Path(prometheus.__file__)) as meter:
            observer.see(events.Settled(BOX, items, Settlement(delivered=[each.id for each in items]), seconds=0.1))
        return meter.instructions

    instructions(400)  # The keys are made once.
    assert 1 < (instructions(400) - instructions(200)) / 200 <= 25
