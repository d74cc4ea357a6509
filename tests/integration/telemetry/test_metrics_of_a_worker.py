"""Every metric, moved by a running worker and scraped from it, after a history whose numbers are known."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import boxengine
from boxengine import BatchAttributes
from boxengine.adapters.redis.pauses import RedisPauses
from boxengine.adapters.system import SystemClock
from boxengine.adapters.telemetry import families
from boxengine.adapters.telemetry.prometheus import PrometheusObserver
from boxengine.app.servers.redis import redis_client
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Failure
from tests.eventually import eventually
from tests.integration.engine.receivers import Receiver
from tests.integration.telemetry.conftest import MakeSite
from tests.integration.telemetry.site import Running, Site, total

ORDERS = {"type": "outbox", "name": "order_outbox_item", "owner": "shop-team"}
PAYMENTS = {"type": "inbox", "name": "payment_inbox_item", "owner": "money-team"}
OF_CONSUMERS = {family.name for family in families.ALL if family.name.startswith("box_consumer_")}
ELSEWHERE = {
    "box_worker_job_timeout",
    "box_worker_circuit_open",
    "outbox_order_violations",
    "outbox_log_unread_age_seconds",
}
"""Moved by other histories: the second below, those of the circuits, of the audit, and of a log's subscriptions."""
OF_JOBS = {family.name for family in families.ALL if family.name.startswith("queue_")}
"""Of boxes of long jobs, of which there are none here."""
CONFIG: dict[str, Any] = {
    "owner": "shop-team",
    "wakeup": "notify",
    "poller": {"tactic": "default", "concurrency": 2},
    "outbox_items": {
        "order_outbox_item": {
            "max_retries": 1,
            "minimal_retry_interval": 0,
            "maximal_retry_interval": 0,
            "retry_strategies": ["exponential_backoff", "latest_available"],
        }
    },
    "inbox_items": {"payment_inbox_item": {"owner": "money-team"}},
}
# Of two partitions, with four buckets: an odd key is in partition 1, an even one in partition 0.
GOOD, BAD, FLAKY, LATE = ("1", "2", "3"), "4", "5", "7"


class Answers:
    """Of keys: one always fails, one fails once, and of one the first item does."""

    def __init__(self) -> None:
        self.attempts: dict[str, int] = {}

    def __call__(self, item: Item) -> Any:
        tries = self.attempts[item.event_key] = self.attempts.get(item.event_key, 0) + 1
        fails = item.event_key == BAD or (item.event_key in (FLAKY, LATE) and tries == 1)
        return Failure("no") if fails else True


class RaisesOnce:
    """A batch middleware: the first batch cannot be worked on."""

    def __init__(self) -> None:
        self.raised = False

    def __call__(self, _batch: object, call_next: Callable[[], Any]) -> Any:
        if not self.raised:
            self.raised = True
            raise RuntimeError("not yet")
        return call_next()


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    site = make_site(**CONFIG)
    site.carry(Receiver(Answers()))
    site.carry(Receiver(), box="payment_inbox_item")
    site.surround(batch_process=[RaisesOnce()])
    client = redis_client(site.boxes.resolved.settings)
    RedisPauses(client).set(site.box("payment_inbox_item"), polling_enabled=False)
    client.lpush("order_outbox_item:job_queue", "nothing that boxengine wrote")
    client.close()
    return site


def create(running: Running, site: Site, key: str, **attributes: Any) -> int:
    with site.engine.begin() as connection:
        return running.boxes.create_outbox_item(
            connection, "order_outbox_item", event_key=key, payload=b"{}", **attributes
        )


