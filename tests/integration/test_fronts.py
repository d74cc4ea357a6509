"""Where the pending rows of each bucket begin: found once, believed for a while, and never in the way of what people did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.delivering import fronts
from boxengine.adapters.sql.delivering.fronts import EVERY, FROM_START, LARGE, Fronts
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.census import SqlCensus
from boxengine.adapters.sql.looking.inspection import SqlInspector
from boxengine.domain.box import Box
from boxengine.ports import Count, Precision
from tests.conformance.sql_stores import SqlHarness, postgresql

FIRST = LARGE + 1


class Stand:
    """A box of two buckets, with rows 1 to 20 beyond ``LARGE`` in turn."""

    def __init__(self, harness: SqlHarness) -> None:
        self.harness = harness
        self.box: Box = harness.make_box(bucket_size=2)
        assert isinstance(harness.store, SqlStore)
        self.engine = harness.store.engine
        self.store = SqlStore(self.engine, only_looks=True)
        self.now = 1000.0
        self.asked = 0
        self.cost = 0.0
        """Seconds that a look takes."""
        self.fronts = Fronts(self._opened, monotonic=lambda: self.now)
        for number in range(1, 21):
            harness.insert(self.box, id=LARGE + number, bucket=number % 2)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        self.asked += 1
        self.now += self.cost
        with translated(self.engine), self.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            with closing(connection.connection.cursor()) as cursor:
                yield cursor

    def set(self, *numbers: int, **columns: Any) -> None:
        for number in numbers:
            self.harness.set_row(self.box, LARGE + number, **columns)

    def look(self) -> dict[int, int]:
        """By bucket, behind which row its front lies."""
        return {bucket: max(0, after - LARGE) for bucket, after in self.fronts.of(self.store.table(self.box)).items()}


@pytest.fixture
def stand(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    # However slow the machine is.
    monkeypatch.setattr(fronts, "SHORT", timedelta(minutes=1))
    monkeypatch.setattr(fronts, "SHARE", 1e6)
    harness = postgresql(postgres_url)
    yield Stand(harness)
    harness.close()


def test_a_front_follows_the_first_pending_row_of_its_bucket(stand: Stand) -> None:
    stand.set(2, 4, 6, 1, status=2)
    assert stand.look() == {0: 7, 1: 2}
    stand.set(8, 3, status=2)
    assert stand.look() == {0: 7, 1: 2}, "one look is good enough for a second"
    assert stand.asked == 1
    stand.now += EVERY + 0.1
    assert stand.look() == {0: 9, 1: 4}


def test_an_empty_bucket_keeps_its_front_and_its_next_row_is_seen(stand: Stand) -> None:
    stand.set(2, status=2)
    assert stand.look()[0] == 3
    stand.set(*range(4, 21, 2), status=2)
    stand.now += EVERY + 0.1
    assert stand.look()[0] == 3
    stand.set(20, status=0)
    stand.now += EVERY + 0.1
    assert stand.look()[0] == 19


def test_rows_that_come_back_before_a_front_are_found_by_the_next_look_from_the_start(stand: Stand) -> None:
    stand.set(*range(1, 11), status=2)
    assert stand.look() == {0: 11, 1: 10}
    stand.set(2, status=0)
    stand.now += EVERY + 0.1
    assert stand.look() == {0: 11, 1: 10}
    stand.now += FROM_START
    assert stand.look() == {0: 1, 1: 10}


def test_whoever_knows_of_such_rows_has_them_found_at_once(stand: Stand) -> None:
    stand.set(*range(1, 11), status=2)
    stand.look()
    stand.set(2, status=0)
    stand.fronts.forget(stand.box.name)
    assert stand.look() == {0: 1, 1: 10}


def test_retries_in_a_row_cost_no_more_than_their_share(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fronts, "SHARE", 0.001)
    stand.set(*range(1, 11), status=2)
    stand.cost = 0.005
    stand.look()
    stand.set(2, status=0)
    stand.fronts.forget(stand.box.name)
    stand.now += 4.9
    assert stand.look()[0] == 11
    stand.now += 0.2
    assert stand.look()[0] == 1


def test_a_small_table_is_read_from_its_start(stand: Stand) -> None:
    stand.harness.insert(stand.box, id=50, bucket=0)
    stand.harness.insert(stand.box, id=51, bucket=1)
    assert set(stand.fronts.of(stand.store.table(stand.box)).values()) == {0}
    stand.now += EVERY + 0.1
    stand.look()
    assert stand.asked == 1, "nor looked at again soon"


def test_the_questions_of_the_console_begin_at_the_fronts(stand: Stand) -> None:
    hours = timedelta(hours=5)
    stand.set(2, status=0, errors_count=1, created_at=stand.harness.now() - hours)
    stand.set(1, *range(3, 11), status=2)
    census, inspector = SqlCensus(stand.store, small=0, limit=5), SqlInspector(stand.store)
    oldest = stand.store.oldest_pending(stand.box)
    assert oldest is not None
    assert stand.harness.now() - oldest >= hours
    assert census.take(stand.box).retrying == Count(1, Precision.AT_LEAST)
    assert [row.id for row in inspector.tried(stand.box, limit=5)] == [LARGE + 2]
    # It is behind the front once it was delivered, and comes back behind the console's back.
    stand.set(2, status=2)
    stand.store.read_from_start(stand.box.name)
    assert stand.store.fronts(stand.box)[0] == LARGE + 11
    stand.set(2, status=0)
    oldest = stand.store.oldest_pending(stand.box)
    assert oldest is not None
    assert stand.harness.now() - oldest < hours
    assert census.take(stand.box).retrying == Count(0, Precision.ABOUT)
    assert inspector.tried(stand.box, limit=5) == []
    stand.store.read_from_start(stand.box.name)
    assert [row.id for row in inspector.tried(stand.box, limit=5)] == [LARGE + 2]


def test_the_walk_over_what_was_delivered_is_made_once(stand: Stand) -> None:
    """By the index pages that a question reads once the front is known."""
    with stand.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {stand.box.table} SET (autovacuum_enabled = off)")
        columns = "event_key, bucket, payload, created_at, updated_at, status, errors_count"
        connection.exec_driver_sql(
            f"INSERT INTO {stand.box.table} (id, uuid, {columns}) SELECT {LARGE} + 20 + n, gen_random_uuid(), 'k', n %% 2, "
            "'x', now(), now(), 0, 0 FROM generate_series(1, 20000) AS n"
        )
    with stand.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {stand.box.table} SET status = 2 WHERE id < {LARGE} + 19000")

    def pages(after: int) -> int:
        query = f"SELECT id FROM {stand.box.table} WHERE status = 0 AND bucket = 0 AND id > {after} ORDER BY bucket, id LIMIT 1"
        with stand.engine.begin() as connection:
            (plan,) = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}").one()
            found = plan[0]["Plan"]
        return int(found["Shared Hit Blocks"]) + int(found["Shared Read Blocks"])

    front = stand.fronts.of(stand.store.table(stand.box))[0]
    assert front >= LARGE + 18_990
    walked, spared = pages(0), pages(front)
    assert spared < 10 < walked


def test_a_look_from_the_start_that_takes_too_long_leaves_the_fronts_as_they_are(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.set(*range(1, 11), status=2)
    assert stand.look() == {0: 11, 1: 10}
    stand.set(2, status=0)
    slow = fronts._first_pending(stand.store.table(stand.box)).replace("WHERE", "WHERE pg_sleep(1) IS NOT NULL AND")
    with monkeypatch.context() as patch:
        patch.setattr(fronts, "SHORT", timedelta(milliseconds=5))
        patch.setattr(fronts, "_first_pending", lambda _: slow)
        stand.now += FROM_START + 0.1
        assert stand.look() == {0: 11, 1: 10}
    stand.now += FROM_START + 0.1
    assert stand.look() == {0: 1, 1: 10}, "the connection is fit for use, and a later look finds the row"


def test_looks_from_the_start_that_take_long_are_made_less_often(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    share = 0.001
    monkeypatch.setattr(fronts, "SHARE", share)
    stand.set(*range(1, 11), status=2)
    stand.cost = 0.2
    stand.look()
    stand.cost = 0
    stand.set(2, status=0)
    stand.now += 0.2 / share - 0.1
    assert stand.look() == {0: 11, 1: 10}, "though more than FROM_START has passed"
    stand.now += 0.2
    assert stand.look() == {0: 1, 1: 10}
