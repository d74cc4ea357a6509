"""Retention, and the promises as a whole."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any

import pytest

from boxengine.adapters.kafka.transport import KafkaTransport
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.domain.box import Box
from boxengine.domain.item import Item, Status
from boxengine.engine.observation import NullObserver
from boxengine.engine.retention import Retention
from boxengine.engine.running.outages import Outages
from boxengine.errors import ConfigurationError, Unavailable
from tests.eventually import eventually
from tests.integration.engine.receivers import BatchReceiver, FailsFirst, Gate, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.parity.harness import RETRIES, MakeRig, servers_of
from tests.unit.transports.kafka_reader import headers_of, read_all

TWO_BOXES: dict[str, dict[str, object]] = {BOX: {}, "other_outbox_item": {}}


# ── retention ────────────────────────────────────────────────────────────────────────────────────────


def aged(rig: Rig, status: Status, *, days: float) -> int:
    moment = rig.now() - timedelta(days=days)
    return rig.insert(status=int(status), created_at=moment, updated_at=moment, processed_at=moment)


def test_finished_rows_are_deleted_by_age_and_pending_ones_never(make_rig: MakeRig) -> None:
    box = {
        "retention": "P7D",
        "retention_delivered_items": "P2D",
        "deletion_batch_size": 2,
        "deletion_sleep_time": 0.01,
    }
    rig = make_rig(box=box, polling_auto_disabled=True)
    gone = [aged(rig, Status.DELIVERED, days=3) for _ in range(5)]
    gone += [aged(rig, Status.FAILED, days=8), aged(rig, Status.DISCARDED, days=30)]
    kept = [
        aged(rig, Status.PENDING, days=400),
        aged(rig, Status.DELIVERED, days=1),
        aged(rig, Status.FAILED, days=6),
        aged(rig, Status.DISCARDED, days=6),
    ]
    with rig.worker() as watcher:
        watcher.wait_for(lambda: watcher.rows_deleted >= len(gone))
    assert list(rig.rows()) == kept


def test_one_worker_at_a_time_cleans_up(make_rig: MakeRig) -> None:
    rig = make_rig(box={"retention": "P1D", "deletion_batch_size": 1, "deletion_sleep_time": 0.01})
    for _ in range(20):
        aged(rig, Status.DELIVERED, days=3)
    with rig.worker() as first, rig.worker() as second:
        eventually(lambda: rig.rows() == {})
    assert sorted((first.rows_deleted, second.rows_deleted)) == [0, 20]


def test_a_retention_under_its_minimum_is_refused(make_rig: MakeRig) -> None:
    with pytest.raises(ConfigurationError, match="retention"):
        make_rig(box={"retention": "PT1H"})


def test_a_retention_of_delivered_rows_under_its_minimum_is_refused(make_rig: MakeRig) -> None:
    with pytest.raises(ConfigurationError, match="retention_delivered_items"):
        make_rig(box={"retention_delivered_items": "PT30M"})


def test_retention_runs_every_ten_minutes(rig: Rig) -> None:
    gone = aged(rig, Status.DELIVERED, days=30)
    with retention_of(rig) as (retention, _):
        assert retention.turn() == timedelta(minutes=10)
    assert gone not in rig.rows()


def test_retention_goes_in_windows_and_batches_from_the_oldest_on(make_rig: MakeRig) -> None:
    rig = make_rig(
        box={
            "retention_delivered_items": "P1D",
            "deletion_time_window": "PT6H",
            "deletion_batch_size": 2,
            "deletion_sleep_time": 0.001,
        }
    )
    for days in (3.0, 2.99, 2.98, 2.6, 2.2, 0.5):
        aged(rig, Status.DELIVERED, days=days)
    with retention_of(rig) as (retention, spans):
        assert retention.clean_up(rig.box()) == 5
    assert len(rig.rows()) == 1
    assert all(deleted <= 2 for _, _, deleted in spans)
    by_window: Counter[datetime] = Counter()
    for _, until, deleted in spans:
        by_window[until] += deleted
    assert [deleted for _, deleted in sorted(by_window.items()) if deleted] == [3, 1, 1]
    oldest = datetime.now(UTC) - timedelta(days=3)
    assert min(by_window) < oldest + timedelta(hours=6)
    assert max(by_window) < oldest + timedelta(days=2)  # nothing younger than the retention was looked for


def test_retention_sleeps_between_two_batches(make_rig: MakeRig) -> None:
    rig = make_rig(box={"retention_delivered_items": "P1D", "deletion_batch_size": 1, "deletion_sleep_time": 3600})
    for _ in range(3):
        aged(rig, Status.DELIVERED, days=3)
    with retention_of(rig) as (retention, spans):
        thread = Thread(target=retention.clean_up, args=(rig.box(),))
        thread.start()
        eventually(lambda: len(rig.rows()) == 2)
        retention.stop()  # or it would go on in an hour
        thread.join(30)
        assert not thread.is_alive()
    assert [deleted for _, _, deleted in spans] == [1]


class Noted:
    """A store whose deletions are written down."""

    def __init__(self, store: SqlStore) -> None:
        self.spans: list[tuple[datetime, datetime, int]] = []
        """From, before, and how many rows."""
        self._store = store
        self.counts, self.oldest_pending, self.stranded_items, self.oldest_finished, self.sweep_finished = (
            store.counts,
            store.oldest_pending,
            store.stranded_items,
            store.oldest_finished,
            store.sweep_finished,
        )
        self.unread_since, self.now = store.unread_since, store.now

    def delete_finished(
        self, box: Box, statuses: Sequence[int], *, created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        deleted = self._store.delete_finished(
            box, statuses, created_from=created_from, created_before=created_before, limit=limit
        )
        if statuses == [Status.DELIVERED]:
            self.spans.append((created_from, created_before, deleted))
        return deleted


@contextmanager
def retention_of(rig: Rig) -> Iterator[tuple[Retention, list[tuple[datetime, datetime, int]]]]:
    """The loop of a worker that does nothing else, and the spans of its deletions of delivered rows."""
    with servers_of(rig) as connected:
        store, observer = Noted(connected.store), NullObserver()
        retention = Retention(
            [rig.box()],
            store=store,
            leases=connected.leases,
            outages=Outages(observer=observer, error_tracker=lambda _error, /, **_: None, clock=connected.clock),
            observer=observer,
            clock=connected.clock,
            token="test",
        )
        yield retention, store.spans


def test_retention_zero_deletes_on_delivery(make_rig: MakeRig) -> None:
    rig = make_rig(box={"retention_delivered_items": "PT0S", "delivered_min_retention_period": "PT0S"})
    rig.carry(Receiver())
    rig.create(1, 2)
    rig.deliver(2)
    assert rig.rows() == {}


# ── promises ─────────────────────────────────────────────────────────────────────────────────────────


def test_promise_no_loss(make_rig: MakeRig) -> None:
    rig = make_rig(box=RETRIES)
    rig.carry(Receiver(FailsFirst(9, guilty=lambda item: item.id % 10 == 0)))
    ids = rig.create(*range(100))
    with rig.worker():
        eventually(lambda: Status.PENDING not in rig.statuses())
    failed = [row.id for row in rig.rows().values() if row.status == Status.FAILED]
    assert failed == [item_id for item_id in ids if item_id % 10 == 0]
    assert rig.statuses().count(Status.DELIVERED) == 90


@pytest.mark.parametrize("kind", [Receiver, BatchReceiver])
def test_promise_order(make_rig: MakeRig, kind: type[Receiver]) -> None:
    rig, receivers = make_rig(bucket_size=16), [kind(), kind()]
    rig.carry(receivers[0])
    with rig.worker() as first:
        rig.carry(receivers[1])
        with rig.worker() as second:
            ids = [item_id for _ in range(10) for item_id in rig.create(*range(30))]
            eventually(lambda: set(rig.statuses()) == {Status.DELIVERED})
    assert sorted(first.delivered + second.delivered) == ids
    moments = sorted((item.dispatched_at, item.id, item.event_key) for each in receivers for item in each.items)
    for key in map(str, range(30)):
        arrived = [item_id for _, item_id, its_key in moments if its_key == key]
        assert arrived == sorted(arrived)


def test_promise_at_least_once(rig: Rig) -> None:
    gate = Gate()
    rig.carry(gate)
    (item_id,) = rig.create(1)
    with rig.worker() as watcher:
        assert gate.entered.wait(30)
        rig.cut_connections(of_claims=True)
        gate.open()
        watcher.wait_for(lambda: watcher.delivered == [item_id])
    assert gate.ids == [item_id] * 2  # the connection was lost with it in work: once more, and no more


def test_promise_acknowledged(rig: Rig) -> None:
    gate = Gate()
    rig.carry(gate)
    (item_id,) = rig.create(1)
    with rig.worker() as watcher:
        assert gate.entered.wait(30)
        assert rig.row(item_id).status == Status.PENDING
        gate.open()
        watcher.wait_for_settled(1)
    assert rig.row(item_id).status == Status.DELIVERED


def test_promise_acknowledged_by_kafka(rig: Rig, kafka_bootstrap: str, kafka_topic: str) -> None:
    """Delivered is written after the broker's report, and not without one."""
    with socket.socket() as taken, kafka(kafka_topic, f"127.0.0.1:{bound(taken)}", delivery_timeout=1.0) as silent:
        rig.carry(silent)
        ids = rig.create(*range(20))
        with rig.worker() as watcher:
            watcher.wait_for(lambda: len(watcher.outages) > 0)
        assert set(rig.statuses()) == {Status.PENDING}
    with kafka(kafka_topic, kafka_bootstrap) as transport:
        rig.carry(transport)
        rig.deliver(20)
    messages = read_all(kafka_bootstrap, kafka_topic)
    assert sorted(int(headers_of(message)["Sequence-ID"]) for message in messages) == ids
    assert set(rig.statuses()) == {Status.DELIVERED}


