"""What servers, tables and transports do to a worker, and that it loses nothing by it.

The same faults against ``boxengine start`` as a process, ``kill -9`` among them: ``tests/cli/test_start.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa
from redis import Redis
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from boxengine.adapters.sql.connecting.errors import sentence
from boxengine.adapters.sql.sessions.handlers_session import HandlersSession
from boxengine.domain.item import Item, Status
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from boxengine.engine.delivering.holds.sizing import LARGE, ROWS
from boxengine.errors import TransactionLost
from tests.eventually import eventually
from tests.integration.engine.receivers import BatchReceiver, Gate, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import MakeRig
from tests.integration.engine.watcher import PATIENCE

BOOK = sa.text("INSERT INTO bookings (item_id) VALUES (:id)")
TWO_BOXES: dict[str, Any] = {"outbox_items": {BOX: {}, "other_outbox_item": {}}}
OTHER = "other_outbox_item"


def at(count: int, act: Callable[[], object]) -> Callable[[Item], None]:
    """An answer that does something, once, when the item of that number comes by."""
    left = iter(range(count))

    def answer(_item: Item) -> None:
        if next(left, None) == count - 1:
            act()

    return answer


def first_arrivals_in_order(receiver: Receiver) -> bool:
    return all([*dict.fromkeys(arrived)] == sorted(set(arrived)) for arrived in receiver.by_key.values())


def calm(outages: list[tuple[str, str]]) -> None:
    """Each thing that failed was told of a handful of times at most, not at every try."""
    assert max(Counter(what for what, _ in outages).values()) <= 5, outages


# ── Redis ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [Receiver, BatchReceiver], ids=["item", "batch"])
def test_flushall_in_mid_run_costs_neither_an_item_nor_the_order(
    make_rig: MakeRig, redis_url: str, kind: type[Receiver]
) -> None:
    rig = make_rig(bucket_size=16)

    def flush() -> None:
        with Redis.from_url(redis_url) as client:
            client.flushall()

    receivers = [kind(at(300 * (number + 1), flush)) for number in range(2)]
    ids: list[int] = []
    for _ in range(20):
        ids += rig.create(*range(100))
    rig.carry(receivers[0])
    with rig.worker() as first:
        rig.carry(receivers[1])
        with rig.worker() as second:
            eventually(lambda: set(rig.statuses()) == {Status.DELIVERED})
    delivered = first.delivered + second.delivered
    assert sorted(delivered) == ids
    assert all(arrived == sorted(arrived) for each in receivers for arrived in each.by_key.values())


@pytest.fixture
def on_own_redis(tmp_path: Path, postgres_url: str, own_redis: EmbeddedValkey) -> Iterator[Rig]:
    with Rig(tmp_path, database=postgres_url, redis=own_redis.url(), bucket_size=16) as rig:
        rig.create_tables()
        yield rig


def test_redis_killed_in_mid_run_is_waited_out_and_nothing_is_lost(
    on_own_redis: Rig, own_redis: EmbeddedValkey
) -> None:
    rig, receiver = on_own_redis, BatchReceiver()
    rig.carry(receiver)
    with rig.worker() as watcher:
        ids = rig.create(*range(50))
        watcher.wait_for_settled(50)
        own_redis.kill()
        ids += rig.create(*range(50))
        watcher.wait_for(lambda: len(watcher.outages) > 0)
        own_redis.start()
        watcher.wait_for_settled(100)
        watcher.wait_for(lambda: len(watcher.recovered_from) > 0)
    assert sorted(receiver.ids) == ids
    calm(watcher.outages)


def test_redis_down_at_start_is_waited_for(on_own_redis: Rig, own_redis: EmbeddedValkey) -> None:
    rig = on_own_redis
    rig.carry(Receiver())
    rig.create(1, 2, 3)
    own_redis.stop()
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.outages) >= 2)
        own_redis.start()
        watcher.wait_for_settled(3)
    calm(watcher.outages)
    assert set(rig.statuses()) == {Status.DELIVERED}


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def on_own_postgres(tmp_path: Path, own_postgres: EmbeddedPostgres, redis_url: str) -> Iterator[Rig]:
    with Rig(tmp_path, database=own_postgres.url(), redis=redis_url, bucket_size=16, wakeup="notify") as rig:
        rig.create_tables()
        yield rig


def test_postgresql_down_at_start_is_waited_for(on_own_postgres: Rig, own_postgres: EmbeddedPostgres) -> None:
    rig = on_own_postgres
    rig.carry(Receiver())
    rig.create(1, 2, 3)
    rig.engine.dispose()
    own_postgres.stop()
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.outages) > 0)
        own_postgres.start()
        watcher.wait_for_settled(3)
    calm(watcher.outages)
    assert set(rig.statuses()) == {Status.DELIVERED}


@pytest.mark.parametrize("how", ["crash", "kill"])
def test_postgresql_lost_in_mid_run_repeats_at_most_the_batches_in_work(
    on_own_postgres: Rig, own_postgres: EmbeddedPostgres, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig, gone = on_own_postgres, Event()
    ids: list[int] = []
    for _ in range(4):
        ids += rig.create(*range(1000))
    rig.engine.dispose()

    def lose_it() -> None:
        getattr(own_postgres, how)()
        gone.set()

    receiver = BatchReceiver(at(1000, lose_it))
    rig.carry(receiver)
    with rig.worker(processor_threads=2) as watcher:
        assert gone.wait(PATIENCE)
        watcher.wait_for(lambda: len(watcher.outages) > 0)
        own_postgres.start()
        eventually(lambda: set(rig.statuses()) == {Status.DELIVERED})
    assert sorted(set(receiver.ids)) == ids
    assert len(receiver.ids) - len(ids) <= 2 * LARGE * ROWS
    assert first_arrivals_in_order(receiver)
    calm(watcher.outages)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


# ── either database ──────────────────────────────────────────────────────────────────────────────────


def test_connections_that_the_server_cuts_are_replaced(make_rig: MakeRig) -> None:
    rig = make_rig(wakeup="notify")
    receiver = Receiver(at(20, rig.cut_connections))
    rig.carry(receiver)
    ids = rig.create(*range(60))
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.outages) > 0)
        # Not what the worker was told: a commit may be done whose answer is lost with the connection.
        eventually(lambda: set(rig.statuses()) == {Status.DELIVERED})
    assert set(receiver.ids) == set(ids)


class Booking:
    """Takes its connection away once, in the middle of a batch."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.calls: list[int] = []

    def __call__(self, item: Item, payload: Any, *, session: Session) -> None:
        self.calls.append(item.id)
        if len(self.calls) == 3:
            self._rig.cut_connections(of_claims=True)
        session.execute(BOOK, {"id": item.id})