Expected = tuple[str, dict[str, str], float]
RECEIVER = {"transport": "Receiver"}
PAUSED = {"throttler": "paused_box"}
EXACTLY: list[Expected] = [
    # Seven rows; the eighth creation found its dedup_key there.
    ("outbox_created_total", ORDERS, 7),
    ("outbox_created_total", {**ORDERS, "partition": "1"}, 5),
    ("outbox_created_total", PAYMENTS, 1),
    # The good ones, the flaky one and the later one of a key, which overtakes the earlier.
    ("outbox_sent_total", ORDERS, 5),
    ("outbox_sent_total", {**ORDERS, "partition": "0"}, 1),
    ("outbox_error_total", {**ORDERS, "partition": "0"}, 1),
    ("outbox_error_total", ORDERS, 1),
    ("outbox_retry_total", ORDERS, 3),
    ("outbox_discarded_total", {**ORDERS, "partition": "1", "reason": "overtaken"}, 1),
    ("outbox_discarded_total", ORDERS, 1),
    ("outbox_fetch_error_total", ORDERS, 1),
    ("outbox_process_latency_seconds_count", ORDERS, 7),
    ("outbox_retry_latency_seconds_count", ORDERS, 2),
    ("outbox_deleted_total", ORDERS, 3),
    ("outbox_transport_items_total", {**ORDERS, **RECEIVER, "result": "delivered"}, 5),
    ("outbox_transport_items_total", {**ORDERS, **RECEIVER, "result": "failed"}, 4),
    ("box_worker_foreign_jobs_total", ORDERS, 1),
    ("box_worker_outages_total", {"what": "box order_outbox_item"}, 1),
    ("box_worker_stranded_items", PAYMENTS, 2),
    ("box_worker_stranded_items", ORDERS, 0),
    ("box_worker_redis_job_queue_size", PAYMENTS, 0),
    ("box_worker_redis_job_queue_time_lag_seconds", PAYMENTS, 0),
]
AT_LEAST: list[Expected] = [
    ("outbox_delete_latency_seconds_count", ORDERS, 1),
    ("outbox_transport_runtime_seconds_count", {**ORDERS, **RECEIVER}, 3),
    ("outbox_oldest_pending_age_seconds", PAYMENTS, 3600),
    ("box_worker_job_items_total", ORDERS, 10),
    ("box_worker_item_execution_runtime_seconds_count", ORDERS, 10),
    ("box_worker_job_total", {**ORDERS, "state": "failed"}, 1),
    ("box_worker_job_total", {**ORDERS, "state": "processed"}, 3),
    ("box_worker_batches_per_poll_total", ORDERS, 3),
    ("box_worker_polled_items_total", ORDERS, 7),
    ("box_worker_pushed_jobs_total", ORDERS, 3),
    ("box_worker_job_wait_seconds_count", ORDERS, 1),
    ("box_worker_poll_throttling_total", {**PAYMENTS, **PAUSED, "status": "skip", "partition": "0"}, 1),
    ("box_worker_poll_throttling_runtime_seconds_count", {**PAYMENTS, **PAUSED}, 1),
    ("box_worker_poll_throttling_runtime_seconds_sum", {**PAYMENTS, **PAUSED}, 1),
]


def act(site: Site, running: Running) -> dict[str, int]:
    """The history; the ids of some items by key."""
    watcher = running.watcher
    ids = {key: create(running, site, key) for key in GOOD}
    watcher.wait_for_settled(3)
    with site.engine.begin() as connection:
        keys = [BAD, FLAKY, LATE, LATE]
        batch: list[BatchAttributes] = [
            {"event_key": key, "payload": b"{}", "dedup_key": str(n)} for n, key in enumerate(keys)
        ]
        ids |= dict(zip(keys, running.boxes.create_outbox_batch(connection, "order_outbox_item", batch), strict=True))
    assert create(running, site, BAD, dedup_key="0") == ids[BAD]
    with site.engine.begin() as connection:
        running.boxes.create_inbox_item(connection, "payment_inbox_item", event_key="2", payload=b"{}")
    watcher.wait_for(lambda: (len(watcher.delivered), len(watcher.failures), len(watcher.discarded)) == (5, 4, 1))
    watcher.wait_for(lambda: watcher.rows_deleted == 3 and ("paused_box", "skip") in watcher.throttles)
    eventually(lambda: running.total("outbox_oldest_pending_age_seconds", **PAYMENTS))
    return ids


