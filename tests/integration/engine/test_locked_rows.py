"""Rows that somebody has locked and does not let go, as in a transaction left open: their buckets wait, and no others do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from boxengine.adapters.sql.dialects import postgresql_reads
from boxengine.adapters.sql.dialects.mysql import MySqlStatements
from boxengine.adapters.sql.dialects.postgresql import PostgresStatements
from boxengine.domain.box import Retention
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from tests.conformance import sql_stores
from tests.conformance.sql_stores import SqlHarness
from tests.eventually import PATIENCE, eventually
from tests.integration.engine.receivers import BatchReceiver
from tests.integration.engine.rig import BOX
from tests.integration.engine.rigs import ON_POSTGRESQL, MakeRig
from tests.integration.log.bench import Bench

AT_ONCE = Retention(delivered=timedelta(0))


@contextmanager
def locked(engine: sa.Engine, table: str, *ids: int) -> Iterator[None]:
    """Somebody corrects these rows, one by one, and forgets to commit."""
    with engine.connect() as connection:
        for row_id in ids:
            connection.execute(sa.text(f"UPDATE {table} SET event_key = event_key WHERE id = :id"), {"id": row_id})
        yield
        connection.rollback()


# ── a worker ─────────────────────────────────────────────────────────────────────────────────────────


class Handler(BatchReceiver):
    """Writes in the engine's transaction."""

    def __call__(self, item: Item, payload: Any, *, session: Session | None = None) -> Any:
        assert session is not None
        session.execute(sa.text("SELECT 1"))
        return super().__call__(item, payload)

    call_batch = None  # type: ignore[assignment]


@pytest.mark.parametrize("receiver", [BatchReceiver, Handler])
def test_all_other_buckets_are_delivered_and_the_log_says_which_wait(
    make_rig: MakeRig, receiver: type[BatchReceiver]
) -> None:
    rig = make_rig(outbox_items={BOX: {"bucket_size": 8}}, processor={"threads_count": 2, "brpop_delay": 0.2})
    carrier = receiver()
    rig.carry(carrier)
    first = [rig.insert(bucket=bucket, event_key=str(bucket)) for bucket in range(8)]
    waiting = first[:3]
    with locked(rig.engine, rig.box(BOX).table, *waiting), rig.worker() as watcher:
        watcher.wait_for_settled(5)
        followers = [rig.insert(bucket=bucket, event_key=str(bucket)) for bucket in range(8)]
        watcher.wait_for_settled(10)
        what = f"claiming locked rows of {BOX}"
        watcher.wait_for(lambda: any(each == what for each, _ in watcher.outages))
        assert not set(carrier.ids).intersection(waiting)
        assert rig.ask(f"SELECT count(*) FROM {rig.box(BOX).table} WHERE status = 0") == [(6,)]
    with rig.worker() as watcher:
        watcher.wait_for_settled(6)
    assert carrier.by_key == {str(bucket): [first[bucket], followers[bucket]] for bucket in range(8)}


def test_once_a_row_is_let_go_it_is_delivered_and_the_log_says_so(make_rig: MakeRig) -> None:
    rig = make_rig(outbox_items={BOX: {"bucket_size": 2}}, processor={"threads_count": 2, "brpop_delay": 0.2})
    carrier = BatchReceiver()
    rig.carry(carrier)
    ids = [rig.insert(event_key="k") for _ in range(3)]
    with rig.worker() as watcher:
        with locked(rig.engine, rig.box(BOX).table, ids[1]):
            watcher.wait_for(lambda: bool(watcher.outages))
        watcher.wait_for_settled(3)
        watcher.wait_for(lambda: watcher.recovered_from == [f"claiming locked rows of {BOX}"])
    assert carrier.ids == ids


# ── a claim ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def harness(database: str) -> Iterator[SqlHarness]:
    opened = sql_stores.postgresql(database) if database.startswith("postgresql") else sql_stores.mysql(database)
    yield opened
    opened.close()


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("retention", [Retention(), AT_ONCE], ids=["kept", "deleted"])
def test_a_claim_leaves_out_the_bucket_and_reads_the_others_no_further_than_it_has_looked(
    harness: SqlHarness, database: str, retention: Retention, plain: bool
) -> None:
    box = harness.make_box(retention=retention)
    mine = harness.insert(box)
    others = [harness.insert(box, bucket=1) for _ in range(3)]
    claims = harness.store.plain_claims(box) if plain else harness.store.claims(box)
    engine = sa.create_engine(database)
    with locked(engine, box.table, mine, others[2]), claims.open({0: None, 1: None}, 4) as claim:
        assert (claim.locked, claim.refused, claim.exhausted) == (frozenset({0}), frozenset({0}), frozenset())
        assert [item.id for item in claim.items] == others[:2]
        assert claim.commit(Settlement(delivered=others[:2])) is None
    done = None if retention is AT_ONCE else Status.DELIVERED
    assert harness.statuses(box, mine, *others) == [Status.PENDING, done, done, Status.PENDING]
    with claims.open({0: None, 1: None}, 4) as claim:
        assert (claim.locked, [item.id for item in claim.items]) == (frozenset(), [mine, others[2]])
    engine.dispose()


