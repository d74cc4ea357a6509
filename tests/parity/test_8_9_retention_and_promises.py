"""Retention, and the promises as a whole."""

from __future__ import annotations

from datetime import timedelta
from threading import Event

import pytest

from boxengine.domain.item import Item, Status
from boxengine.errors import ConfigurationError
from tests.eventually import eventually
from tests.integration.engine.receivers import BatchReceiver, FailsFirst, Gate, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.parity.harness import RETRIES, MakeRig

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
        kill = {
            "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND state = 'idle in transaction'",
            "mysql": "SELECT trx_mysql_thread_id AS id FROM information_schema.innodb_trx",
        }
        name = "postgresql" if rig.engine.dialect.name == "postgresql" else "mysql"
        found = rig.ask(kill[name])
        if name == "mysql":
            for row in found:
                rig.execute(f"KILL CONNECTION {row.id}")
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
