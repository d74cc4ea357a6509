"""Bounds on PostgreSQL: looks and claims begin behind what is done, and nothing is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.dialects.base import MOST_IN_PAUSE, MOST_PASSED
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.adapters.sql.waking.listen import PostgresWakeups
from boxengine.domain.box import Backoff, Retention, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from boxengine.ports import ItemFilter, Signal
from tests.integration.bounds_scene import ALWAYS, NEVER_FROM_START, TABLE, BoundsScene, make_box


class Scene(BoundsScene):
    @property
    def dsn(self) -> str:
        return self.address.set(drivername="postgresql").render_as_string(hide_password=False)

    def connection(self, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self.dsn, autocommit=autocommit)
        self._opened.append(connection)
        return connection

    def be_due(self, *ids: int) -> None:
        """Rows that wait for their time need not wait any longer; the first is due for longest."""
        for place, each in enumerate(ids):
            ago = f"interval '{len(ids) - place} s'"
            self.direct.execute(f"UPDATE {TABLE} SET available_at = now() - {ago} WHERE id = {each}".encode())

    def insert(self, on: psycopg.Connection[Any] | None = None, *, bucket: int = 0, **columns: Any) -> int:
        values = {"event_key": "k", "bucket": bucket, "payload": b"x", **columns}
        names, places = ", ".join(values), ", ".join(["%s"] * len(values))
        statement = f"INSERT INTO {TABLE} (uuid, {names}) VALUES (gen_random_uuid(), {places}) RETURNING id"
        row = (on or self.direct).execute(statement.encode(), list(values.values())).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def scene(postgres_url: str) -> Iterator[Scene]:
    with closing(Scene(postgres_url, make_box())) as scene:
        yield scene


@pytest.fixture(params=[StrictOrder.KEY, StrictOrder.BUCKET])
def strict_scene(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with closing(Scene(postgres_url, make_box(request.param))) as scene:
        yield scene


# ── who is waited for ────────────────────────────────────────────────────────────────────────────────


def test_what_is_delivered_lies_behind_the_bounds_of_all_buckets(scene: Scene) -> None:
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]
    new = scene.insert()
    assert scene.store.outlook(scene.box, [0, 1]).due == [0]
    assert [row.id for row in scene.store.poll(scene.box, [0, 1], 10)] == [new]
    assert scene.store.pending([scene.box]) == {scene.box.name}
    assert scene.deliver() == [new]
    assert scene.store.pending([scene.box]) == frozenset()


@pytest.mark.parametrize(
    "statements",
    [
        ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT 1"],
        ["CREATE TABLE elsewhere (id int)", "INSERT INTO elsewhere VALUES (1)"],
    ],
    ids=["one that reads", "one that writes elsewhere"],
)
def test_a_long_transaction_does_not_hold_the_bounds_back(scene: Scene, statements: list[str]) -> None:
    old = scene.connection()
    for statement in statements:
        old.execute(statement.encode())
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]


@pytest.mark.parametrize("savepoint", [False, True], ids=["plain", "its first id in a savepoint undone"])
def test_a_lower_id_that_commits_late_is_delivered(scene: Scene, savepoint: bool) -> None:
    writer = scene.connection()
    if savepoint:
        writer.execute("SAVEPOINT s")
        scene.insert(writer)
        writer.execute("ROLLBACK TO s")
    late = scene.insert(writer)
    scene.deliver_and_advance()
    assert scene.bounds() == [0, 0]
    writer.commit()
    scene.advance()
    assert scene.deliver() == [late]
    scene.advance()
    assert scene.bounds()[0] > late


def test_a_writer_that_has_an_id_and_no_row_yet_is_waited_for(scene: Scene) -> None:
    scene.deliver_and_advance()
    known = scene.bounds()
    writer = scene.connection()
    drawn = draw_without_transaction_id(writer)
    scene.deliver_and_advance()
    assert scene.bounds() == known
    assert scene.insert(writer, id=drawn) == drawn
    writer.commit()
    scene.advance()
    assert scene.deliver() == [drawn]


def draw_without_transaction_id(writer: psycopg.Connection[Any]) -> int:
    """One in 32 ids, and the first after a checkpoint, is written to the WAL, and its transaction gets an id of its own."""
    for _ in range(10):
        drawn = writer.execute(f"SELECT nextval(pg_get_serial_sequence('{TABLE}', 'id'))").fetchone()
        if drawn is not None and writer.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() == (None,):
            return int(drawn[0])
        writer.rollback()
    raise AssertionError("every transaction that drew an id got one of its own")


def test_a_writer_that_begins_later_is_not_waited_for(scene: Scene) -> None:
    scene.insert()
    scene.deliver()
    scene.store.advance(scene.box)  # times the walk
    scene.store.advance(scene.box)  # proposes
    writer = scene.connection()
    new = scene.insert(writer)
    scene.store.advance(scene.box)
    assert scene.bounds() == [new - 1, new - 1]
    writer.commit()
    assert scene.deliver() == [new]


# ── what no bound passes ─────────────────────────────────────────────────────────────────────────────


def test_under_strict_order_a_row_that_waits_for_its_time_stays_before_the_bound_of_its_bucket_alone(
    strict_scene: Scene,
) -> None:
    scene = strict_scene
    waiting = scene.insert(bucket=1, available_at="2100-01-01")
    last = scene.insert(event_key="other")
    assert scene.deliver() == [last]
    scene.advance()
    assert scene.bounds() == [last, waiting - 1]
    scene.be_due(waiting)
    assert scene.deliver() == [waiting]


def test_where_no_index_finds_rows_that_are_due_no_bound_passes_one_that_waits(scene: Scene) -> None:
    scene.direct.execute(f"DROP INDEX ix_{TABLE}_delayed".encode())
    waiting = scene.insert(bucket=1, available_at="2100-01-01")
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, waiting - 1]
    scene.be_due(waiting)
    assert scene.deliver() == [waiting]


@pytest.mark.parametrize("status", [Status.FAILED, Status.DISCARDED])
def test_under_strict_order_no_bound_passes_a_row_that_somebody_may_retry(strict_scene: Scene, status: Status) -> None:
    scene = strict_scene
    ended = scene.insert(status=int(status))
    scene.deliver_and_advance()
    assert scene.bounds() == [ended - 1, ended - 1]
    follower = scene.insert()
    scene.direct.execute(f"UPDATE {TABLE} SET status = 0 WHERE id = {ended}".encode())
    assert scene.deliver() == [ended, follower]


def test_a_row_that_backs_off_stays_before_the_bound(scene: Scene) -> None:
    failing = scene.insert()
    with scene.store.plain_claims(scene.box).open({0: None}, 1) as claim:
        claim.commit(Settlement(failed=[FailedAttempt(failing, Status.PENDING, 1, "timed out")]))
    last = scene.deliver_and_advance()
    assert scene.bounds() == [failing - 1, last]
    scene.direct.execute(f"UPDATE {TABLE} SET processed_at = now() - interval '1 day' WHERE id = {failing}".encode())
    assert scene.deliver() == [failing]


# ── rows that were delayed ───────────────────────────────────────────────────────────────────────────


def test_a_row_that_waits_for_its_time_is_passed_and_found_by_everybody_once_it_is_due(scene: Scene) -> None:
    waiting = scene.insert(bucket=1, available_at="2100-01-01")
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]
    assert scene.store.outlook(scene.box, [0, 1]).due == []
    assert scene.store.poll(scene.box, [0, 1], 10) == []
    assert scene.deliver() == []
    assert scene.store.oldest_pending(scene.box) is None
    assert scene.store.pending([scene.box]) == {scene.box.name}
    scene.be_due(waiting)
    new = scene.insert(bucket=1)
    assert scene.store.outlook(scene.box, [0, 1]).due == [1]
    assert scene.store.outlook(scene.box, [0]).due == []
    assert [row.id for row in scene.store.poll(scene.box, [0, 1], 10)] == [waiting, new]
    assert [row.id for row in scene.store.poll_regular(scene.box, [0, 1], 10)] == [waiting, new]
    assert [row.id for row in scene.store.poll(scene.box, [0], 10)] == []
    oldest = scene.store.oldest_pending(scene.box)
    assert oldest is not None
    assert oldest < scene.store.now()
    assert scene.deliver() == [waiting, new]
    assert scene.deliver() == []
    assert scene.store.pending([scene.box]) == frozenset()


def test_a_worker_that_claims_nothing_finds_bounds_once_a_look_was_slow(scene: Scene) -> None:
    waiting = scene.insert(available_at="2100-01-01")
    scene.advance()
    assert scene.bounds() == [0, 0]
    scene.store.outlook(scene.box, [0, 1])
    scene.advance()
    assert scene.bounds() == [waiting, waiting]


def test_a_row_that_was_delayed_and_fails_is_tried_again_behind_the_bound(scene: Scene) -> None:
    waiting = scene.insert(bucket=1, available_at="2100-01-01")
    last = scene.deliver_and_advance()
    scene.be_due(waiting)
    with scene.store.claims(scene.box).open({0: None, 1: None}, 10) as claim:
        assert [item.id for item in claim.items] == [waiting]
        claim.commit(Settlement(failed=[FailedAttempt(waiting, Status.PENDING, 1, "timed out")]))
    assert scene.deliver() == []
    assert scene.bounds() == [last, last]
    scene.direct.execute(f"UPDATE {TABLE} SET processed_at = now() - interval '1 day' WHERE id = {waiting}".encode())
    assert scene.store.poll_regular(scene.box, [0, 1], 10) == []
    assert scene.deliver() == [waiting]


def test_a_claim_that_reads_on_leaves_rows_that_were_delayed_to_one_from_the_start(scene: Scene) -> None:
    waiting = scene.insert(bucket=1, available_at="2100-01-01")
    last = scene.deliver_and_advance()
    scene.be_due(waiting)
    new = scene.insert(bucket=1)
    with scene.store.plain_claims(scene.box).open({0: None, 1: last}, 10) as claim:
        assert [item.id for item in claim.items] == [new]
        claim.commit(Settlement(delivered=[new]))
    assert scene.deliver() == [waiting]


def test_a_claim_that_is_full_of_rows_that_were_delayed_says_that_there_are_more(scene: Scene) -> None:
    waiting = [scene.insert(bucket=n % 2, available_at="2100-01-01") for n in range(5)]
    scene.deliver_and_advance()
    scene.be_due(*waiting)
    new = scene.insert()
    found = []
    while True:
        with scene.store.plain_claims(scene.box).open({0: None, 1: None}, 2) as claim:
            ids = [item.id for item in claim.items]
            found.append((ids, set(claim.exhausted)))
            if not ids:
                break
            claim.commit(Settlement(delivered=ids))
    # With only one left to take, no more can be behind it.
    assert [ids for ids, _ in found] == [waiting[:2], waiting[2:4], [waiting[4], new], []]
    assert [exhausted for _, exhausted in found] == [set(), set(), {1}, {0, 1}]


def test_a_row_that_somebody_else_has_locked_keeps_back_only_its_own_bucket_behind_the_bound(scene: Scene) -> None:
    waiting = [scene.insert(bucket=bucket, available_at="2100-01-01") for bucket in (0, 1)]
    scene.deliver_and_advance()
    scene.be_due(*waiting)
    other = scene.connection()
    other.execute(f"SELECT FROM {TABLE} WHERE id = {waiting[0]} FOR UPDATE".encode())
    with scene.store.plain_claims(scene.box).open({0: None, 1: None}, 10) as claim:
        assert [item.id for item in claim.items] == [waiting[1]]
        assert claim.locked == {0}
    other.rollback()
    assert scene.deliver() == waiting


def test_where_delivered_rows_are_deleted_those_that_were_delayed_are_too(postgres_url: str) -> None:
    box = replace(make_box(), retention=Retention(delivered=timedelta(0)))
    with closing(Scene(postgres_url, box)) as scene:
        waiting = [scene.insert(bucket=n % 2, available_at="2100-01-01") for n in range(3)]
        last = scene.deliver_and_advance()
        assert scene.bounds() == [last, last]
        scene.be_due(*waiting)
        assert scene.deliver() == waiting
        assert scene.direct.execute(f"SELECT FROM {TABLE}".encode()).fetchall() == []


@pytest.mark.parametrize(
    ("count", "errors", "used"), [(MOST_PASSED, 0, False), (MOST_PASSED, 1, True), (MOST_IN_PAUSE, 1, False)]
)
def test_while_very_many_rows_that_were_delayed_are_due_or_in_their_pause_no_bounds_are_used(
    postgres_url: str, count: int, errors: int, used: bool
) -> None:
    with closing(Scene(postgres_url, replace(make_box(), backoff=Backoff(jitter=0.5)))) as scene:
        last = scene.deliver_and_advance()
        scene.direct.execute(
            f"INSERT INTO {TABLE} (uuid, event_key, bucket, payload, available_at, errors_count, processed_at) "
            f"SELECT gen_random_uuid(), 'k', mod(n, 2), 'x', now(), {errors}, now() "
            f"FROM generate_series(1, {count}) AS n".encode()
        )
        scene.store._bounds.of(scene.box).claimed(1)
        scene.advance()
        assert scene.bounds() == ([last + count] * 2 if used else [0, 0])


def test_a_table_with_a_percent_sign_has_bounds(scene: Scene) -> None:
    scene.direct.execute(f'ALTER TABLE {TABLE} RENAME TO "order%items"'.encode())
    scene.direct.execute(f'ALTER SEQUENCE {TABLE}_id_seq RENAME TO "order%seq"'.encode())
    scene.direct.execute(f'CREATE VIEW {TABLE} AS SELECT * FROM "order%items"'.encode())
    scene.box = replace(scene.box, table="order%items")
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]


def test_bounds_come_back_once_few_rows_are_due(scene: Scene) -> None:
    waiting = scene.insert(available_at="2100-01-01")
    scene.deliver_and_advance()
    assert min(scene.bounds()) > waiting
    scene.direct.execute(
        f"INSERT INTO {TABLE} (uuid, event_key, bucket, payload, available_at) "
        f"SELECT gen_random_uuid(), 'k', mod(n, 2), 'x', now() FROM generate_series(1, {MOST_PASSED}) AS n".encode()
    )
    scene.store._bounds.of(scene.box).claimed(1)
    scene.advance()
    assert scene.bounds() == [0, 0]
    while scene.deliver():
        scene.advance()
    scene.advance()
    assert min(scene.bounds()) > waiting
    scene.be_due(waiting)
    assert scene.deliver() == [waiting]


# ── what comes back ──────────────────────────────────────────────────────────────────────────────────


def test_an_item_that_people_retry_is_claimed_once_the_worker_hears_of_it(scene: Scene) -> None:
    failed = scene.insert(status=int(Status.FAILED))
    assert min(scene.deliver_and_advance(), *scene.bounds()) > failed
    with closing(PostgresWakeups(scene.store.engine)) as wakeups:
        wakeups.wait(timedelta(0))
        assert SqlItems(scene.store, notify=True).retry(scene.box, ItemFilter(), [failed]) == {failed}
        signals = wakeups.wait(timedelta(seconds=60))
    assert signals == [Signal(scene.box.name, None, again=True)]
    scene.store.read_from_start(scene.box.name)
    assert scene.deliver() == [failed]


@pytest.mark.parametrize(
    "statements",
    [
        [f"UPDATE {TABLE} SET status = 0 WHERE id = 1"],
        [f"DELETE FROM {TABLE} WHERE id = 1", f"UPDATE {TABLE} SET id = 1, status = 0 WHERE id = 3"],
    ],
    ids=["an operator's SQL", "a row with an id of its own"],
)
def test_what_comes_back_by_other_ways_is_found_by_a_look_from_the_start(scene: Scene, statements: list[str]) -> None:
    store = scene.worker(ALWAYS)
    last = scene.deliver_and_advance()
    scene.insert()
    scene.deliver(store)
    scene.advance(store)
    assert min(scene.bounds(store)) > last
    for statement in statements:
        scene.direct.execute(statement.encode())
    assert scene.deliver(store) == []
    assert scene.advance(store) == {0}
    assert scene.deliver(store) == [1]


def test_two_workers_share_a_bucket_and_a_new_one_begins_at_the_start(scene: Scene) -> None:
    other = scene.worker(NEVER_FROM_START)
    scene.insert()
    scene.deliver(other)
    scene.advance(other)
    last = scene.deliver_and_advance()
    assert scene.bounds(other)[0] < last
    new = scene.insert()
    assert scene.deliver(other) == [new]
    scene.advance(other)
    newest = scene.insert()
    assert scene.bounds(scene.worker(NEVER_FROM_START)) == [0, 0]
    assert scene.deliver(scene.worker(NEVER_FROM_START)) == [newest]


# ── where a bound would not be safe ──────────────────────────────────────────────────────────────────


def test_an_id_that_the_sequence_has_not_reached_moves_no_bound_beyond_it(scene: Scene) -> None:
    scene.insert(id=10**9)
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]
    new = scene.insert()
    assert scene.deliver() == [new]


def test_ids_that_are_set_back_make_the_worker_forget_its_bounds(scene: Scene) -> None:
    store = scene.worker(ALWAYS)
    scene.insert()
    scene.insert()
    scene.deliver(store)
    scene.advance(store)
    assert min(scene.bounds(store)) > 0
    scene.direct.execute(f"TRUNCATE {TABLE} RESTART IDENTITY".encode())
    first = scene.insert()
    assert scene.deliver(store) == []
    scene.advance(store)
    assert scene.deliver(store) == [first]


def test_ids_that_another_server_gives_once_more_behind_a_pooler_make_the_worker_forget_its_bounds(
    scene: Scene,
) -> None:
    """No connection was lost, and the ids have passed the bounds again before anybody has looked."""
    last = scene.deliver_and_advance()
    _, sight = scene.store._bounds._sights[scene.box.name]
    sight._server = "the one that gave these ids"  # type: ignore[attr-defined]
    scene.direct.execute(f"TRUNCATE {TABLE} RESTART IDENTITY".encode())
    ids = [scene.insert() for _ in range(last + 1)]
    assert scene.deliver() == ids[last:]
    scene.store.advance(scene.box)
    assert scene.deliver() == ids[:last]


@pytest.mark.parametrize(
    "change",
    [
        f"ALTER SEQUENCE {TABLE}_id_seq CACHE 10",
        f"ALTER SEQUENCE {TABLE}_id_seq INCREMENT BY -1 MINVALUE -10 RESTART WITH 5",
        f"CREATE SEQUENCE own; ALTER TABLE {TABLE} ALTER COLUMN id SET DEFAULT nextval('own')",
    ],
    ids=["cached by sessions", "descending", "not the table's own"],
)
def test_where_ids_do_not_ascend_no_bound_is_used(scene: Scene, change: str) -> None:
    scene.direct.execute(change.encode())
    scene.deliver_and_advance()
    assert scene.bounds() == [0, 0]


def test_a_lost_connection_makes_the_worker_forget_its_bounds(scene: Scene) -> None:
    last = scene.deliver_and_advance()
    assert scene.bounds() == [last, last]
    scene.direct.execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()"
    )
    scene.store._bounds.of(scene.box).claimed(1)
    assert scene.store.advance(scene.box) == ()
    assert scene.bounds() == [0, 0]


def test_a_poll_that_loses_its_connection_makes_the_worker_forget_its_bounds(scene: Scene) -> None:
    """A standby that is promoted without the last commits gives their ids again."""
    last = scene.deliver_and_advance()
    scene.direct.execute(f"UPDATE {scene.box.table} SET status = 0 WHERE id = {last}".encode())
    assert scene.store.poll(scene.box, [0, 1], 10) == []
    scene.direct.execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()"
    )
    assert [row.id for row in scene.store.poll(scene.box, [0, 1], 10)] == [last]
    assert scene.bounds() == [0, 0]


def test_bounds_are_forgotten_where_somebody_else_has_lost_the_connections(scene: Scene) -> None:
    """Who asks next gets a new connection, perhaps to another server, and no error."""
    scene.deliver_and_advance()
    before = scene.store.losses
    scene.direct.execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()"
    )
    scene.store.ping()
    assert scene.bounds() == [0, 0]
    assert scene.store.losses > before


def test_a_table_without_the_index_that_serves_the_look_has_no_bounds(scene: Scene) -> None:
    with scene.store.engine.begin() as connection:
        (name,) = [
            index["name"]
            for index in sa.inspect(connection).get_indexes(TABLE)
            if index["column_names"] == ["bucket", "id"]
        ]
        connection.exec_driver_sql(f"DROP INDEX {name}")
    scene.deliver_and_advance()
    assert scene.bounds() == [0, 0]