class BatchBooking(Booking):
    def call_batch(self, items: Sequence[Item], *, session: Session) -> list[None]:
        for item in items:
            self(item, item.payload, session=session)
        return [None] * len(items)


class Careless(Booking):
    """Catches every error."""

    def __call__(self, item: Item, payload: Any, *, session: Session) -> None:
        with suppress(SQLAlchemyError):
            super().__call__(item, payload, session=session)


@pytest.mark.parametrize("kind", [Booking, BatchBooking, Careless])
def test_a_handler_whose_connection_is_lost_fails_no_item_and_the_batch_ends_there(
    make_rig: MakeRig, kind: type[Booking]
) -> None:
    rig = make_rig(box={"bucket_size": 1})
    rig.execute("CREATE TABLE bookings (item_id bigint PRIMARY KEY)")
    rig.carry(handler := kind(rig))
    ids = rig.create(*range(6))
    with rig.worker() as watcher:
        watcher.wait_for_settled(6)
    assert handler.calls == [*ids[:3], *ids]
    assert [row.item_id for row in rig.ask("SELECT item_id FROM bookings ORDER BY item_id")] == ids
    assert rig.tracked == []
    assert "connection" in dict(watcher.outages)[f"box {BOX}"]


def commits_in_sql(session: Session) -> None:
    session.execute(sa.text("COMMIT"))


def commits_the_connection(session: Session) -> None:
    session.connection().commit()


def commits_in_the_driver(session: Session) -> None:
    session.connection().connection.commit()


def closes_the_connection(session: Session) -> None:
    session.connection().close()


@pytest.mark.parametrize("end", [commits_in_sql, commits_the_connection, commits_in_the_driver, closes_the_connection])
def test_a_handler_that_ends_the_transaction_of_its_batch_is_told_from_the_others(
    make_rig: MakeRig, end: Callable[[Session], None]
) -> None:
    rig = make_rig()
    rig.execute("CREATE TABLE bookings (item_id bigint PRIMARY KEY)")

    def handle(item_id: int, then: Callable[[Session], object]) -> None:
        with session.savepoint():
            session.get().execute(BOOK, {"id": item_id})
            then(session.get())

    with rig.engine.connect() as connection, connection.begin():
        session = HandlersSession(connection, sentence=sentence)
        handle(1, id)
        with pytest.raises(TransactionLost, match="a handler has ended the transaction"):
            handle(2, end)


