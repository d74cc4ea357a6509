"""What is peculiar to a worker over MySQL or MariaDB; what it shares with PostgreSQL is in ``engine``, over both."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.orm import DeclarativeBase

from boxengine import OutboxItem
from boxengine.adapters.redis.wakeups import RedisWakeups
from boxengine.adapters.sql.making import checks, schema
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.domain.item import Status
from boxengine.domain.outcome import Failure
from boxengine.ports import Signal
from tests.integration.engine.receivers import FailsFirst, Receiver
from tests.integration.engine.reference import ReferenceTable
from tests.integration.engine.rig import BOX
from tests.integration.engine.rigs import MakeRig, rigs
from tests.integration.engine.watcher import PATIENCE


@pytest.fixture
def make_rig(tmp_path: Path, mysql_url: str, redis_url: str) -> Iterator[MakeRig]:
    with rigs(tmp_path, database=mysql_url, redis=redis_url) as make:
        yield make


def test_an_error_log_that_is_too_long_for_its_column_is_clipped(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.carry(Receiver(lambda _item: Failure("no \N{PILE OF POO}" * 20_000)))
    (row_id,) = rig.create("a")
    rig.deliver(1)
    assert rig.row(row_id).status == Status.FAILED
    assert 1000 < len(rig.row(row_id).error_log.encode()) <= 65_535


def test_a_commit_wakes_the_poller_through_redis_where_the_database_has_no_notifications(make_rig: MakeRig) -> None:
    rig = make_rig(wakeup="notify")
    connected = connect_servers(rig.boxes.resolved.settings)
    assert isinstance(connected.wakeups, RedisWakeups)
    try:
        connected.wakeups.wait(timedelta(0))
        rig.create("a")
        signals = connected.wakeups.wait(timedelta(seconds=PATIENCE))
        assert [signal.box_name for signal in signals] == [BOX]
        assert isinstance(signals[0], Signal)
    finally:
        connected.close()


def test_a_collation_without_case_does_not_make_two_keys_one(make_rig: MakeRig) -> None:
    rig = make_rig(tables=False, box={"max_retries": 3, "minimal_retry_interval": 0.5, "maximal_retry_interval": 0.5})
    table = ReferenceTable(rig, "full")
    rig.carry(Receiver(FailsFirst(1, guilty=lambda item: item.event_key == "a1")))
    small, large = rig.create("a1", "A1", **table.named)
    watcher = rig.deliver(3)
    assert (watcher.delivered, watcher.discarded) == ([large, small], [])


@pytest.mark.parametrize("order", [False, True, "key"])
def test_the_printed_ddl_makes_what_the_check_wants(make_rig: MakeRig, order: bool | str) -> None:
    rig = make_rig(tables=False, box={"strict_order": order})
    for statement in schema.ddl("mysql", [rig.box()]):
        rig.execute(statement)
    assert checks.check(rig.engine, [rig.box()]) == []
    assert schema.create(rig.engine, [rig.box()]) == []
    assert schema.create(rig.engine, [rig.box()]) == []


def test_a_table_without_transactions_is_an_error(make_rig: MakeRig) -> None:
    """As ``db create`` makes it where somebody has changed the server's default engine."""
    rig = make_rig(box={"sequence": True})
    rig.execute(f"ALTER TABLE {rig.box().table} ENGINE = Aria")
    rig.execute(f"ALTER TABLE {rig.box().table}_seqs ENGINE = Aria")
    found = {finding.message.partition(",")[0]: finding.severity for finding in checks.check(rig.engine, [rig.box()])}
    assert found == {
        "table order_outbox_items has the storage engine Aria": "error",
        "table order_outbox_items_seqs has the storage engine Aria": "error",
    }
    rig.execute(f"ALTER TABLE {rig.box().table} ENGINE = InnoDB")
    rig.execute(f"ALTER TABLE {rig.box().table}_seqs ENGINE = InnoDB")
    assert checks.check(rig.engine, [rig.box()]) == []


def test_a_partitioned_table_of_the_applications_own_can_be_created_and_delivered_from(make_rig: MakeRig) -> None:
    class Own(DeclarativeBase):
        pass

    class Parted(OutboxItem, Own):
        __tablename__ = "order_outbox_items"
        __table_args__ = ({"mysql_partition_by": "HASH (id)", "mysql_partitions": "4"},)

    rig = make_rig(tables=False)
    assert schema.create(rig.engine, [rig.box()], [Parted]) == [rig.box().table]
    rig.carry(Receiver())
    created = rig.create("a", "b", "a")
    assert sorted(rig.deliver(3).delivered) == created


def test_moments_that_depend_on_the_sessions_zone_are_found(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.execute(
        f"ALTER TABLE {rig.box().table} MODIFY created_at timestamp NOT NULL DEFAULT current_timestamp, "
        "MODIFY available_at timestamp(6) NULL"
    )
    (finding,) = checks.check(rig.engine, [rig.box()])
    assert finding.severity == "warning"
    assert "of the type timestamp (available_at, created_at)" in finding.message
    rig.execute(f"ALTER TABLE {rig.box().table} MODIFY created_at datetime NOT NULL, MODIFY available_at datetime(6)")
    assert checks.check(rig.engine, [rig.box()]) == []
