"""A worker over MySQL or MariaDB, from the committed row to the transport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.redis.wakeups import RedisWakeups
from boxengine.adapters.sql import schema
from boxengine.app import servers
from boxengine.domain.item import Status
from boxengine.domain.outcome import Failure
from boxengine.ports import Signal
from tests.integration.engine.receivers import BatchReceiver, FailsFirst, Gate, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import MakeRig
from tests.integration.engine.watcher import PATIENCE, Watcher

QUICK_RETRIES = {"max_retries": 3, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1}
OPEN_CLAIMS = (
    "SELECT t.trx_mysql_thread_id AS id FROM information_schema.innodb_trx AS t "
    "JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id "
    "WHERE p.db = DATABASE() AND t.trx_mysql_thread_id <> CONNECTION_ID()"
)
# What a Rails application's migration makes: no zones, no defaults for moments, a collation without case.
REFERENCE = """
CREATE TABLE order_outbox_items (
  id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
  uuid varchar(36) NOT NULL,
  event_key varchar(255) NOT NULL,
  bucket bigint NOT NULL,
  status int NOT NULL DEFAULT 0,
  proto_payload blob NOT NULL,
  errors_count int NOT NULL DEFAULT 0,
  processed_at datetime(6),
  created_at datetime(6) NOT NULL,
  updated_at datetime(6) NOT NULL,
  UNIQUE KEY index_uuid (uuid),
  KEY index_status (status, id, bucket),
  KEY index_key (event_key, id)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci
"""


@pytest.fixture
def make_rig(tmp_path: Path, mysql_url: str, redis_url: str) -> Iterator[MakeRig]:
    """Makes the test's one rig, with its tables unless told otherwise."""
    with ExitStack() as stack:

        def make(*, tables: bool = True, **config: Any) -> Rig:
            rig = stack.enter_context(Rig(tmp_path, database=mysql_url, redis=redis_url, **config))
            if tables:
                rig.create_tables()
            return rig

        yield make


def test_items_created_through_the_library_are_delivered_in_batches(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(), BatchReceiver()
    rig.carry(receiver)
    ids = rig.create(*range(40), options={"headers": {"x": "y"}})
    assert ids == sorted(ids)
    rig.deliver(40)
    assert sorted(receiver.ids) == ids
    assert len(receiver.batches) < 40
    assert set(rig.statuses()) == {Status.DELIVERED}
    item = receiver.items[0]
    assert item.headers["Idempotency-Key"] == str(rig.row(item.id).uuid)
    assert len(item.headers["Idempotency-Key"]) == 36
    assert (item.headers["x"], bytes(item.payload)) == ("y", b"{}")


def test_a_failed_attempt_is_retried_after_its_pause(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(box=QUICK_RETRIES), Receiver(FailsFirst(2))
    rig.carry(receiver)
    (row_id,) = rig.create("a")
    rig.deliver(3)
    row = rig.row(row_id)
    assert (row.status, row.errors_count, receiver.ids) == (Status.DELIVERED, 2, [row_id] * 3)
    assert "the receiver says no" in row.error_log


def test_an_item_whose_retries_are_used_up_is_failed(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.carry(Receiver(lambda _item: Failure("no \N{PILE OF POO}" * 20_000)))
    (row_id,) = rig.create("a")
    rig.deliver(1)
    assert rig.row(row_id).status == Status.FAILED
    assert len(rig.tracked) == 1


def test_two_workers_deliver_every_item_once_and_each_key_in_order(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(bucket_size=8), Receiver()
    rig.carry(receiver)
    ids = rig.create(*(number % 20 for number in range(400)))
    watcher = Watcher()
    with rig.worker(watcher), rig.worker(watcher):
        watcher.wait_for_settled(400)
    assert Counter(receiver.ids) == dict.fromkeys(ids, 1)
    assert all(own == sorted(own) for own in receiver.by_key.values())
    assert set(rig.statuses()) == {Status.DELIVERED}


def test_no_item_is_lost_when_the_connection_is_killed_during_a_claim(make_rig: MakeRig) -> None:
    rig, gate = make_rig(), Gate()
    rig.carry(gate)
    ids = rig.create(*range(10))
    with rig.worker() as watcher:
        assert gate.entered.wait(PATIENCE)
        for claim in rig.ask(OPEN_CLAIMS):
            rig.execute(f"KILL CONNECTION {claim.id}")
        gate.open()
        watcher.wait_for(lambda: len(watcher.delivered) >= 10)
        assert watcher.outages
    assert sorted(watcher.delivered) == ids
    assert set(gate.ids) == set(ids)
    assert set(rig.statuses()) == {Status.DELIVERED}


def test_what_a_handler_writes_commits_with_its_items_status(make_rig: MakeRig) -> None:
    rig = make_rig(box=QUICK_RETRIES)
    rig.execute("CREATE TABLE effects (item bigint PRIMARY KEY)")

    class Handler:
        def __init__(self) -> None:
            self.fail = FailsFirst(1, guilty=lambda item: item.event_key == "1")

        def __call__(self, item: Any, _payload: Any, *, session: Any) -> Failure | None:
            session.execute(sa.text("INSERT INTO effects (item) VALUES (:id)"), {"id": item.id})
            return self.fail(item)

    rig.carry(Handler())
    ids = rig.create(*range(8))
    rig.deliver(9)
    assert [row.item for row in rig.ask("SELECT item FROM effects ORDER BY item")] == ids


def test_a_commit_wakes_the_poller_through_redis_where_the_database_has_no_notifications(make_rig: MakeRig) -> None:
    rig = make_rig(wakeup="notify")
    connected = servers.connect(rig.boxes.resolved.settings)
    assert isinstance(connected.wakeups, RedisWakeups)
    try:
        connected.wakeups.wait(timedelta(0))
        rig.create("a")
        signals = connected.wakeups.wait(timedelta(seconds=PATIENCE))
        assert [signal.box_name for signal in signals] == [BOX]
        assert isinstance(signals[0], Signal)
    finally:
        connected.close()


# ── tables of the reference ──────────────────────────────────────────────────────────────────────────


def test_a_table_of_the_reference_is_written_and_drained(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(tables=False, box=QUICK_RETRIES), Receiver(FailsFirst(1, guilty=lambda item: item.id == 3))
    rig.carry(receiver)
    rig.execute(REFERENCE)
    ids = rig.create(*range(12))
    rig.deliver(13)
    assert sorted(set(receiver.ids)) == ids
    assert set(rig.statuses()) == {Status.DELIVERED}
    assert {bytes(payload) for payload in receiver.payloads} == {b"{}"}
    skew = rig.ask("SELECT MAX(ABS(TIMESTAMPDIFF(SECOND, created_at, UTC_TIMESTAMP(6)))) AS s FROM order_outbox_items")
    assert skew[0].s < 600


def test_a_collation_without_case_does_not_make_two_keys_one(make_rig: MakeRig) -> None:
    rig = make_rig(tables=False, box={**QUICK_RETRIES, "minimal_retry_interval": 0.5, "maximal_retry_interval": 0.5})
    rig.carry(Receiver(FailsFirst(1, guilty=lambda item: item.event_key == "a1")))
    rig.execute(REFERENCE)
    small, large = rig.create("a1", "A1")
    watcher = rig.deliver(3)
    assert (watcher.delivered, watcher.discarded) == ([large, small], [])


def test_the_check_of_a_reference_table_names_the_missing_index_and_db_create_makes_it(make_rig: MakeRig) -> None:
    rig = make_rig(tables=False)
    rig.execute(REFERENCE)
    assert any("ix_order_outbox_items_status" in each.message for each in schema.check(rig.engine, [rig.box()]))
    rig.create_tables()
    assert not any("no index" in each.message for each in schema.check(rig.engine, [rig.box()]))


# ── own tables ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("order", [False, True, "key"])
def test_the_printed_ddl_makes_what_the_check_wants(make_rig: MakeRig, order: bool | str) -> None:
    rig = make_rig(tables=False, box={"strict_order": order})
    for statement in schema.ddl("mysql", [rig.box()]):
        rig.execute(statement)
    assert schema.check(rig.engine, [rig.box()]) == []
    assert schema.create(rig.engine, [rig.box()]) == []
    assert schema.create(rig.engine, [rig.box()]) == []
