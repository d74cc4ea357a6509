"""Workers: which processes are alive, for people to see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from boxengine.ports import Engagement, OpenCircuit, WorkerInfo
from tests.conformance import coordination
from tests.conformance.coordination import TTL
from tests.conformance.job_workers import DATABASES, JobFleet, SomeFleet

FIRST = WorkerInfo(
    id="a1",
    host="заказ-7",
    pid=41,
    boxes=("order_outbox_item", "combined/outbox_item"),
    threads=4,
    started_at=datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC),
)
SECOND = replace(FIRST, id="b2", pid=42, started_at=FIRST.started_at + timedelta(seconds=1))


@pytest.fixture(params=[*coordination.NAMES, *DATABASES])
def rig(request: pytest.FixtureRequest) -> Iterator[SomeFleet]:
    if request.param in DATABASES:
        fleet = JobFleet(request.getfixturevalue(DATABASES[request.param]))
        yield fleet
        fleet.close()
        return
    with coordination.open_rig(request.param, request) as opened:
        yield opened


def test_nobody_lives_where_nobody_announced_itself(rig: SomeFleet) -> None:
    assert rig.workers.living() == []


def test_those_that_announced_themselves_live_the_longest_running_first(rig: SomeFleet) -> None:
    rig.workers.announce(SECOND, ttl=TTL)
    rig.workers.announce(FIRST, ttl=TTL)
    assert rig.workers.living() == [FIRST, SECOND]


def test_open_circuits_come_back_as_they_were_announced(rig: SomeFleet) -> None:
    hanging = OpenCircuit(
        box="order_outbox_item", transport="kafka", since=FIRST.started_at, next_try=None, reason="заказ"
    )
    waiting = replace(hanging, transport="http", next_try=SECOND.started_at)
    worker = replace(FIRST, circuits=(hanging, waiting))
    rig.workers.announce(worker, ttl=TTL)
    assert rig.workers.living() == [worker]


def test_version_and_what_threads_are_at_come_back_as_they_were_announced(rig: SomeFleet) -> None:
    at_work = (Engagement(box="order_outbox_item", threads=3, since=FIRST.started_at),)
    busy, idle = replace(FIRST, version="1.2.3", at_work=at_work), replace(SECOND, version="1.2.3", at_work=())
    rig.workers.announce(busy, ttl=TTL)
    rig.workers.announce(idle, ttl=TTL)
    assert rig.workers.living() == [busy, idle]


def test_its_job_boxes_come_back_as_they_were_announced(rig: SomeFleet) -> None:
    worker = replace(FIRST, boxes=(), job_boxes=("report_job", "заказ_job"))
    rig.workers.announce(worker, ttl=TTL)
    assert rig.workers.living() == [worker]


def test_its_database_comes_back_as_it_was_announced(rig: SomeFleet) -> None:
    worker = replace(FIRST, database="7301/16384")
    rig.workers.announce(worker, ttl=TTL)
    assert rig.workers.living() == [worker]


def test_one_that_falls_silent_is_gone_after_its_time(rig: SomeFleet) -> None:
    rig.workers.announce(FIRST, ttl=TTL)
    rig.pass_time(TTL + timedelta(seconds=1))
    rig.workers.announce(SECOND, ttl=TTL)
    assert rig.workers.living() == [SECOND]


def test_each_announcement_counts_from_its_own_moment(rig: SomeFleet) -> None:
    rig.workers.announce(FIRST, ttl=TTL)
    rig.pass_time(TTL * 0.7)
    rig.workers.announce(FIRST, ttl=TTL)
    rig.pass_time(TTL * 0.7)
    assert rig.workers.living() == [FIRST]


def test_one_that_was_taken_for_gone_comes_back_with_its_next_announcement(rig: SomeFleet) -> None:
    rig.workers.announce(FIRST, ttl=TTL)
    rig.pass_time(TTL * 2)
    assert rig.workers.living() == []
    rig.workers.announce(FIRST, ttl=TTL)
    assert rig.workers.living() == [FIRST]


def test_one_that_withdraws_is_gone_at_once_and_others_stay(rig: SomeFleet) -> None:
    for worker in (FIRST, SECOND):
        rig.workers.announce(worker, ttl=TTL)
    rig.workers.withdraw(FIRST.id)
    rig.workers.withdraw("never seen")
    assert rig.workers.living() == [SECOND]


def test_after_flushall_the_next_announcement_puts_it_back(rig: SomeFleet) -> None:
    rig.workers.announce(FIRST, ttl=TTL)
    rig.flush_all()
    assert rig.workers.living() == []
    rig.workers.announce(FIRST, ttl=TTL)
    assert rig.workers.living() == [FIRST]