def test_an_item_whose_handler_ends_the_transaction_of_its_batch_does_not_stop_the_others(make_rig: MakeRig) -> None:
    rig = make_rig(box={"bucket_size": 1})
    rig.execute("CREATE TABLE bookings (item_id bigint)")

    def book(item: Item, payload: Any, *, session: Session) -> None:
        session.execute(BOOK, {"id": item.id})
        if item.event_key == "1":
            commits_in_sql(session)

    rig.carry(book)
    before, guilty, after = rig.create(0, 1, 2)
    with rig.worker() as watcher:
        eventually(lambda: [rig.row(each).status for each in (before, after)] == [Status.DELIVERED] * 2)
    assert rig.row(guilty).status == Status.PENDING
    assert "a handler has ended the transaction" in dict(watcher.outages)[f"box {BOX}"]


# ── tables and transports ────────────────────────────────────────────────────────────────────────────


def test_a_box_without_its_table_is_told_of_and_the_other_goes_on(make_rig: MakeRig) -> None:
    rig = make_rig(**TWO_BOXES)
    rig.carry(Receiver())
    rig.carry(Receiver(), box=OTHER)
    rig.execute("DROP TABLE other_outbox_items")
    with rig.worker() as watcher:
        rig.create(*range(20))
        watcher.wait_for_settled(20)
        watcher.wait_for(lambda: len(watcher.outages) > 0)
        assert "there is no table 'other_outbox_items'" in watcher.outages[0][1]
        rig.create_tables()
        rig.create(1, box=OTHER)
        watcher.wait_for_settled(21)
    calm(watcher.outages)


def test_a_transport_that_raises_for_everything_fails_its_own_items_only(make_rig: MakeRig) -> None:
    rig = make_rig(**TWO_BOXES)

    def explode(_item: Item) -> None:
        raise ConnectionError("the broker is down")

    rig.carry(BatchReceiver(explode))
    rig.carry(BatchReceiver(), box=OTHER)
    rig.create(*range(200))
    rig.create(*range(200), box=OTHER)
    rig.deliver(400)
    assert set(rig.statuses()) == {Status.FAILED}
    assert set(rig.statuses(OTHER)) == {Status.DELIVERED}
    assert len(rig.tracked) == 200
    assert all("ConnectionError: the broker is down" in row.error_log for row in rig.rows().values())


def test_a_hung_transport_of_one_box_does_not_stop_the_others(make_rig: MakeRig) -> None:
    rig, gate = make_rig(**TWO_BOXES), Gate()
    rig.carry(gate)
    rig.carry(Receiver(), box=OTHER)
    hung = rig.create(*range(4))
    with rig.worker(processor_threads=4) as watcher:
        assert gate.entered.wait(30)
        rig.create(*range(40), box=OTHER)
        watcher.wait_for(lambda: watcher.boxes.count(OTHER) > 0 and len(watcher.delivered) >= 40)
        assert set(rig.statuses()) == {Status.PENDING}
        gate.open()
        watcher.wait_for_settled(44)
    assert sorted(gate.ids) == hung


def test_a_transport_that_answers_with_too_few_results_fails_the_batch_and_says_so(make_rig: MakeRig) -> None:
    rig = make_rig()

    class Short:
        def call_batch(self, items: list[Item]) -> list[None]:
            return [None]

    rig.carry(Short())
    rig.create(0, 4, 8)
    rig.deliver(3)
    assert set(rig.statuses()) == {Status.FAILED}
    assert "must return as many results" in rig.row(1).error_log


# ── several workers ──────────────────────────────────────────────────────────────────────────────────


def test_two_workers_share_the_work_and_deliver_nothing_twice(make_rig: MakeRig) -> None:
    rig = make_rig(bucket_size=32)
    receivers = [Receiver(), Receiver()]
    rig.carry(receivers[0])
    with rig.worker() as first:
        rig.carry(receivers[1])
        with rig.worker() as second:
            ids: list[int] = []
            for _ in range(40):
                ids += rig.create(*range(64))
            eventually(lambda: set(rig.statuses()) == {Status.DELIVERED})
    assert sorted(first.delivered + second.delivered) == ids
    assert sorted(receivers[0].ids + receivers[1].ids) == ids
    assert first.delivered
    assert second.delivered


def test_a_worker_that_stops_leaves_its_buckets_to_others_at_once(make_rig: MakeRig, redis_url: str) -> None:
    rig = make_rig(bucket_size=16)
    rig.carry(Receiver())
    rig.create(*range(200))
    rig.deliver(200)
    with Redis.from_url(redis_url) as client:
        assert client.keys("*:lock") == []