@contextmanager
def kafka(topic: str, bootstrap: str, **options: Any) -> Iterator[KafkaTransport]:
    with closing(KafkaTransport(topic=topic, bootstrap_servers=bootstrap, **options)) as transport:
        yield transport


def bound(taken: socket.socket) -> int:
    """A port on which nobody listens."""
    taken.bind(("127.0.0.1", 0))
    return int(taken.getsockname()[1])


def test_promise_isolation_of_a_poison_item(rig: Rig) -> None:
    def explode(item: Item) -> None:
        if item.event_key == "5":
            raise ValueError("poison")

    rig.carry(BatchReceiver(explode))
    rig.create(*range(40))
    rig.deliver(40)
    assert [row.event_key for row in rig.rows().values() if row.status == Status.FAILED] == ["5"]


def test_promise_isolation_of_a_box_whose_transport_hangs(make_rig: MakeRig) -> None:
    rig, gate = make_rig(outbox_items=TWO_BOXES), Gate()
    rig.carry(gate)
    rig.carry(Receiver(), box="other_outbox_item")
    rig.create(*range(8))
    with rig.worker(processor_threads=2) as watcher:
        assert gate.entered.wait(30)
        ids = rig.create(*range(20), box="other_outbox_item")
        watcher.wait_for_settled(len(ids))
        assert set(rig.statuses("other_outbox_item")) == {Status.DELIVERED}
        assert set(rig.statuses()) == {Status.PENDING}
        gate.open()
        watcher.wait_for_settled(28)