@pytest.mark.parametrize("retention", [Retention(), AT_ONCE], ids=["kept", "deleted"])
def test_a_row_that_was_locked_for_a_moment_is_claimed_with_the_others(
    harness: SqlHarness, database: str, retention: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = harness.make_box(retention=retention)
    ids = [harness.insert(box, bucket=bucket) for bucket in (0, 1)]
    engine = sa.create_engine(database)
    with engine.connect() as connection:

        def let_go(statements: Any, *arguments: Any) -> Any:
            connection.rollback()
            return next_rows(statements, *arguments)

        kind = PostgresStatements if engine.dialect.name == "postgresql" else MySqlStatements
        next_rows = kind.next_rows
        monkeypatch.setattr(kind, "next_rows", let_go)
        connection.execute(sa.text(f"UPDATE {box.table} SET event_key = event_key WHERE id = {ids[0]}"))
        with harness.store.plain_claims(box).open({0: None, 1: None}, 4) as claim:
            assert (claim.locked, [item.id for item in claim.items]) == (frozenset(), ids)
    engine.dispose()


def test_a_claim_of_locked_buckets_alone_is_empty(harness: SqlHarness, database: str) -> None:
    box = harness.make_box()
    ids = [harness.insert(box, bucket=bucket) for bucket in (0, 1)]
    engine = sa.create_engine(database)
    with locked(engine, box.table, *ids), harness.store.plain_claims(box).open({0: None, 1: None}, 4) as claim:
        assert (claim.locked, list(claim.items), claim.exhausted) == (frozenset({0, 1}), [], frozenset())
    engine.dispose()


@ON_POSTGRESQL
def test_outcomes_wait_for_a_row_that_somebody_locks_while_a_claim_gives_its_deleted_rows_back(
    harness: SqlHarness, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All items of the batch are sent, and would be sent again if their outcomes were given up."""
    monkeypatch.setitem(postgresql_reads.PATIENCE, "lock_timeout", "1ms")
    box = harness.make_box(retention=AT_ONCE)
    ids = [harness.insert(box) for _ in range(2)]
    engine = sa.create_engine(database)
    taken, over = threading.Event(), threading.Event()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

    def somebody_waits() -> bool:
        with engine.connect() as looking:
            return bool(looking.scalar(sa.text(waiting)))

    def change() -> None:
        with locked(engine, box.table, ids[0]):
            taken.set()
            eventually(lambda: somebody_waits() or over.is_set())

    def give_back(statements: PostgresStatements, cursor: Any) -> None:
        bring_back(statements, cursor)
        assert taken.wait(PATIENCE)

    bring_back = PostgresStatements.bring_back
    monkeypatch.setattr(PostgresStatements, "bring_back", give_back)
    changing = threading.Thread(target=change)
    with harness.store.plain_claims(box).open({0: None}, 2) as claim:
        changing.start()
        eventually(somebody_waits)
        failed = FailedAttempt(ids[1], Status.PENDING, 1, "broken")
        try:
            assert claim.commit(Settlement(delivered=ids[:1], failed=[failed])) is None
        finally:
            over.set()
            changing.join()
    assert harness.statuses(box, *ids) == [None, Status.PENDING]
    engine.dispose()


@ON_POSTGRESQL
def test_a_log_waits_in_the_bucket_of_a_locked_row_that_has_stepped_aside(database: str) -> None:
    bench = Bench(database)
    aside, behind, other = bench.commit(), bench.commit(), bench.commit(bucket=1)
    with bench.store.plain_claims(bench.box).open({0: None}, 1) as claim:
        claim.commit(Settlement(failed=[FailedAttempt(aside, Status.PENDING, 1, "broken")]))
    bench.run("UPDATE order_items SET processed_at = now() - interval '1 day'")
    with locked(bench.engine, "order_items", aside):
        assert bench.take(buckets=(0, 1)) == [other]
    assert bench.take(buckets=(0, 1)) == [aside, behind]
    bench.engine.dispose()
