"""What one item, one key, one transport or one box does badly, the others do not feel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa
from redis import Redis

from boxengine import BatchAttributes
from boxengine.adapters.redis.workers import RedisWorkers
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.domain.item import Item, Status
from boxengine.engine.delivering.calls.pipeline import TransportSpec
from boxengine.errors import InvalidItem, Unavailable
from boxengine.ports import OpenCircuit, events
from tests.eventually import eventually
from tests.integration.engine.receivers import BatchReceiver, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import ON_POSTGRESQL, MakeRig
from tests.integration.engine.watcher import Watcher

pytestmark = ON_POSTGRESQL

OTHER = "other_outbox_item"

# ── a huge payload ───────────────────────────────────────────────────────────────────────────────────


def test_a_huge_payload_is_refused_with_box_item_size_and_limit_and_nothing_of_its_batch_is_written(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(max_payload_bytes=1_000, outbox_items={BOX: {}, OTHER: {"max_payload_bytes": 5_000}})
    items: list[BatchAttributes] = [{"event_key": "k", "payload": b"x" * size} for size in (1_000, 1_001)]
    with rig.engine.begin() as connection, pytest.raises(InvalidItem) as refused:
        rig.boxes.create_outbox_batch(connection, BOX, items)
    assert str(refused.value) == (
        "box order_outbox_item, item 1: payload of 1001 bytes is over the limit of 1000 (max_payload_bytes)"
    )
    assert rig.rows() == {}
    rig.create("k", payload=b"x" * 1_000)
    rig.create("k", payload=b"x" * 5_000, box=OTHER)
    assert (len(rig.rows()), len(rig.rows(OTHER))) == (1, 1)


# ── a receiver that is out of reach ──────────────────────────────────────────────────────────────────


class Circuits(Watcher):
    """Keeps which circuits opened and closed."""

    def __init__(self) -> None:
        super().__init__()
        self.circuits: list[tuple[str, str, bool]] = []

    def see(self, event: events.Event) -> None:
        super().see(event)
        if isinstance(event, events.CircuitChanged):
            self.circuits.append((event.box.name, event.transport, event.circuit is not None))
            super().see(events.OutageBegan(f"circuit of {event.box.name}", "opened" if event.circuit else "closed"))


def announced(redis_url: str) -> list[OpenCircuit]:
    """What the workers say about their circuits."""
    with Redis.from_url(redis_url) as client:
        return [circuit for worker in RedisWorkers(client).living() for circuit in worker.circuits]


def test_a_broker_that_is_down_for_one_box_costs_no_attempt_and_the_other_box_goes_on(
    make_rig: MakeRig, redis_url: str
) -> None:
    quick = {"circuit_breaker": {"failures": 1, "pause": 0.1, "longest_pause": 0.2}}
    rig = make_rig(outbox_items={BOX: quick, OTHER: quick})
    there = Event()

    def answer(_item: Item) -> None:
        if not there.is_set():
            raise Unavailable("no broker answers")

    broken, working = BatchReceiver(answer), BatchReceiver()
    rig.carry(kafka=broken)
    rig.carry(kafka=working, box=OTHER)
    rig.create(*range(100))
    with rig.worker(Circuits()) as watcher:
        assert isinstance(watcher, Circuits)
        watcher.wait_for(lambda: bool(watcher.circuits))
        rig.create(*range(100), box=OTHER)
        watcher.wait_for_settled(100)
        assert rig.statuses(OTHER) == [2] * 100
        assert {(row.status, row.errors_count) for row in rig.rows().values()} == {(0, 0)}
        (said,) = eventually(lambda: announced(redis_url))
        assert (said.box, said.transport, said.reason) == (BOX, "kafka", "no broker answers")
        there.set()
        watcher.wait_for_settled(200)
    assert rig.statuses() == [2] * 100
    assert watcher.circuits == [(BOX, "kafka", True), (BOX, "kafka", False)]


# ── a transport that hangs ───────────────────────────────────────────────────────────────────────────


def test_a_transport_that_hangs_fails_its_items_and_neither_its_box_nor_another_waits_for_it(make_rig: MakeRig) -> None:
    box: dict[str, Any] = {"max_retries": 1, "minimal_retry_interval": 0.1, "circuit_breaker": {"pause": 0.1}}
    rig = make_rig(outbox_items={BOX: box, OTHER: {}}, processor={"threads_count": 2, "brpop_delay": 0.2})
    release = Event()

    def hang(_item: Item) -> None:
        release.wait()

    slow, quick, other = BatchReceiver(hang), Receiver(), Receiver()
    limited = TransportSpec(name="slow", build=lambda: slow, event_name="slow", timeout=timedelta(seconds=0.2))
    rig.carry(limited, TransportSpec(name="quick", build=lambda: quick, event_name="quick"))
    rig.carry(other, box=OTHER)
    (stuck,) = rig.create(1, event_name="slow")
    try:
        with rig.worker() as watcher:
            watcher.wait_for_settled(1)
            assert (rig.row(stuck).status, rig.row(stuck).errors_count) == (Status.PENDING, 1)
            assert "no answer within 0.2 s" in rig.row(stuck).error_log
            # Of the same bucket too: the thread has let go of it. Only followers of its key wait.
            behind = rig.create(5, 2, 3, event_name="quick")
            rig.create(*range(20), box=OTHER)
            watcher.wait_for_settled(24)
            assert [rig.row(each).status for each in behind] == [Status.DELIVERED] * 3
            assert set(rig.statuses(OTHER)) == {Status.DELIVERED}
            assert len(slow.batches) == 1
            release.set()
            watcher.wait_for_settled(25)
        assert rig.row(stuck).status == Status.DELIVERED
        assert slow.batches == [[stuck]] * 2
    finally:
        release.set()


# ── poison items and hot keys ────────────────────────────────────────────────────────────────────────


def test_of_a_batch_of_500_that_raises_only_the_poison_item_has_failed(make_rig: MakeRig) -> None:
    rig = make_rig()
    ids = rig.create(*range(500))
    poison = ids[317]

    def answer(item: Item) -> None:
        if item.id == poison:
            raise ValueError("cannot be written")

    receiver = BatchReceiver(answer)
    rig.carry(receiver)
    watcher = rig.deliver(500)
    assert sorted(watcher.delivered) == [each for each in ids if each != poison]
    assert [attempt.id for attempt in watcher.failures] == [poison]
    assert (rig.row(poison).status, rig.row(poison).errors_count) == (Status.FAILED, 1)
    assert "ValueError: cannot be written" in rig.row(poison).error_log


def test_an_error_that_is_its_own_cause_fails_its_item_alone(make_rig: MakeRig) -> None:
    def answer(item: Item) -> None:
        if item.event_key == "poison":
            try:
                int("no number")
            except ValueError as error:
                raise error from error

    rig = make_rig(box={"bucket_size": 1})
    rig.carry(Receiver(answer))
    _, poison, _ = rig.create("before", "poison", "after")
    rig.deliver(3)
    assert rig.statuses() == [Status.DELIVERED, Status.FAILED, Status.DELIVERED]
    assert " Receiver: ValueError: invalid literal for int()" in rig.row(poison).error_log


class UsesUp:
    """Takes the items out of the list that it is given."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def call_batch(self, items: list[Item]) -> list[None]:
        results = list[None]()
        while items:
            self.ids.append(items.pop(0).id)
            results.append(None)
        return results