def test_every_metric_is_moved_by_the_worker_and_has_the_right_value(site: Site) -> None:
    old = site.now() - timedelta(days=8)
    for _ in range(3):
        site.insert(status=int(Status.DELIVERED), created_at=old, processed_at=old)
    site.insert(box="payment_inbox_item", created_at=site.now() - timedelta(hours=1))
    for bucket in (-1, 4):
        site.insert(box="payment_inbox_item", bucket=bucket)
    with site.running() as running:
        ids = act(site, running)
        samples = running.scrape()
    stored_last: Expected = ("outbox_last_stored_event_id", {**ORDERS, "partition": "1"}, ids[LATE])
    sent_last: Expected = ("outbox_last_sent_event_id", {**ORDERS, "partition": "0"}, ids["2"])
    exact = [*EXACTLY, stored_last, sent_last]
    assert [(metric, labels, total(samples, metric, labels)) for metric, labels, _ in exact] == exact
    short = [(total(samples, metric, labels), least) for metric, labels, least in AT_LEAST]
    assert [each for each in zip(AT_LEAST, short, strict=True) if each[1][0] < each[1][1]] == []
    for runtime, count in (
        ("box_worker_job_execution_runtime_seconds_count", "box_worker_job_total"),
        ("box_worker_poll_runtime_seconds_count", "box_worker_batches_per_poll_total"),
    ):
        assert total(samples, runtime, ORDERS) == total(samples, count, ORDERS)
    assert site.statuses("payment_inbox_item") == [0, 0, 0, 0]
    suffixes = {families.Kind.COUNTER: "_total", families.Kind.GAUGE: "", families.Kind.HISTOGRAM: "_bucket"}
    silent = {family.name for family in families.ALL if family.name + suffixes[family.kind] not in samples}
    assert silent == OF_CONSUMERS | OF_JOBS | ELSEWHERE


def test_a_job_that_reaches_the_cutoff_is_counted_as_a_timeout(make_site: MakeSite) -> None:
    site = make_site(owner="shop-team", bucket_size=1, processor={"cutoff_timeout": 0.05, "general_timeout": 60})
    slow = Event()
    site.carry(Receiver(lambda _item: slow.wait(0.1) or True))
    site.create("1", "1", "1")
    with site.running() as running:
        running.watcher.wait_for_settled(3)
        eventually(lambda: running.total("box_worker_job_timeout_total", **ORDERS, partition="0") >= 1)
        samples = running.scrape()
    timeouts = total(samples, "box_worker_job_timeout_total", ORDERS)
    assert total(samples, "box_worker_job_total", {**ORDERS, "state": "timeout"}) == timeouts


def test_items_of_a_transaction_that_finds_them_all_there_already_are_not_created_again(make_site: MakeSite) -> None:
    site = make_site(owner="shop-team")
    site.carry(Receiver())
    with site.running() as running:
        for _ in range(3):
            create(running, site, "1", dedup_key="once")
        assert running.total("outbox_created_total", **ORDERS) == 1
        running.watcher.wait_for_settled(1)


def test_an_application_counts_what_it_creates_in_a_registry_of_its_own(make_site: MakeSite) -> None:
    site, registry = make_site(owner="shop-team"), CollectorRegistry()
    observer = PrometheusObserver(clock=SystemClock(), partitions=6, registry=registry)
    boxes = boxengine.Boxes(site.boxes.resolved, observer=observer)
    with site.engine.begin() as connection:
        item_id = boxes.create_outbox_item(connection, "order_outbox_item", event_key="1", payload=b"{}")
    labels = {**ORDERS, "partition": "1"}
    assert registry.get_sample_value("outbox_created_total", labels) == 1
    assert registry.get_sample_value("outbox_last_stored_event_id", labels) == item_id