def test_promise_isolation_of_a_box_whose_table_is_missing(make_rig: MakeRig) -> None:
    rig = make_rig(outbox_items=TWO_BOXES)
    rig.carry(Receiver())
    rig.execute("DROP TABLE other_outbox_items")
    rig.create(*range(20))
    rig.deliver(20)
    assert set(rig.statuses()) == {Status.DELIVERED}


def test_promise_isolation_of_a_transport_that_raises_for_everything(make_rig: MakeRig) -> None:
    rig, reached = make_rig(outbox_items=TWO_BOXES), Event()

    def down(_item: Item) -> None:
        reached.set()
        raise ConnectionError("the broker is down")

    rig.carry(BatchReceiver(down))
    rig.carry(BatchReceiver(), box="other_outbox_item")
    rig.create(*range(40))
    rig.create(*range(40), box="other_outbox_item")
    rig.deliver(80)
    assert reached.is_set()
    assert set(rig.statuses("other_outbox_item")) == {Status.DELIVERED}


def test_promise_isolation_of_a_key(make_rig: MakeRig) -> None:
    rig = make_rig(bucket_size=1, box={"strict_order": "key", "max_retries": 3, "minimal_retry_interval": 600})
    rig.carry(BatchReceiver(lambda item: item.event_key != "5"))
    rig.create(*range(10), *range(10))
    rig.deliver(18 + 1)
    assert {row.event_key for row in rig.rows().values() if row.status == Status.PENDING} == {"5"}


def test_promise_isolation_of_a_dead_broker(make_rig: MakeRig) -> None:
    rig = make_rig(outbox_items=TWO_BOXES)

    def unreachable(_item: Item) -> None:
        raise Unavailable("the broker is down")

    rig.carry(BatchReceiver(unreachable))
    rig.carry(BatchReceiver(), box="other_outbox_item")
    rig.create(*range(40))
    rig.create(*range(40), box="other_outbox_item")
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.delivered) == 40 and len(watcher.outages) > 0)
    assert set(rig.statuses("other_outbox_item")) == {Status.DELIVERED}
    assert {(row.status, row.errors_count) for row in rig.rows().values()} == {(Status.PENDING, 0)}