@pytest.mark.parametrize("storage", ["table", "log"])
def test_a_transport_may_use_up_the_list_that_it_is_given(make_rig: MakeRig, storage: str) -> None:
    rig, transport = make_rig(box={"bucket_size": 1, "storage": storage}), UsesUp()
    rig.carry(transport)
    ids = rig.create(*range(5))
    rig.deliver(5)
    assert transport.ids == ids


def test_a_batch_middleware_may_use_up_the_list_that_it_is_shown(make_rig: MakeRig) -> None:
    def careless(batch: Any, call_next: Any) -> None:
        batch.items.clear()
        call_next()

    rig = make_rig(box={"bucket_size": 1})
    rig.surround(batch_process=[careless])
    rig.carry(receiver := Receiver())
    ids = rig.create(*range(5))
    rig.deliver(5)
    assert receiver.ids == ids


def test_items_of_other_keys_need_not_wait_until_a_hot_key_is_through(make_rig: MakeRig) -> None:
    rig = make_rig(bucket_size=16)
    hot = rig.create(*[0] * 25_000)
    others = rig.create(*range(1, 101))
    rig.carry(BatchReceiver())
    watcher = rig.deliver(25_100)
    place = {each: number for number, each in enumerate(watcher.delivered)}
    # Those of its bucket stand behind it; of the other 15 buckets, none does.
    beside = [each for number, each in enumerate(others, 1) if number % 16]
    assert max(place[each] for each in beside) < place[hot[-1]]
    keyed = set(hot)
    assert [each for each in watcher.delivered if each in keyed] == hot


# ── parked keys ──────────────────────────────────────────────────────────────────────────────────────

PARKED = 10_000


def park(rig: Rig) -> None:
    """So many keys, each with a failed item and one behind it."""
    rig.execute(
        f"INSERT INTO {rig.box().table} "
        "(uuid, event_key, bucket, status, payload, errors_count, processed_at, created_at, updated_at) "
        "SELECT gen_random_uuid(), 'parked-' || key, key % 4, status, '{}', 1 - status / 2, "
        "CASE status WHEN 1 THEN now() END, now(), now() "
        f"FROM generate_series(1, {PARKED}) AS key, (VALUES (1), (0)) AS each (status) ORDER BY status DESC, key"
    )
    with rig.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text(f"ANALYZE {rig.box().table}"))


@contextmanager
def statements() -> Iterator[list[str]]:
    """Those of all engines meanwhile."""
    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        found.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def looks(rig: Rig) -> tuple[int, int]:
    """How many statements a check and a poll of the whole box take, and how many rows they find."""
    connected = connect_servers(rig.boxes.resolved.settings)
    try:
        with statements() as made:
            due = connected.store.outlook(rig.box(), rig.box().buckets).due
            rows = connected.store.poll(rig.box(), rig.box().buckets, 300)
        return len(made), len(due) + len(rows)
    finally:
        connected.close()


def test_ten_thousand_parked_keys_stay_parked_cost_a_poll_nothing_and_hold_nobody_up(make_rig: MakeRig) -> None:
    rig = make_rig(box={"strict_order": "key", "max_retries": 0})
    before = looks(rig)
    park(rig)
    assert looks(rig) == before == (before[0], 0)
    ids = rig.create(*range(200))
    receiver = BatchReceiver()
    rig.carry(receiver)
    watcher = rig.deliver(200)
    assert sorted(receiver.ids) == sorted(watcher.delivered) == ids
    assert sum(found for _box, found, _pushed in watcher.polls) <= 200 * len(watcher.polls)
    counts = {
        row.status: row.number
        for row in rig.ask(f"SELECT status, count(*) AS number FROM {rig.box().table} GROUP BY 1")
    }
    assert counts == {Status.PENDING: PARKED, Status.FAILED: PARKED, Status.DELIVERED: 200}
